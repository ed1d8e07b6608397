//! Translates errors of PostgreSQL into [`LogError`].

use std::error::Error as _;
use std::time::Duration;

use tokio_postgres::error::SqlState;

use super::connect::CONNECT_WAIT;
use crate::LogError;

/// Why a statement or an attempt to connect failed.
#[derive(Debug)]
pub(super) enum DbError {
    /// The driver or the server reports it.
    Reported(tokio_postgres::Error),
    /// A host did not answer in time.
    Silent { host: String },
}

impl DbError {
    /// The server's code for the error. `None` if the server is not its origin.
    pub(super) fn code(&self) -> Option<&SqlState> {
        match self {
            Self::Reported(error) => error.code(),
            Self::Silent { .. } => None,
        }
    }
}

impl From<tokio_postgres::Error> for DbError {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Reported(error)
    }
}

/// What a failed statement means for the one who sent it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The connection is of no use any more. The statement may have been committed, and may still be.
    Disconnected,
    /// The server rolled the statement back because of another transaction, and it can be repeated.
    RolledBack,
    /// The server refused the statement.
    Refused,
}

/// Says what the error of a statement means.
pub(super) fn classify(error: &DbError) -> Failure {
    let DbError::Reported(error) = error else { return Failure::Disconnected };
    let Some(code) = error.code() else {
        // Errors without a code come from the connection, but for a value that cannot be encoded or decoded.
        let is_local = error.source().is_some_and(|source| source.is::<tokio_postgres::types::WrongType>());
        return if is_local { Failure::Refused } else { Failure::Disconnected };
    };
    let is_rolled_back = [
        &SqlState::T_R_DEADLOCK_DETECTED,
        &SqlState::T_R_SERIALIZATION_FAILURE,
        &SqlState::LOCK_NOT_AVAILABLE,
        &SqlState::QUERY_CANCELED,
    ];
    if is_rolled_back.contains(&code) {
        return Failure::RolledBack;
    }
    // A server that was demoted to a standby is read-only; the next connection finds the new primary.
    let is_gone = [
        &SqlState::ADMIN_SHUTDOWN,
        &SqlState::CRASH_SHUTDOWN,
        &SqlState::CANNOT_CONNECT_NOW,
        &SqlState::IDLE_SESSION_TIMEOUT,
        &SqlState::READ_ONLY_SQL_TRANSACTION,
        &SqlState::TOO_MANY_CONNECTIONS,
    ];
    let is_connection = code.code().starts_with("08");
    if is_connection || is_gone.contains(&code) { Failure::Disconnected } else { Failure::Refused }
}

/// The [`LogError`] for an error of the server `store`. `retry` is for callers that find the server unavailable.
pub(super) fn log_error(store: &str, retry: Duration, source: DbError) -> LogError {
    let store = store.to_owned();
    match source.code() {
        Some(&SqlState::DISK_FULL) => LogError::Full { store },
        Some(&SqlState::READ_ONLY_SQL_TRANSACTION) => LogError::ReadOnly { store },
        Some(_) | None => match classify(&source) {
            Failure::Disconnected | Failure::RolledBack => {
                LogError::Unavailable { retry, reason: describe(&source) }
            }
            Failure::Refused => LogError::Database { store, source: describe(&source).into() },
        },
    }
}

/// The error with its causes.
pub(super) fn describe(error: &DbError) -> String {
    match error {
        DbError::Reported(error) => describe_reported(error),
        DbError::Silent { host } => format!("{host} did not answer within {CONNECT_WAIT:?}"),
    }
}

/// The driver's error with its causes. Its own text says no more than `db error`.
pub(super) fn describe_reported(error: &tokio_postgres::Error) -> String {
    if let Some(error) = error.as_db_error() {
        return format!("{} ({})", error.message(), error.code().code());
    }
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
