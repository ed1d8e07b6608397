//! Translates errors of SQLite into [`LogError`].

use std::path::Path;

use rusqlite::{Error, ErrorCode, ffi};

use crate::LogError;

/// The [`LogError`] for an error of SQLite on the database at `path`.
pub(super) fn db_error(path: &Path, source: Error) -> LogError {
    let path = path.to_owned();
    let Some(failure) = source.sqlite_error() else { return LogError::Database { path, source } };
    // SQLite reports a full disk in another way when it enlarges the index of the write-ahead log.
    if failure.extended_code == ffi::SQLITE_IOERR_SHMSIZE || failure.code == ErrorCode::DiskFull {
        return LogError::Full { path };
    }
    if matches!(failure.code, ErrorCode::ReadOnly | ErrorCode::PermissionDenied) {
        return LogError::ReadOnly { path };
    }
    if matches!(failure.code, ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) {
        return LogError::Busy;
    }
    if matches!(failure.code, ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) {
        return LogError::Damaged { path, found: source.to_string() };
    }
    LogError::Database { path, source }
}
