//! Takes live secrets out of text that is going to be seen: logs, errors, events, output.
//!
//! A secret is found as it is, percent-encoded, escaped as in JSON, and inside of base64, whatever
//! stands before it there. Whoever writes in pieces asks how much of the end may be the beginning of a
//! secret ([`Redactor::held`]) and keeps that back. Not found: any other disguise.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::{Arc, PoisonError, RwLock};

use base64_simd::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use url::form_urlencoded;
use zeroize::Zeroizing;

use crate::record::Login;
use crate::{Secret, SecretStore};

/// What stands in the place of a secret.
pub const REDACTED: &str = "[secret]";

/// Secrets that are shorter are not looked for: ordinary text would be full of them.
pub const MIN_REDACTED_BYTES: usize = 8;

/// How many secrets are known at a time. The one that was learned first is forgotten first.
pub const MAX_REDACTED: usize = 256;

/// How many letters at least a form in base64 has: a shorter one stands in text by chance.
const MIN_BASE64_CHARS: usize = 10;

/// The secrets that are alive. Cheap to clone; all clones know the same.
#[derive(Clone, Default)]
pub struct Redactor(Arc<RwLock<VecDeque<Known>>>);

/// A secret and the forms it is looked for in, the longest first.
struct Known {
    secret: Secret,
    forms: Vec<Zeroizing<String>>,
}

impl Redactor {
    /// One that knows nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// From now on, `secret` is taken out.
    pub fn learn(&self, secret: &Secret) {
        if secret.expose().len() < MIN_REDACTED_BYTES {
            return;
        }
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if known.iter().any(|known| known.secret == *secret) {
            return;
        }
        if known.len() == MAX_REDACTED {
            known.pop_front();
        }
        known.push_back(Known { secret: secret.clone(), forms: forms(secret.expose()) });
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

    /// How many bytes at the end of `text` may be the beginning of a secret, if more text follows.
    pub fn held(&self, text: &str) -> usize {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let forms = known.iter().flat_map(|known| &known.forms);
        forms.map(|form| overlap(text, form)).max().unwrap_or(0)
    }

    /// `text` without the secrets.
    pub fn redact<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let mut text = Cow::Borrowed(text);
        for form in known.iter().flat_map(|known| &known.forms) {
            if text.contains(form.as_str()) {
                text = Cow::Owned(text.replace(form.as_str(), REDACTED));
            }
        }
        text
    }
}

impl std::fmt::Debug for Redactor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Redactor(…)")
    }
}

/// How many bytes at the end of `text` are the beginning of `form`, without being all of it.
fn overlap(text: &str, form: &str) -> usize {
    let most = text.len().min(form.len().saturating_sub(1));
    (1..=most).rev().find(|length| text.as_bytes().ends_with(&form.as_bytes()[..*length])).unwrap_or(0)
}

/// What a secret looks like in texts.
fn forms(secret: &str) -> Vec<Zeroizing<String>> {
    let escaped = serde_json::to_string(secret).unwrap_or_default();
    let mut forms: Vec<Zeroizing<String>> = [
        secret.to_owned(),
        utf8_percent_encode(secret, NON_ALPHANUMERIC).to_string(),
        utf8_percent_encode(secret, UNRESERVED).to_string(),
        form_urlencoded::byte_serialize(secret.as_bytes()).collect(),
        escaped.trim_matches('"').to_owned(),
    ]
    .into_iter()
    .map(Zeroizing::new)
    .collect();
    // HTTP's basic authentication percent-encodes before it encodes.
    let encoded: Zeroizing<String> =
        Zeroizing::new(form_urlencoded::byte_serialize(secret.as_bytes()).collect());
    for before in 0..3 {
        for text in [secret, encoded.as_str()] {
            forms.extend(in_base64(text, before).into_iter().flatten());
        }
    }
    forms.sort_by(|one, other| other.len().cmp(&one.len()).then_with(|| one.cmp(other)));
    forms.dedup();
    forms
}

/// Everything but what RFC 3986 never encodes.
const UNRESERVED: &percent_encoding::AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The letters of base64, in both alphabets, that depend on `text` alone, if so many bytes stand
/// before it (counted modulo 3).
fn in_base64(text: &str, before: usize) -> [Option<Zeroizing<String>>; 2] {
    let mut bytes = Zeroizing::new(vec![0; before]);
    bytes.extend_from_slice(text.as_bytes());
    // The first letters hold bits of what stands before, the last one bits of what follows.
    let (first, whole) = ((before * 8).div_ceil(6), bytes.len() * 8 / 6);
    [STANDARD_NO_PAD, URL_SAFE_NO_PAD].map(|alphabet| {
        let encoded = Zeroizing::new(alphabet.encode_to_string(bytes.as_slice()));
        let own = encoded.get(first..whole)?;
        (own.len() >= MIN_BASE64_CHARS).then(|| Zeroizing::new(own.to_owned()))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn knowing(secret: &str) -> Redactor {
        let redactor = Redactor::new();
        redactor.learn(&Secret::new(secret));
        redactor
    }

    #[test]
    fn a_secret_is_found_in_each_disguise() {
        let redactor = knowing("to\"ken/+=ÿ§ word~");
        assert_eq!(redactor.redact("a to\"ken/+=ÿ§ word~ b"), "a [secret] b");
        for disguise in [
            "to%22ken%2F%2B%3D%C3%BF%C2%A7%20word%7E",
            "to%22ken%2F%2B%3D%C3%BF%C2%A7%20word~",
            "to%22ken%2F%2B%3D%C3%BF%C2%A7+word%7E",
            r#"to\"ken/+=ÿ§ word~"#,
        ] {
            assert_eq!(redactor.redact(disguise), REDACTED, "{disguise}");
        }
    }

    #[test]
    fn text_without_secrets_is_not_copied() {
        assert!(matches!(knowing("a-long-secret").redact("nothing here"), Cow::Borrowed("nothing here")));
    }

    #[test]
    fn short_secrets_are_left_alone() {
        assert_eq!(knowing("short77").redact("short77"), "short77");
        assert_eq!(knowing("enough88").redact("enough88"), REDACTED);
    }

    #[test]
    fn the_oldest_secret_makes_room() {
        let redactor = Redactor::new();
        let secret = |number: usize| format!("secret-number-{number:04}.");
        for number in 0..=MAX_REDACTED {
            redactor.learn(&Secret::new(secret(number)));
            redactor.learn(&Secret::new(secret(number)));
        }
        assert_eq!(redactor.redact(&secret(0)), secret(0));
        assert_eq!(redactor.redact(&secret(1)), REDACTED);
        assert_eq!(redactor.redact(&secret(MAX_REDACTED)), REDACTED);
    }

    #[test]
    fn what_is_kept_is_known() {
        let home = tempfile::tempdir().unwrap();
        let store = SecretStore::open(home.path()).unwrap();
        let keep = |name: Option<crate::SecretName>, text: &str| {
            store.write(&name.unwrap(), &Secret::new(text)).unwrap();
        };
        keep(crate::SecretName::key("a"), "a-key-that-is-kept");
        let login =
            r#"{"version":1,"access_token":"access-12345","refresh_token":"refresh-12345","obtained_at":1}"#;
        keep(crate::SecretName::login("b"), login);
        keep(crate::SecretName::login("c"), "no login at all");
        let redactor = Redactor::new();
        redactor.learn_all(&store);
        let text = "a-key-that-is-kept access-12345 refresh-12345 no login at all";
        assert_eq!(redactor.redact(text), "[secret] [secret] [secret] no login at all");
    }

    #[test]
    fn the_end_of_a_text_is_held_while_it_may_be_a_secret() {
        let redactor = knowing("s3cret-é-token");
        assert_eq!(redactor.held("nothing"), 0);
        assert_eq!(redactor.held("text s3cret-"), 7);
        assert_eq!(redactor.held("s3cret-s3c"), 3);
        assert_eq!(redactor.held("s"), 1);
        assert_eq!(redactor.held("s3cret-é-token"), 0, "that is all of it");
        assert_eq!(Redactor::new().held("s3cret"), 0);
    }

    proptest! {
        #[test]
        fn a_secret_in_pieces_is_never_let_through(
            before in "[a-c]{0,6}", after in "[a-c]{0,6}", cuts in proptest::collection::vec(1_usize..5, 0..12)
        ) {
            let secret = "abcabcabd-s3c";
            let redactor = knowing(secret);
            let text = format!("{before}{secret}{after}");
            let (mut rest, mut held, mut seen) = (text.as_str(), String::new(), String::new());
            for cut in cuts.into_iter().chain([text.len()]) {
                let (piece, later) = rest.split_at(cut.min(rest.len()));
                rest = later;
                held = redactor.redact(&(held + piece)).into_owned();
                let keep = held.len() - redactor.held(&held);
                seen.push_str(held.split_at(keep).0);
                held = held.split_at(keep).1.to_owned();
            }
            seen.push_str(&redactor.redact(&held));
            prop_assert_eq!(seen, redactor.redact(&text));
        }

        #[test]
        fn a_secret_is_found_inside_of_base64(secret in "[!-~]{9,40}", before in ".{0,9}", after in ".{0,9}") {
            let redactor = knowing(&secret);
            for alphabet in [base64_simd::STANDARD, base64_simd::URL_SAFE_NO_PAD] {
                let encoded = alphabet.encode_to_string(format!("{before}{secret}{after}"));
                prop_assert!(redactor.redact(&encoded).contains(REDACTED), "{encoded}");
            }
        }
    }
}
