//! The token for processes that ask nobody for it and must not show it: what stands in the file, and nothing is made.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use crate::store::{LearnSecret, Stamp, learn_token, load, stamp};
use crate::token::Token;

/// Looks at the file of a [`TokenStore`](super::TokenStore) and tells of each token that it finds there.
pub struct TokenWatch {
    file: PathBuf,
    learn: LearnSecret,
    /// What was read last.
    seen: Mutex<Option<Stamp>>,
}

impl TokenWatch {
    /// Watches `file`, which need not exist, and tells `learn` what is in it now.
    pub fn new(file: PathBuf, learn: LearnSecret) -> Self {
        let watch = Self { file, learn, seen: Mutex::new(None) };
        watch.look();
        watch
    }

    /// Tells of the token if another one stands there since. Costs one question to the file system.
    pub fn look(&self) {
        let now = stamp(&self.file);
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if now.is_none() || *seen == now {
            return;
        }
        // What cannot be read is told to whoever needs it.
        if let Ok(Some(stored)) = load(&self.file)
            && let Ok(token) = Token::parse(&stored.token)
        {
            learn_token(&token, &self.learn);
            *seen = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::store::{TokenConfig, TokenStore};

    #[test]
    fn each_token_that_stands_there_is_told_of() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("supr.json");
        let told = Arc::new(Mutex::new(Vec::new()));
        let listener = Arc::clone(&told);
        let learn: LearnSecret = Arc::new(move |secret| listener.lock().unwrap().push(secret.to_owned()));
        let watch = TokenWatch::new(file.clone(), learn);
        assert!(told.lock().unwrap().is_empty() && !file.exists());
        let chance = crate::system_chance();
        let store = TokenStore::open(file, TokenConfig::default(), chance).unwrap();
        let is_told = || told.lock().unwrap().contains(&store.now().token.reveal().to_owned());
        watch.look();
        assert!(is_told());
        store.rotate().unwrap();
        assert!(!is_told());
        watch.look();
        assert!(is_told());
        // The token and two cookies, twice; nothing is told again.
        watch.look();
        assert_eq!(told.lock().unwrap().len(), 6);
    }
}
