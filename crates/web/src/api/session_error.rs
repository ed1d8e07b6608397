//! Why a request about sessions fails, and its HTTP status.

use axum::http::StatusCode;
use axum::response::Response;
use parlor_vocab::SessionRefusal;

use crate::response::text;

/// Why the API cannot do what a client asks of a session or a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SessionApiError {
    /// There is no session or file with that id: status 404.
    Unknown,
    /// No changes of the run are kept: status 404.
    NoChanges(String),
    /// The request itself is wrong: status 400.
    Invalid(String),
    /// A run, another process or a full queue is in the way: status 409.
    Busy(String),
    /// The process that has the session open does not reply: status 504.
    NoReply(String),
    /// Too many requests wait for the process that has the session open: status 503.
    Overloaded(String),
    /// The log or the disk failed: status 500.
    Failed(String),
}

impl SessionApiError {
    pub(crate) fn response(self) -> Response {
        match self {
            Self::Unknown => text(StatusCode::NOT_FOUND, "session not found"),
            Self::NoChanges(reason) => text(StatusCode::NOT_FOUND, &reason),
            Self::Invalid(reason) => text(StatusCode::BAD_REQUEST, &reason),
            Self::Busy(reason) => text(StatusCode::CONFLICT, &reason),
            Self::NoReply(reason) => text(StatusCode::GATEWAY_TIMEOUT, &reason),
            Self::Overloaded(reason) => text(StatusCode::SERVICE_UNAVAILABLE, &reason),
            Self::Failed(reason) => {
                tracing::warn!(reason, "a request about sessions failed");
                text(StatusCode::INTERNAL_SERVER_ERROR, &reason)
            }
        }
    }
}

impl From<SessionRefusal> for SessionApiError {
    fn from(refusal: SessionRefusal) -> Self {
        if matches!(refusal, SessionRefusal::UnknownSession(_)) {
            return Self::Unknown;
        }
        if matches!(
            refusal,
            SessionRefusal::KeyTooLong { .. }
                | SessionRefusal::TitleTooLong { .. }
                | SessionRefusal::TitleBlank
        ) {
            return Self::Invalid(refusal.to_string());
        }
        if matches!(refusal, SessionRefusal::OwnerSilent { .. }) {
            return Self::NoReply(refusal.to_string());
        }
        if matches!(
            refusal,
            SessionRefusal::TooManyRequests { .. } | SessionRefusal::TooManyQueuedBytes { .. }
        ) {
            return Self::Overloaded(refusal.to_string());
        }
        if matches!(
            refusal,
            SessionRefusal::Busy { .. }
                | SessionRefusal::SessionHeld { .. }
                | SessionRefusal::NoNode { .. }
                | SessionRefusal::QueueFull { .. }
                | SessionRefusal::Compacting
                | SessionRefusal::BackgroundProcesses
        ) {
            return Self::Busy(refusal.to_string());
        }
        Self::Failed(refusal.to_string())
    }
}
