//! Checks whether a database is intact and can be written.

use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension};

use super::db_error::db_error;
use super::open_files::OpenFiles;
use super::request::{RECORD_COLUMNS, record_from};
use super::schema::connect;
use crate::LogError;

/// How long opening a log may look for damage, in addition to reading the header and the schema. If the file is in the
/// page cache, that is enough for about 15 MiB, and users do not notice it when a command starts.
pub const OPEN_CHECK_WAIT: Duration = Duration::from_millis(20);

/// With less free space on its disk, a log counts as not writable: on a nearly full disk, small events fit and others do
/// not.
pub const LEAST_FREE_BYTES: u64 = 4 << 20;

/// The result of looking for damage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DamageCheck {
    /// No damage was found.
    Intact,
    /// Damage was found; the text is SQLite's description.
    Damaged(String),
    /// No damage was found within the time limit, and part of the database was not read.
    Unfinished,
}

/// Looks for damage in a database, for at most `wait` if given. Changes nothing.
pub fn check_database(database: &Path, wait: Option<Duration>) -> Result<DamageCheck, LogError> {
    let failed = |error| db_error(database, error);
    let open = || {
        let connection = Connection::open_with_flags(database, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        connection.busy_timeout(super::BUSY_WAIT)?;
        // Do not change a damaged file: no checkpoint when the last connection closes.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        Ok(connection)
    };
    let checked = open().map_err(failed).and_then(|connection| check(&connection, database, wait));
    match checked {
        Err(LogError::Damaged { found, .. }) => Ok(DamageCheck::Damaged(found)),
        checked => checked,
    }
}

/// Looks for damage, for at most `wait` if given.
pub(super) fn check(
    connection: &Connection,
    database: &Path,
    wait: Option<Duration>,
) -> Result<DamageCheck, LogError> {
    let interrupt = connection.get_interrupt_handle();
    let (finished, is_finished) = sync_channel::<()>(1);
    let timer = wait.map(|wait| {
        thread::spawn(move || {
            if is_finished.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
                interrupt.interrupt();
            }
        })
    });
    let found: rusqlite::Result<String> = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0));
    drop(finished);
    if let Some(timer) = timer {
        // The thread returns nothing and does not panic.
        let _ = timer.join();
    }
    match found {
        Ok(found) if found == "ok" => Ok(DamageCheck::Intact),
        Ok(found) => Ok(DamageCheck::Damaged(found)),
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::OperationInterrupted) => {
            Ok(DamageCheck::Unfinished)
        }
        Err(error) => Err(db_error(database, error)),
    }
}

/// Checks whether a process that starts now could open and write the log. If `try_write`, tries a small write.
pub(super) fn probe(files: &OpenFiles, try_write: bool) -> Result<(), LogError> {
    let database = files.database();
    files.verify()?;
    if let Ok(stats) = rustix::fs::statvfs(database) {
        let free = stats.f_bavail.saturating_mul(stats.f_frsize);
        if stats.f_blocks > 0 && free < LEAST_FREE_BYTES {
            return Err(LogError::Full { store: database.display().to_string() });
        }
    }
    let read_and_write = || {
        // A new connection, because existing ones have the header and the schema in their caches.
        let connection = connect(database)?;
        let last =
            format!("SELECT {RECORD_COLUMNS} FROM sessions AS s ORDER BY s.updated DESC, s.id DESC LIMIT 1");
        connection.query_row(&last, [], record_from).optional()?;
        let format: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
        if try_write {
            connection.execute_batch("BEGIN IMMEDIATE")?;
            connection.pragma_update(None, "user_version", format)?;
            connection.execute_batch("COMMIT")?;
        }
        Ok(())
    };
    read_and_write().map_err(|error| {
        let error = db_error(database, error);
        files.note_error(&error);
        error
    })
}
