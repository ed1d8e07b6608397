//! Learns the token of the state folder, so that processes which never use it can redact it. Makes no token.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use super::token::Token;
use super::token_store::{FileVersion, LearnSecret, file_version, learn_token, load};

/// Reads the file of a [`TokenStore`](crate::TokenStore) and passes on each token that it finds there.
pub struct TokenWatch {
    file: PathBuf,
    learn: LearnSecret,
    /// The version of the file that was read last.
    seen: Mutex<Option<FileVersion>>,
}

impl TokenWatch {
    /// Watches `file`, which need not exist, and passes the token in it to `learn`.
    pub fn new(file: PathBuf, learn: LearnSecret) -> Self {
        let watch = Self { file, learn, seen: Mutex::new(None) };
        watch.refresh();
        watch
    }

    /// Passes the token on if the file has changed. Costs one `stat` if it has not.
    pub fn refresh(&self) {
        let now = file_version(&self.file);
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if now.is_none() || *seen == now {
            return;
        }
        // A file that cannot be read is left to `TokenStore`, which reports it.
        if let Ok(Some(stored)) = load(&self.file)
            && let Ok(token) = Token::parse(&stored.token)
        {
            learn_token(&token, stored.sign_outs, &self.learn);
            *seen = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::auth::token_store::{TokenConfig, TokenStore};

    #[test]
    fn each_token_in_the_file_is_passed_on_once() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("supr.json");
        let learned = Arc::new(Mutex::new(Vec::new()));
        let list = Arc::clone(&learned);
        let learn: LearnSecret = Arc::new(move |secret| list.lock().unwrap().push(secret.to_owned()));
        let watch = TokenWatch::new(file.clone(), learn);
        assert!(learned.lock().unwrap().is_empty() && !file.exists());
        let random = crate::system_random();
        let store = TokenStore::open(file, TokenConfig::default(), random).unwrap();
        let is_learned = || learned.lock().unwrap().contains(&store.now().token.reveal().to_owned());
        watch.refresh();
        assert!(is_learned());
        store.rotate().unwrap();
        assert!(!is_learned());
        watch.refresh();
        assert!(is_learned());
        // Two tokens with three cookies each; none of them is passed on twice.
        watch.refresh();
        assert_eq!(learned.lock().unwrap().len(), 8);
    }
}
