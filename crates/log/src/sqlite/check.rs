//! Whether a database is intact and can be written.

use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension};

use super::fault::fault;
use super::open_files::OpenFiles;
use super::schema::connect;
use super::work::{RECORD, record_from};
use crate::LogError;

/// How long opening a log may take to look for damage, beside the header and the schema, which are always read. With
/// the file in memory that is enough for some 15 MiB, and few notice it when a command starts.
pub const OPEN_CHECK_WAIT: Duration = Duration::from_millis(20);

/// With less room than this on its disk a log does not count as writable: one that is nearly full takes small
/// events and refuses others.
pub const LEAST_FREE_BYTES: u64 = 4 << 20;

/// What looking for damage has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Checked {
    /// None.
    Intact,
    /// Some, which SQLite describes so.
    Damaged(String),
    /// None so far; there was no time for the rest.
    Unfinished,
}

/// Looks for damage in the database of a state folder for as long as `wait`, and changes nothing.
pub fn check_database(database: &Path, wait: Option<Duration>) -> Result<Checked, LogError> {
    let failed = |error| fault(database, error);
    let open = || {
        let connection = Connection::open_with_flags(database, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        connection.busy_timeout(super::BUSY_WAIT)?;
        // What is damaged is left as it is, also by whoever looks at it last.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        Ok(connection)
    };
    let checked = open().map_err(failed).and_then(|connection| check(&connection, database, wait));
    match checked {
        Err(LogError::Damaged { found, .. }) => Ok(Checked::Damaged(found)),
        checked => checked,
    }
}

/// Looks for damage for as long as `wait`, or to the end.
pub(super) fn check(
    connection: &Connection,
    database: &Path,
    wait: Option<Duration>,
) -> Result<Checked, LogError> {
    let stop = connection.get_interrupt_handle();
    let (done, waiting) = sync_channel::<()>(1);
    let watch = wait.map(|wait| {
        thread::spawn(move || {
            if waiting.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
                stop.interrupt();
            }
        })
    });
    let found: rusqlite::Result<String> = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0));
    drop(done);
    if let Some(watch) = watch {
        // It has nothing to say.
        let _ = watch.join();
    }
    match found {
        Ok(found) if found == "ok" => Ok(Checked::Intact),
        Ok(found) => Ok(Checked::Damaged(found)),
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::OperationInterrupted) => {
            Ok(Checked::Unfinished)
        }
        Err(error) => Err(fault(database, error)),
    }
}

/// Whether the log could be opened and written by a process that starts now. If `writes`, a small write is tried.
pub(super) fn probe(files: &OpenFiles, writes: bool) -> Result<(), LogError> {
    let database = files.database();
    files.verify()?;
    if let Ok(stats) = rustix::fs::statvfs(database) {
        let free = stats.f_bavail.saturating_mul(stats.f_frsize);
        if stats.f_blocks > 0 && free < LEAST_FREE_BYTES {
            return Err(LogError::Full { path: database.to_owned() });
        }
    }
    let look = || {
        // A new connection: the others know the header, the schema and much else by heart.
        let connection = connect(database)?;
        let last = format!("SELECT {RECORD} FROM sessions AS s ORDER BY s.updated DESC, s.id DESC LIMIT 1");
        connection.query_row(&last, [], record_from).optional()?;
        let format: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
        if writes {
            connection.execute_batch("BEGIN IMMEDIATE")?;
            connection.pragma_update(None, "user_version", format)?;
            connection.execute_batch("COMMIT")?;
        }
        Ok(())
    };
    look().map_err(|error| {
        let error = fault(database, error);
        files.heard_of(&error);
        error
    })
}
