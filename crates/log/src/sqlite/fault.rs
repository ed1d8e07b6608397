//! What the database says, in our words.

use std::path::Path;

use rusqlite::{Error, ErrorCode, ffi};

use crate::LogError;

/// The failure of a statement on the database at `path`.
pub(super) fn fault(path: &Path, source: Error) -> LogError {
    let path = path.to_owned();
    let Some(failure) = source.sqlite_error() else { return LogError::Database { path, source } };
    // The index of the write-ahead log is the one file that SQLite makes larger by another call.
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
