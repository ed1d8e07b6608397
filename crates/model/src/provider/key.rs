//! The secret that a provider asks for.

use std::fmt;

use async_trait::async_trait;

/// A secret. Its `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Key(String);

impl Key {
    /// This secret.
    pub fn new(secret: impl Into<String>) -> Self {
        Self(secret.into())
    }

    /// The secret itself, for the one place that sends it.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// `text` without the secret, should somebody have repeated it there.
    pub(super) fn hide_in(&self, text: &str) -> String {
        if self.0.is_empty() { text.to_owned() } else { text.replace(&self.0, "[key]") }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(…)")
    }
}

/// Why there is no key: a sentence that says what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct KeyError(pub String);

/// Where the key of a model comes from. Asked before each call, so that a login can be renewed.
#[async_trait]
pub trait KeySource: Send + Sync {
    /// The key that holds now; none if the server asks for none.
    async fn key(&self) -> Result<Option<Key>, KeyError>;
}

/// A key that does not change, or none at all, or the sentence why there is none.
#[derive(Clone, Debug)]
pub struct FixedKey(pub Result<Option<Key>, KeyError>);

#[async_trait]
impl KeySource for FixedKey {
    async fn key(&self) -> Result<Option<Key>, KeyError> {
        self.0.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_not_shown() {
        let key = Key::new("s3cret");
        assert!(!format!("{key:?} {:?}", FixedKey(Ok(Some(key.clone())))).contains("s3cret"));
        assert_eq!(key.hide_in("wrong key s3cret!"), "wrong key [key]!");
        assert_eq!(Key::new("").hide_in("text"), "text");
    }
}
