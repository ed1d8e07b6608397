//! The secrets of a state folder, taken out of whatever is recorded, shown or logged: keys and logins of providers, and
//! what lets clients in.
//!
//! The two are groups of one redactor. A group forgets the oldest of too many secrets, and whoever makes one token after
//! another must not make it forget a key.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

use parlor_auth::{Redactor, Secret};
use parlor_engine::Redact;
use parlor_web::{LearnSecret, TokenWatch};

use crate::environment::Environment;
use crate::settings::Config;
use crate::token;

/// Takes all secrets of a state folder out of texts. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Redaction {
    /// Knows the keys too, and learns what lets clients in.
    doors: Redactor,
    /// The token may be replaced by another process at any time.
    watch: Arc<TokenWatch>,
}

impl Redaction {
    /// For the state folder `home`, whose keys `keys` knows.
    pub(crate) fn new(home: &Path, config: &Config, environment: &Environment, keys: &Redactor) -> Self {
        let doors = keys.new_group();
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
        Self { doors, watch }
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
        self.doors.redact(text)
    }

    fn sift<'t>(&self, text: &'t str) -> (Cow<'t, str>, usize) {
        self.watch.look();
        self.doors.sift(text)
    }

    fn finds(&self, bytes: &[u8]) -> bool {
        self.watch.look();
        self.doors.finds(bytes)
    }
}

#[cfg(test)]
mod tests;
