//! Removes the secrets of a state folder from all text that is recorded, shown or logged: keys and logins of providers,
//! and the tokens and one-time codes of clients.
//!
//! These are groups of one redactor. A group drops its oldest secret when it is full, so tokens of clients have a group of
//! their own, and so does each login: rotating a token often must not make the redactor forget a key.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

use parlor_auth::{Redactor, Secret};
use parlor_engine::Redact;
use parlor_web::{LearnSecret, TokenWatch};

use crate::environment::Environment;
use crate::event_log;
use crate::peer_door;
use crate::settings::Config;
use crate::token;

/// A value in `[mcp.NAME]` counts as a secret from this length on: variables have short values such as `1` too.
const MIN_VALUE_BYTES: usize = 8;

/// Removes all secrets of a state folder from texts. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Redaction {
    /// Knows the provider keys, and learns the credentials of clients.
    redactor: Redactor,
    /// Learns each new token, because another process may replace the token at any time.
    token_watch: Arc<TokenWatch>,
}

impl Redaction {
    /// For the state folder `home`. `key_redactor` already knows the provider keys.
    pub(crate) fn new(
        home: &Path,
        config: &Config,
        environment: &Environment,
        key_redactor: &Redactor,
    ) -> Self {
        let redactor = key_redactor.new_group();
        let token_watch = Arc::new(TokenWatch::new(home.join(token::FILE), learner(&redactor)));
        let redaction = Self { redactor, token_watch };
        redaction.learn_settings(config, environment);
        redaction
    }

    /// Adds the tokens and passwords of the settings and of the variables.
    pub(crate) fn learn_settings(&self, config: &Config, environment: &Environment) {
        let redactor = &self.redactor;
        let configured = config.supr.token.as_ref().map(|token| token.reveal());
        let other_tokens = [
            &environment.supr.token,
            &environment.supex.token,
            &config.supex.token,
            &config.supex.upstream_token,
        ];
        for secret in configured.into_iter().chain(other_tokens.into_iter().flatten().map(String::as_str)) {
            redactor.learn(&Secret::new(secret));
        }
        let file_or_variable = event_log::password(&config.log).ok().flatten();
        let cluster_secret = peer_door::configured_secret(&config.cluster).ok().flatten();
        let secrets = config.log.password_in_url().into_iter().chain(file_or_variable).chain(cluster_secret);
        for password in secrets {
            redactor.learn(&Secret::new(&password));
        }
        let is_long = |secret: &String| secret.len() >= MIN_VALUE_BYTES;
        let variable = |name: &str| environment.variable(name);
        for secret in config.mcp.values().flat_map(|server| server.secrets(variable)).filter(is_long) {
            redactor.learn(&Secret::new(secret));
        }
    }

    /// A callback that adds further client credentials, such as one-time codes.
    pub(crate) fn learner(&self) -> LearnSecret {
        learner(&self.redactor)
    }

    /// The same for a further source of secrets, which never displace those of others.
    pub(crate) fn new_learner(&self) -> LearnSecret {
        learner(&self.redactor.new_group())
    }
}

fn learner(redactor: &Redactor) -> LearnSecret {
    let redactor = redactor.clone();
    Arc::new(move |secret| redactor.learn(&Secret::new(secret)))
}

impl Redact for Redaction {
    fn redact<'t>(&self, text: &'t str) -> Cow<'t, str> {
        self.token_watch.refresh();
        self.redactor.redact(text)
    }

    fn redact_prefix<'t>(&self, text: &'t str) -> (Cow<'t, str>, usize) {
        self.token_watch.refresh();
        self.redactor.redact_prefix(text)
    }

    fn contains_secret(&self, bytes: &[u8]) -> bool {
        self.token_watch.refresh();
        self.redactor.contains_secret(bytes)
    }
}

#[cfg(test)]
mod tests;
