//! Where a server is, and what it takes to be let in.

use std::fmt;
use std::time::Duration;

use super::SILENCE;

/// How to reach a session.
#[derive(Clone, PartialEq, Eq)]
pub struct SuprSettings {
    /// The address of the socket, such as `ws://127.0.0.1:18790/supr/ws`, without a query.
    pub url: String,
    /// What clients must know. Never shown.
    pub token: String,
    /// The session; a new one if there is none.
    pub session: Option<String>,
    /// The last event that was seen of it: what came later is told first. Everything, if it is empty.
    pub after: Option<String>,
    /// Whether texts are wanted as they are written. Servers other than parlor do not know this.
    pub streams: bool,
    /// How long the server may say nothing before the connection is taken for lost.
    pub silence: Duration,
    /// How often a lost connection is opened again without success before it is given up.
    pub retries: u32,
}

impl SuprSettings {
    /// A new session at this address.
    pub fn new(url: impl Into<String>, token: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            token: token.into(),
            session: None,
            after: None,
            streams: false,
            silence: SILENCE,
            retries: 10,
        }
    }

    /// The same, for a session that has a name.
    #[must_use]
    pub fn with_session(mut self, session: impl Into<String>) -> Self {
        self.session = Some(session.into());
        self
    }
}

/// The token is a secret.
impl fmt::Debug for SuprSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SuprSettings")
            .field("url", &self.url)
            .field("session", &self.session)
            .field("after", &self.after)
            .field("streams", &self.streams)
            .finish_non_exhaustive()
    }
}
