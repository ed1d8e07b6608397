//! The secret that a provider asks for.

use std::fmt;

use async_trait::async_trait;

/// A secret. Its `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Key {
    secret: String,
    /// Whether it is a token of a login, which all providers take in the same way.
    is_bearer: bool,
}

impl Key {
    /// A key that the provider gave out, sent as it wants its keys.
    pub fn new(secret: impl Into<String>) -> Self {
        Self { secret: secret.into(), is_bearer: false }
    }

    /// The token of a login, sent as a bearer token (RFC 6750).
    pub fn bearer(token: impl Into<String>) -> Self {
        Self { secret: token.into(), is_bearer: true }
    }

    /// The secret itself, for the one place that sends it.
    pub fn reveal(&self) -> &str {
        &self.secret
    }

    /// Whether it is the token of a login.
    pub fn is_bearer(&self) -> bool {
        self.is_bearer
    }

    /// `text` without the secret, should somebody have repeated it there.
    pub(super) fn hide_in(&self, text: &str) -> String {
        if self.secret.is_empty() { text.to_owned() } else { text.replace(&self.secret, "[key]") }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(…)")
    }
}

/// Why there is no key: a sentence that says what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// There is none, and waiting brings none.
    #[error("{0}")]
    Missing(String),
    /// It cannot be had now. Later it may be.
    #[error("{0}")]
    Unavailable(String),
    /// Nobody can be asked for as long as something is set as it is.
    #[error("{0}")]
    Settings(String),
}

/// Where the key of a model comes from. Asked before each call, so that a login can be renewed.
#[async_trait]
pub trait KeySource: Send + Sync {
    /// The key that holds now; none if the server asks for none.
    async fn key(&self) -> Result<Option<Key>, KeyError>;

    /// Another key in the place of one that the server did not accept; none if there is no other.
    async fn replacement_for(&self, _refused: &Key) -> Result<Option<Key>, KeyError> {
        Ok(None)
    }

    /// Which key is used, and what to do if the server does not accept it.
    async fn info(&self) -> KeyInfo {
        KeyInfo { used: None, remedy: "give it a key".to_owned() }
    }
}

/// What people are told of a key. Never the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyInfo {
    /// What it is: the key in a variable, one that is kept, a login. None if none is sent.
    pub used: Option<String>,
    /// How to have another.
    pub remedy: String,
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
