//! The key of a provider, and where it comes from.

use std::fmt;

use async_trait::async_trait;

/// An API key or an access token. `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Key {
    secret: String,
    /// Whether it is the access token of a login, which all providers accept as bearer token.
    is_bearer: bool,
}

impl Key {
    /// An API key, which is sent in the provider's own header.
    pub fn new(secret: impl Into<String>) -> Self {
        Self { secret: secret.into(), is_bearer: false }
    }

    /// The access token of a login, which is sent as bearer token (RFC 6750).
    pub fn bearer(token: impl Into<String>) -> Self {
        Self { secret: token.into(), is_bearer: true }
    }

    /// The secret text, for the code that sends it.
    pub fn reveal(&self) -> &str {
        &self.secret
    }

    /// Whether it is the access token of a login.
    pub fn is_bearer(&self) -> bool {
        self.is_bearer
    }

    /// `text` with the key replaced by a placeholder.
    pub(super) fn redact_in(&self, text: &str) -> String {
        if self.secret.is_empty() { text.to_owned() } else { text.replace(&self.secret, "[key]") }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(…)")
    }
}

/// Why there is no key. The text says what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// No key is set.
    #[error("{0}")]
    Missing(String),
    /// The key is temporarily unavailable, for example because a login cannot be renewed now.
    #[error("{0}")]
    Unavailable(String),
    /// A setting makes it impossible to get the key.
    #[error("{0}")]
    Settings(String),
}

/// The source of a key. Called before each request, so that a login can be renewed.
#[async_trait]
pub trait KeySource: Send + Sync {
    /// The current key; `None` if the server needs none.
    async fn key(&self) -> Result<Option<Key>, KeyError>;

    /// Another key after the server refused `_refused`; `None` if there is no other.
    async fn replacement_for(&self, _refused: &Key) -> Result<Option<Key>, KeyError> {
        Ok(None)
    }

    /// Which key is used, and what to do if the server refuses it. For error messages.
    async fn info(&self) -> KeyInfo {
        KeyInfo { used: None, remedy: "give it a key".to_owned() }
    }
}

/// A description of a key for people, without the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyInfo {
    /// The origin of the key: a variable, the secret store or a login. `None` if no key is sent.
    pub used: Option<String>,
    /// How to set another key.
    pub remedy: String,
}

/// A constant result: a key, no key, or an error.
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
        assert_eq!(key.redact_in("wrong key s3cret!"), "wrong key [key]!");
        assert_eq!(Key::new("").redact_in("text"), "text");
    }
}
