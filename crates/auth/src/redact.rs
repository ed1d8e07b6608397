//! Takes live secrets out of text that is going to be seen: logs, errors, events, output.
//!
//! A secret is found as it is, in hexadecimal digits, percent-encoded, escaped as in JSON, also in JSON within JSON, and
//! inside of base64, whatever stands before it there, also where that is broken into lines. Control characters, escape
//! sequences and letters without a shape may stand within: screens do not show them. Whoever writes in pieces
//! asks how much of the end may be the beginning of a secret ([`Redactor::redact_prefix`]) and keeps that back. Not found: any
//! other disguise.

mod escape;
mod index;
mod pattern;
mod unseen;

use std::borrow::Cow;
use std::ops::Range;
use std::sync::{Arc, PoisonError, RwLock};

use self::index::Index;
pub use self::unseen::MAX_INVISIBLE_BYTES;
use self::unseen::{Screen, may_hold_unseen, seen};
use crate::record::Login;
use crate::{Secret, SecretStore};

/// What stands in the place of a secret.
pub const REDACTED: &str = "[secret]";

/// Secrets that are shorter are not looked for: ordinary text would be full of them.
pub const MIN_REDACTED_BYTES: usize = 8;

/// How many secrets of one group are known at a time. The one that was learned longest ago is forgotten first.
pub const MAX_REDACTED: usize = 256;

/// How many forms of a secret are looked for at most: as it is, in two cases of hexadecimal digits, and in base64 of two
/// alphabets at three places, of itself and of its form in web forms.
pub const MAX_FORMS: usize = 15;

/// The secrets that are alive. Cheap to clone; all clones know the same.
///
/// Secrets are learned in groups, each of which forgets its own. They are looked for together: what may be the beginning
/// of one must not divide another.
#[derive(Clone, Default)]
pub struct Redactor {
    known: Arc<RwLock<Known>>,
    /// What this one learns belongs to this group.
    group: u64,
}

#[derive(Default)]
struct Known {
    /// The one that was learned last is at the end.
    secrets: Vec<Learned>,
    index: Index,
    last_number: u64,
    last_group: u64,
}

struct Learned {
    number: u64,
    group: u64,
    secret: Secret,
}

impl Redactor {
    /// One that knows nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// One that knows the same, and learns into a new group: whatever it learns makes none of the other groups forget.
    pub fn new_group(&self) -> Self {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known.last_group += 1;
        Self { known: Arc::clone(&self.known), group: known.last_group }
    }

    /// From now on, `secret` is taken out. To learn one again keeps it from being forgotten.
    pub fn learn(&self, secret: &Secret) {
        if secret.expose().len() < MIN_REDACTED_BYTES {
            return;
        }
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let known = &mut *known;
        let is_ours = |learned: &Learned| learned.group == self.group;
        let is_it = |learned: &Learned| is_ours(learned) && learned.secret == *secret;
        if let Some(place) = known.secrets.iter().position(is_it) {
            let again = known.secrets.remove(place);
            known.secrets.push(again);
            return;
        }
        if known.secrets.iter().filter(|learned| is_ours(learned)).count() == MAX_REDACTED
            && let Some(oldest) = known.secrets.iter().position(is_ours)
        {
            let forgotten = known.secrets.remove(oldest);
            known.index.remove(forgotten.number);
        }
        known.last_number += 1;
        let (number, group) = (known.last_number, self.group);
        known.secrets.push(Learned { number, group, secret: secret.clone() });
        known.index.add(number, pattern::forms(secret.expose()));
    }

    /// From now on, all that is kept in the files of `store` is taken out. Blocking.
    pub fn learn_all(&self, store: &SecretStore) {
        for name in store.names_in_files().unwrap_or_default() {
            // What cannot be read is told to whoever needs it.
            let Ok(Some(secret)) = store.read(&name) else { continue };
            match name.provider() {
                None => self.learn(&secret),
                Some(_) => {
                    let login = Login::parse(&secret);
                    let tokens = login.map(|login| [login.access, login.refresh]);
                    tokens.iter().flatten().flatten().for_each(|token| self.learn(token));
                }
            }
        }
    }

    /// `text` without the secrets. If a screen would show one although it is not in the text as it is, what is left is
    /// what that screen shows.
    pub fn redact<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let mut shown = without(text, &known.index.scan(text.as_bytes()).secrets);
        if !known.secrets.is_empty() && may_hold_unseen(shown.as_bytes()) {
            for screen in [Screen::Terminal, Screen::Page] {
                let seen = seen(&shown, screen);
                let is_other = seen.len() < shown.len();
                if is_other
                    && let Cow::Owned(clean) = without(&seen, &known.index.scan(seen.as_bytes()).secrets)
                {
                    shown = Cow::Owned(clean);
                }
            }
        }
        shown
    }

    /// Whether a secret is in `bytes`, which need not be a text. Nothing is unpacked for that.
    pub fn contains_secret(&self, bytes: &[u8]) -> bool {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        !known.index.scan(bytes).secrets.is_empty()
    }

    /// The part of `text` that is decided, without the secrets, and how many bytes are not in it because they may be the
    /// beginning of one, if more text follows. The end of that part is within no secret.
    pub fn redact_prefix<'t>(&self, text: &'t str) -> (Cow<'t, str>, usize) {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let mut scan = known.index.scan(text.as_bytes());
        let decided = scan.decided(text.len());
        scan.secrets.retain(|secret| secret.start < decided);
        (without(text.split_at(decided).0, &scan.secrets), text.len() - decided)
    }
}

/// `text` without these parts.
fn without<'t>(text: &'t str, secrets: &[Range<usize>]) -> Cow<'t, str> {
    if secrets.is_empty() {
        return Cow::Borrowed(text);
    }
    let (mut shown, mut from) = (String::with_capacity(text.len()), 0);
    for secret in secrets {
        // Forms begin and end between letters.
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
