//! What can go wrong with a session.

/// Why a client cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum SuprError {
    /// The address is none.
    #[error("{url:?} is no address of a WebSocket: {reason}")]
    Address {
        /// What was given.
        url: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The server does not let us in; trying again changes nothing.
    #[error("the server refuses: {status} {text}")]
    Refused {
        /// The status of HTTP, such as 401 where the token is wrong.
        status: u16,
        /// What the server says about it.
        text: String,
    },
    /// The server cannot be reached, however often it is tried.
    #[error("the server cannot be reached: {0}")]
    Unreachable(String),
    /// Somebody else took the session over; trying again would take it back.
    #[error("the session was taken over by another connection")]
    Replaced,
    /// Too much is on its way.
    #[error("{limit} messages are on their way without a sign of their arrival")]
    Backlog {
        /// How many may be.
        limit: usize,
    },
}
