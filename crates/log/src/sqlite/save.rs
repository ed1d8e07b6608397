//! What can be done for acknowledged events when the files that hold them were taken away.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use parlor_vocab::Timestamp;
use rusqlite::Connection;

use super::open_files::{OpenFiles, Whereabouts, beside};

/// How many names are tried for a file before it is given up.
const NAMES: u32 = 100;

/// Keeps what was acknowledged before the files of `connection` were replaced, if it can be kept, and says in the
/// journal where it is. Takes as long as copying the database takes.
pub(super) fn save(connection: &Connection, files: &OpenFiles, now: Timestamp) {
    match files.whereabouts() {
        Whereabouts::Database => match checkpoint(connection) {
            Ok(true) => tracing::warn!(
                path = %files.database().display(),
                "a file beside the database was removed; all that was acknowledged before is in the database"
            ),
            outcome @ (Ok(false) | Err(_)) => tracing::error!(
                path = %files.database().display(),
                error = outcome.err().map(tracing::field::display),
                "a file beside the database was removed; what was acknowledged last may be lost"
            ),
        },
        Whereabouts::Nameless => match copy(connection, files.database(), now) {
            Ok(path) => tracing::warn!(
                path = %path.display(),
                "the database was removed or replaced; all that was acknowledged before is in this copy"
            ),
            Err(error) => tracing::error!(
                path = %files.database().display(),
                %error,
                "the database was removed or replaced; what was acknowledged before could not be copied"
            ),
        },
    }
}

/// Whether all of the write-ahead log is in the database now.
fn checkpoint(connection: &Connection) -> rusqlite::Result<bool> {
    connection
        .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i64>(0))
        .map(|busy| busy == 0)
}

/// Copies the database to a new file beside it.
fn copy(connection: &Connection, database: &Path, now: Timestamp) -> Result<PathBuf, String> {
    let copy = dated(database, "saved", now, |path| {
        // SQLite takes an empty file for a new one, and would not make a private one itself.
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map(|_| ())
    });
    let copy = copy.map_err(|error| error.to_string())?;
    let done = connection.execute("VACUUM INTO ?1", [&*copy.to_string_lossy()]);
    done.map(|_| copy.clone()).map_err(|error| {
        // Half a copy is worse than none.
        let _ = std::fs::remove_file(&copy);
        error.to_string()
    })
}

/// Makes a file beside the database that says in its name what it is and of when, such as
/// `parlor.db.saved-20261116T225514`.
pub(super) fn dated(
    database: &Path,
    what: &str,
    now: Timestamp,
    make: impl Fn(&Path) -> std::io::Result<()>,
) -> std::io::Result<PathBuf> {
    let time: String = now.rfc3339().chars().filter(char::is_ascii_alphanumeric).take(15).collect();
    for number in 1..NAMES {
        let again = if number > 1 { format!("-{number}") } else { String::new() };
        let path = beside(database, &format!(".{what}-{time}{again}"));
        match make(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            made => return made.map(|()| path),
        }
    }
    Err(std::io::ErrorKind::AlreadyExists.into())
}
