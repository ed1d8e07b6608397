//! The database file: where it is, how it is opened, and what is in it.

use std::fs::{DirBuilder, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use super::check::{Checked, check};
use super::fault::fault;
use super::open_files::{OpenFiles, Unopened};
use super::{BUSY_WAIT, Files, holder};
use crate::LogError;

/// One step for each format, from the one before. A released step is never changed.
const STEPS: &[&str] = &[include_str!("format_1.sql"), include_str!("format_2.sql")];

/// The size to which the write-ahead log is cut after it has been larger.
const WAL_BYTES: i64 = 16 << 20;

/// How long to wait before trying again to get at the database.
const BUSY_STEP: Duration = Duration::from_millis(1);

/// The connection that writes, to a database of the newest format in which no damage was found within `wait`.
pub(super) fn open(home: &Path, files: &Files, wait: Duration) -> Result<(Connection, OpenFiles), LogError> {
    for folder in [home, &files.holders] {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
        made.map_err(LogError::io("make folder", folder))?;
    }
    // One at a time: SQLite does not wait for others where it changes the mode of the journal.
    let door = holder::close_the_door(&files.holders)?;
    holder::sweep(&files.holders).map_err(LogError::io("tidy", &files.holders))?;
    private(&files.database).map_err(LogError::io("open", &files.database))?;
    let failed = |error| fault(&files.database, error);
    let unopened = Unopened::look(&files.database)?;
    let mut connection = connect(&files.database).map_err(failed)?;
    prepare(&connection).map_err(failed)?;
    // Others need not wait for a look that may take its time.
    drop(door);
    if let Checked::Damaged(found) = check(&connection, &files.database, Some(wait))? {
        return Err(LogError::Damaged { path: files.database.clone(), found });
    }
    migrate(&mut connection, STEPS).map_err(failed)??;
    let open = OpenFiles::look(&files.database, &unopened)?;
    Ok((connection, open))
}

/// A new database of the newest format, for one process alone.
pub(super) fn create(database: &Path) -> Result<Connection, LogError> {
    let failed = |error| fault(database, error);
    private(database).map_err(LogError::io("make", database))?;
    let mut connection = connect(database).map_err(failed)?;
    connection.pragma_update(None, "auto_vacuum", "INCREMENTAL").map_err(failed)?;
    migrate(&mut connection, STEPS).map_err(failed)??;
    Ok(connection)
}

/// A connection to a database that exists.
pub(super) fn connect(database: &Path) -> rusqlite::Result<Connection> {
    // No mutex: a connection is used by one thread at a time, which the compiler sees to.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(database, flags)?;
    connection.busy_handler(Some(wait_for_others))?;
    Ok(connection)
}

/// Called by SQLite when another process has the database, for the `tries`th time. Its own way of
/// waiting sleeps for a tenth of a second in the end, which meets the short gaps that a busy
/// writer leaves so rarely that others starve.
fn wait_for_others(tries: i32) -> bool {
    let waited = BUSY_STEP * u32::try_from(tries).unwrap_or(u32::MAX);
    if waited < BUSY_WAIT {
        std::thread::sleep(BUSY_STEP);
    }
    waited < BUSY_WAIT
}

/// Makes sure that the file is there and that nobody else can read it. SQLite gives the files
/// beside it the same mode.
fn private(database: &Path) -> io::Result<()> {
    // One that is there is not opened: closing it again would drop the locks that others in this process have on it.
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(database) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        made => return made.map(|_| ()),
    }
    if database.metadata()?.permissions().mode() & 0o077 != 0 {
        std::fs::set_permissions(database, Permissions::from_mode(0o600))?;
    }
    Ok(())
}

fn prepare(connection: &Connection) -> rusqlite::Result<()> {
    // Only has an effect on a new database, where space of deleted sessions can be given back then. On
    // any other it would be a write, for which a full disk has no room.
    if connection.pragma_query_value(None, "page_count", |row| row.get::<_, i64>(0))? == 0 {
        connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
    }
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    // What is deleted is overwritten, also where only its page is freed: `FAST` would leave those as they are.
    connection.pragma_update(None, "secure_delete", "ON")?;
    connection.pragma_update(None, "journal_size_limit", WAL_BYTES)
}

/// Takes the steps that are missing, all or none.
fn migrate(connection: &mut Connection, steps: &[&str]) -> rusqlite::Result<Result<(), LogError>> {
    let known = steps.len() as i64;
    let transaction = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    let found: i64 = transaction.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if found > known {
        return Ok(Err(LogError::Newer { found, known }));
    }
    if found < known {
        for step in steps.iter().skip(usize::try_from(found).unwrap_or(0)) {
            transaction.execute_batch(step)?;
        }
        transaction.pragma_update(None, "user_version", known)?;
    }
    transaction.commit().map(Ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &[&str] = &["CREATE TABLE a (x)", "CREATE TABLE b (x); INSERT INTO b SELECT x FROM a"];

    fn version(connection: &Connection) -> i64 {
        connection.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap()
    }

    #[test]
    fn an_older_format_takes_only_the_steps_that_it_lacks() {
        let mut connection = Connection::open_in_memory().unwrap();
        migrate(&mut connection, &TWO[..1]).unwrap().unwrap();
        connection.execute("INSERT INTO a VALUES (7)", []).unwrap();
        migrate(&mut connection, TWO).unwrap().unwrap();
        migrate(&mut connection, TWO).unwrap().unwrap();
        assert_eq!(connection.query_row("SELECT x FROM b", [], |row| row.get(0)), Ok(7));
        assert_eq!(version(&connection), 2);
    }

    #[test]
    fn a_step_that_fails_leaves_the_format_as_it_was() {
        let mut connection = Connection::open_in_memory().unwrap();
        assert!(migrate(&mut connection, &[TWO[0], "CREATE TABLE c (x)", "nonsense"]).is_err());
        assert_eq!(version(&connection), 0);
        assert!(!connection.table_exists(None, "a").unwrap());
    }

    #[test]
    fn a_newer_format_is_left_alone() {
        let mut connection = Connection::open_in_memory().unwrap();
        migrate(&mut connection, TWO).unwrap().unwrap();
        let error = migrate(&mut connection, &TWO[..1]).unwrap().unwrap_err();
        assert!(matches!(error, LogError::Newer { found: 2, known: 1 }));
    }
}
