//! Translates errors of SQLite into [`LogError`].

use std::path::Path;

use rusqlite::{Error, ErrorCode, ffi};

use crate::LogError;

/// The [`LogError`] for an error of SQLite on the database at `path`.
pub(super) fn db_error(path: &Path, source: Error) -> LogError {
    let store = path.display().to_string();
    let Some(failure) = source.sqlite_error() else {
        return LogError::Database { store, source: source.into() };
    };
    // SQLite reports a full disk in another way when it enlarges the index of the write-ahead log.
    if failure.extended_code == ffi::SQLITE_IOERR_SHMSIZE || failure.code == ErrorCode::DiskFull {
        return LogError::Full { store };
    }
    if matches!(failure.code, ErrorCode::ReadOnly | ErrorCode::PermissionDenied) {
        return LogError::ReadOnly { store };
    }
    if matches!(failure.code, ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) {
        return LogError::Busy;
    }
    if matches!(failure.code, ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) {
        return LogError::Damaged { path: path.to_owned(), found: source.to_string() };
    }
    LogError::Database { store, source: source.into() }
}
