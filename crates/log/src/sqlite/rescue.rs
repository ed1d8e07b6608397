//! Rescues acknowledged events after somebody removed or replaced the database files.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use parlor_vocab::Timestamp;
use rusqlite::Connection;

use super::open_files::{EventLocation, OpenFiles, sibling};

/// How many file names to try for a copy.
const MAX_NAMES: u32 = 100;

/// Writes the events that were acknowledged before the files of `connection` were replaced to a file, and logs where they
/// are. May copy the whole database.
pub(super) fn rescue(connection: &Connection, files: &OpenFiles, now: Timestamp) {
    match files.event_location() {
        EventLocation::Database => match checkpoint(connection) {
            Ok(true) => tracing::warn!(
                path = %files.database().display(),
                "a file beside the database was removed; the database now has all acknowledged events"
            ),
            outcome @ (Ok(false) | Err(_)) => tracing::error!(
                path = %files.database().display(),
                error = outcome.err().map(tracing::field::display),
                "a file beside the database was removed; the last acknowledged events may be lost"
            ),
        },
        EventLocation::UnnamedFiles => match copy(connection, files.database(), now) {
            Ok(path) => tracing::warn!(
                path = %path.display(),
                "the database was removed or replaced; this copy has all events that were acknowledged before"
            ),
            Err(error) => tracing::error!(
                path = %files.database().display(),
                %error,
                "the database was removed or replaced; the events that were acknowledged before could not be copied"
            ),
        },
    }
}

/// Copies the write-ahead log into the database. Returns whether all of it was copied.
fn checkpoint(connection: &Connection) -> rusqlite::Result<bool> {
    connection
        .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i64>(0))
        .map(|busy| busy == 0)
}

/// Copies the database to a new file next to it.
fn copy(connection: &Connection, database: &Path, now: Timestamp) -> Result<PathBuf, String> {
    let copy = create_dated(database, "saved", now, |path| {
        // SQLite accepts an empty file as a new database. Created here, because SQLite would not make it private.
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map(|_| ())
    });
    let copy = copy.map_err(|error| error.to_string())?;
    let done = connection.execute("VACUUM INTO ?1", [&*copy.to_string_lossy()]);
    done.map(|_| copy.clone()).map_err(|error| {
        // Do not leave an incomplete copy behind.
        let _ = std::fs::remove_file(&copy);
        error.to_string()
    })
}

/// Creates a file next to the database with a purpose and a time in its name, such as
/// `parlor.db.saved-20261116T225514`.
pub(super) fn create_dated(
    database: &Path,
    purpose: &str,
    now: Timestamp,
    create: impl Fn(&Path) -> std::io::Result<()>,
) -> std::io::Result<PathBuf> {
    let time: String = now.rfc3339().chars().filter(char::is_ascii_alphanumeric).take(15).collect();
    for number in 1..MAX_NAMES {
        let suffix = if number > 1 { format!("-{number}") } else { String::new() };
        let path = sibling(database, &format!(".{purpose}-{time}{suffix}"));
        match create(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            made => return made.map(|()| path),
        }
    }
    Err(std::io::ErrorKind::AlreadyExists.into())
}
