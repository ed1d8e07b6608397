//! The settings of a supr client.

use std::fmt;
use std::time::Duration;

use super::SILENCE;

/// Where the server is, and which session to connect to.
#[derive(Clone, PartialEq, Eq)]
pub struct SuprSettings {
    /// The address of the socket, such as `ws://127.0.0.1:18790/supr/ws`, without a query.
    pub url: String,
    /// The server's token. `Debug` leaves it out.
    pub token: String,
    /// The name of the session; a new random one if None.
    pub session: Option<String>,
    /// The id of the last event that the caller has: the client begins with the events after it. With an empty text, it
    /// begins with the session's first event; with None, with new events.
    pub after: Option<String>,
    /// Whether to send texts while the model writes them. Only parlor knows this option.
    pub streams: bool,
    /// How long the server may send nothing before the connection counts as lost.
    pub silence: Duration,
    /// How many failed tries to reconnect are followed by another.
    pub retries: u32,
}

impl SuprSettings {
    /// Settings for a new session of the server at `url`.
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

    /// Sets the name of the session.
    #[must_use]
    pub fn with_session(mut self, session: impl Into<String>) -> Self {
        self.session = Some(session.into());
        self
    }
}

/// Leaves out the token, which is a secret.
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
