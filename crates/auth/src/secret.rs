//! Text that must not be seen.

use std::fmt;

use constant_time_eq::constant_time_eq;
use zeroize::Zeroizing;

/// A token, a key or a password.
///
/// It cannot be printed or serialized by accident, is compared in a time that tells nothing of its
/// content, and its memory is overwritten when it is dropped. Copies that other libraries make while
/// they send it are theirs, and are not.
#[derive(Clone)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// Takes `text` into custody.
    pub fn new(text: impl Into<String>) -> Self {
        Self(Zeroizing::new(text.into()))
    }

    /// The text itself, for the one place that needs it.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Whether `other` is the same text, in a time that depends on its length alone.
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
    fn secrets_are_compared_as_a_whole() {
        let secret = Secret::new("s3cret");
        assert!(secret.matches("s3cret") && secret == secret.clone());
        for other in ["", "s3cre", "s3creT", "s3cret "] {
            assert!(!secret.matches(other), "{other:?}");
        }
    }
}
