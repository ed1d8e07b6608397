//! Removes the known secrets from text that people or programs may see: logs, errors, events, output.
//!
//! A secret is recognized as plain text, in hexadecimal, percent-encoded, with JSON escapes (also in JSON within JSON), and
//! within base64 at any offset, also if the base64 is broken into lines. Control characters, escape sequences and invisible
//! characters between its letters are ignored, because screens do not show them. For text that arrives in pieces,
//! [`Redactor::redact_prefix`] tells how much of the end may be the beginning of a secret. Other encodings are not
//! recognized.
//!
//! The work is linear in the text, whatever the secrets are: if a text needs more, because somebody chose a secret and a
//! text that agree at many places, the rest of that text is replaced as a whole.

mod escape;
mod index;
mod invisible;
mod pattern;
mod work;

use std::borrow::Cow;
use std::ops::Range;
use std::sync::{Arc, PoisonError, RwLock};

use self::index::Index;
pub use self::invisible::MAX_INVISIBLE_BYTES;
use self::invisible::{Display, may_contain_invisible, visible_text};
pub use self::work::{WORK_PER_BYTE, WORK_PER_TEXT};
use crate::record::Login;
use crate::{Secret, SecretStore};

/// The text that replaces a secret.
pub const REDACTED: &str = "[secret]";

/// Shorter secrets are not searched for, because ordinary text would contain them by coincidence.
pub const MIN_REDACTED_BYTES: usize = 8;

/// How many secrets one group holds. When a group is full, the secret that was learned longest ago is dropped.
pub const MAX_REDACTED: usize = 256;

/// How many secrets the group of one login holds: the tokens of the last eight renewals, with up to three tokens each. A
/// provider grants as many tokens as it likes, so they must not displace other secrets.
pub const MAX_LOGIN_SECRETS: usize = 24;

/// The maximum number of forms of a secret: plain, lower and upper case hexadecimal, and base64 of the plain and of
/// the percent-encoded text, each in two alphabets at three offsets.
pub const MAX_FORMS: usize = 15;

/// The known secrets. Cheap to clone; clones share the secrets.
///
/// Secrets belong to groups, and each group has its own limit. All groups are searched at once, so that
/// [`redact_prefix`](Self::redact_prefix) never cuts through a secret of any group.
#[derive(Clone)]
pub struct Redactor {
    known: Arc<RwLock<KnownSecrets>>,
    /// The group of the secrets that this clone learns.
    group: u64,
    /// How many secrets the group holds.
    max_secrets: usize,
}

impl Default for Redactor {
    fn default() -> Self {
        Self { known: Arc::default(), group: 0, max_secrets: MAX_REDACTED }
    }
}

#[derive(Default)]
struct KnownSecrets {
    /// In the order in which they were learned.
    secrets: Vec<KnownSecret>,
    /// Shared with the redactions in progress, which therefore hold no lock.
    index: Arc<Index>,
    last_number: u64,
    last_group: u64,
}

struct KnownSecret {
    number: u64,
    group: u64,
    secret: Secret,
}

impl Redactor {
    /// A redactor without secrets.
    pub fn new() -> Self {
        Self::default()
    }

    /// A redactor that shares the known secrets and learns into a new group, so that its secrets never displace those
    /// of other groups.
    pub fn new_group(&self) -> Self {
        self.new_group_of(MAX_REDACTED)
    }

    /// Like [`new_group`](Self::new_group), for the secrets of one login.
    pub(crate) fn new_login_group(&self) -> Self {
        self.new_group_of(MAX_LOGIN_SECRETS)
    }

    fn new_group_of(&self, max_secrets: usize) -> Self {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known.last_group += 1;
        Self { known: Arc::clone(&self.known), group: known.last_group, max_secrets }
    }

    /// Adds `secret` to the known ones. Learning a known secret again makes it the newest of its group.
    pub fn learn(&self, secret: &Secret) {
        if secret.expose().len() < MIN_REDACTED_BYTES {
            return;
        }
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let known = &mut *known;
        let is_ours = |known: &KnownSecret| known.group == self.group;
        let is_same = |known: &KnownSecret| is_ours(known) && known.secret == *secret;
        if let Some(position) = known.secrets.iter().position(is_same) {
            let again = known.secrets.remove(position);
            known.secrets.push(again);
            return;
        }
        if known.secrets.iter().filter(|secret| is_ours(secret)).count() == self.max_secrets
            && let Some(oldest) = known.secrets.iter().position(is_ours)
        {
            let dropped = known.secrets.remove(oldest);
            Arc::make_mut(&mut known.index).remove(dropped.number);
        }
        known.last_number += 1;
        let (number, group) = (known.last_number, self.group);
        known.secrets.push(KnownSecret { number, group, secret: secret.clone() });
        Arc::make_mut(&mut known.index).add(number, pattern::forms(secret.expose()));
    }

    /// Learns all secrets that are stored in the files of `store`. Blocking.
    pub fn learn_all(&self, store: &SecretStore) {
        for name in store.names_in_files().unwrap_or_default() {
            // Unreadable secrets are skipped here. `read` reports them to the code that needs them.
            let Ok(Some(secret)) = store.read(&name) else { continue };
            if !name.is_login() {
                self.learn(&secret);
            } else if let Some(login) = Login::parse(&secret) {
                login.secrets().iter().for_each(|token| self.learn(token));
            }
        }
    }

    /// `text` with all secrets replaced. If a secret becomes visible only after a display drops invisible characters,
    /// the result is the visible text of that display.
    pub fn redact<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let index = self.index();
        let mut shown = without(text, &index.scan(text.as_bytes()).secrets);
        if !index.is_empty() && may_contain_invisible(shown.as_bytes()) {
            for display in [Display::Terminal, Display::Page] {
                let visible = visible_text(&shown, display);
                let differs = visible.len() < shown.len();
                if differs
                    && let Cow::Owned(redacted) = without(&visible, &index.scan(visible.as_bytes()).secrets)
                {
                    shown = Cow::Owned(redacted);
                }
            }
        }
        shown
    }

    /// Whether `bytes` contain a secret. They need not be text; compressed content is not unpacked.
    pub fn contains_secret(&self, bytes: &[u8]) -> bool {
        !self.index().scan(bytes).secrets.is_empty()
    }

    /// Redacts the part of `text` that cannot change any more, and counts the bytes after that part: they may be the
    /// beginning of a secret, depending on the text that follows. The part never ends within a secret.
    pub fn redact_prefix<'t>(&self, text: &'t str) -> (Cow<'t, str>, usize) {
        let mut scan = self.index().scan(text.as_bytes());
        let decided = scan.decided_length(text.len());
        scan.secrets.retain(|secret| secret.start < decided);
        (without(text.split_at(decided).0, &scan.secrets), text.len() - decided)
    }

    fn index(&self) -> Arc<Index> {
        Arc::clone(&self.known.read().unwrap_or_else(PoisonError::into_inner).index)
    }
}

/// `text` with these ranges replaced by [`REDACTED`].
fn without<'t>(text: &'t str, secrets: &[Range<usize>]) -> Cow<'t, str> {
    if secrets.is_empty() {
        return Cow::Borrowed(text);
    }
    let (mut shown, mut from) = (String::with_capacity(text.len()), 0);
    for secret in secrets {
        // Forms begin and end at character boundaries.
        shown.push_str(text.get(from..secret.start).unwrap_or_default());
        shown.push_str(REDACTED);
        from = secret.end;
    }
    shown.push_str(text.get(from..).unwrap_or_default());
    Cow::Owned(shown)
}

impl std::fmt::Debug for Redactor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Redactor(…)")
    }
}

#[cfg(test)]
mod tests;
