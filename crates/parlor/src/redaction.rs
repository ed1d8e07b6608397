//! The secrets of a state folder, taken out of whatever is recorded, shown or logged: keys and logins of providers, and
//! what lets clients in.
//!
//! The two are kept apart. A redactor forgets the oldest of too many secrets, and whoever makes one token after another
//! must not make it forget a key.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

use parlor_auth::{Redactor, Secret};
use parlor_engine::Redact;
use parlor_host::web::{LearnSecret, TokenWatch};

use crate::environment::Environment;
use crate::settings::Config;
use crate::token;

/// Takes all secrets of a state folder out of texts. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Redaction {
    keys: Redactor,
    doors: Redactor,
    /// The token may be replaced by another process at any time.
    watch: Arc<TokenWatch>,
}

impl Redaction {
    /// For the state folder `home`, whose keys `keys` knows.
    pub(crate) fn new(home: &Path, config: &Config, environment: &Environment, keys: Redactor) -> Self {
        let doors = Redactor::new();
        let configured = config.supr.token.as_ref().map(|token| token.reveal());
        let set = [
            &environment.supr.token,
            &environment.supex.token,
            &config.supex.token,
            &config.supex.upstream_token,
        ];
        for secret in configured.into_iter().chain(set.into_iter().flatten().map(String::as_str)) {
            doors.learn(&Secret::new(secret));
        }
        let watch = Arc::new(TokenWatch::new(home.join(token::FILE), learner(&doors)));
        Self { keys, doors, watch }
    }

    /// Is told what else lets clients in.
    pub(crate) fn learner(&self) -> LearnSecret {
        learner(&self.doors)
    }
}

fn learner(doors: &Redactor) -> LearnSecret {
    let doors = doors.clone();
    Arc::new(move |secret| doors.learn(&Secret::new(secret)))
}

impl Redact for Redaction {
    fn redact<'t>(&self, text: &'t str) -> Cow<'t, str> {
        self.watch.look();
        match self.keys.redact(text) {
            Cow::Borrowed(text) => self.doors.redact(text),
            Cow::Owned(text) => Cow::Owned(self.doors.redact(&text).into_owned()),
        }
    }

    fn held(&self, text: &str) -> usize {
        self.keys.held(text).max(self.doors.held(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::supr::SuprConfig;

    #[test]
    fn tokens_old_and_new_and_keys_are_taken_out() {
        let folder = tempfile::tempdir().unwrap();
        let keys = Redactor::new();
        keys.learn(&Secret::new("sk-key-of-a-provider"));
        let redaction = Redaction::new(folder.path(), &Config::default(), &Environment::read(), keys);
        // Another process makes the tokens.
        let store = token::store(folder.path(), &SuprConfig::default()).unwrap();
        let old = store.now().token.clone();
        assert_eq!(redaction.redact(old.reveal()), "[secret]");
        for _ in 0..parlor_auth::MAX_REDACTED {
            let new = store.rotate().unwrap().token.clone();
            assert_eq!(redaction.redact(&format!("is {} it", new.reveal())), "is [secret] it");
        }
        let both = format!("sk-key-of-a-provider {}", store.now().token.reveal());
        assert_eq!(redaction.redact(&both), "[secret] [secret]", "however many tokens there were");
        assert_eq!(redaction.held("text sk-key"), 6);
    }

    #[test]
    fn what_a_door_gives_out_is_taken_out() {
        let folder = tempfile::tempdir().unwrap();
        let redaction =
            Redaction::new(folder.path(), &Config::default(), &Environment::read(), Redactor::new());
        redaction.learner()("code-of-a-one-time-link");
        assert_eq!(redaction.redact("/#code=code-of-a-one-time-link"), "/#code=[secret]");
    }
}
