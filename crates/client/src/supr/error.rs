//! The errors of the supr client.

/// Why the client of a session failed.
#[derive(Debug, thiserror::Error)]
pub enum SuprError {
    /// The address in the settings is not that of a WebSocket, or the token cannot be sent.
    #[error("{url:?} is no address of a WebSocket: {reason}")]
    Address {
        /// The address from the settings.
        url: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The server refused the connection; another try would have the same result.
    #[error("the server refuses: {status} {text}")]
    Refused {
        /// The HTTP status, such as 401 if the token is wrong.
        status: u16,
        /// The body of the server's answer.
        text: String,
    },
    /// The server cannot be reached, after all retries.
    #[error("the server cannot be reached: {0}")]
    Unreachable(String),
    /// Another client has connected to the session; a new connection would disconnect that client.
    #[error("the session was taken over by another connection")]
    Replaced,
    /// Too many messages are unconfirmed. Call [`next`](super::SuprClient::next) to receive confirmations.
    #[error(
        "{limit} messages are sent and not confirmed by the server; wait for its events before sending more"
    )]
    Backlog {
        /// How many messages are unconfirmed.
        limit: usize,
    },
}
