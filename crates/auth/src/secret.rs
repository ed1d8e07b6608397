//! [`Secret`]: text that must not be displayed or logged.

use std::fmt;

use constant_time_eq::constant_time_eq;
use zeroize::Zeroizing;

/// A token, a key or a password.
///
/// It cannot be printed or serialized by accident, comparisons take constant time, and its memory is overwritten on drop.
/// Copies that other libraries make while they send it are not overwritten.
#[derive(Clone)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// Wraps `text`.
    pub fn new(text: impl Into<String>) -> Self {
        Self(Zeroizing::new(text.into()))
    }

    /// The secret text. Call this only where the text is sent, stored or compared.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Whether `other` is the same text. The time depends only on the lengths.
    pub fn matches(&self, other: &str) -> bool {
        constant_time_eq(self.0.as_bytes(), other.as_bytes())
    }
}

impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        self.matches(other.expose())
    }
}

impl Eq for Secret {}

impl From<Zeroizing<String>> for Secret {
    fn from(text: Zeroizing<String>) -> Self {
        Self(text)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(crate::REDACTED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_never_printed() {
        let secret = Secret::new("s3cret");
        assert_eq!(format!("{secret:?} {secret} {:#?}", Some(&secret)).matches("s3cret").count(), 0);
        assert_eq!(secret.expose(), "s3cret");
    }

    #[test]
    fn only_the_same_text_matches() {
        let secret = Secret::new("s3cret");
        assert!(secret.matches("s3cret") && secret == secret.clone());
        for other in ["", "s3cre", "s3creT", "s3cret "] {
            assert!(!secret.matches(other), "{other:?}");
        }
    }
}
