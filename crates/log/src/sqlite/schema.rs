//! Opens and creates the database file, and migrates its schema.

use std::fs::{DirBuilder, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use super::check::{DamageCheck, check};
use super::db_error::db_error;
use super::open_files::{FileBeforeOpen, OpenFiles};
use super::{BUSY_WAIT, Files, holder};
use crate::LogError;

/// The migration to each format from the one before. A released migration never changes.
const MIGRATIONS: &[&str] = &[
    include_str!("format_1.sql"),
    include_str!("format_2.sql"),
    include_str!("format_3.sql"),
    include_str!("format_4_snapshots.sql"),
    include_str!("format_5_rows.sql"),
];

/// The format of new and migrated databases, in `PRAGMA user_version`.
pub(super) const NEWEST_FORMAT: i64 = MIGRATIONS.len() as i64;

/// SQLite truncates the write-ahead log to this size after a checkpoint.
const WAL_BYTES: i64 = 16 << 20;

/// The pause between two attempts to lock the database.
const BUSY_STEP: Duration = Duration::from_millis(1);

/// Opens the connection for writing, creates or migrates the database, and looks for damage for at most `wait`.
pub(super) fn open(home: &Path, files: &Files, wait: Duration) -> Result<(Connection, OpenFiles), LogError> {
    for folder in [home, &files.holders] {
        let created = DirBuilder::new().recursive(true).mode(0o700).create(folder);
        created.map_err(LogError::io("make folder", folder))?;
    }
    // One process at a time: SQLite does not wait for others when it changes the journal mode.
    let folder_lock = holder::lock_folder(&files.holders)?;
    holder::remove_dead(&files.holders).map_err(LogError::io("tidy", &files.holders))?;
    ensure_private(&files.database).map_err(LogError::io("open", &files.database))?;
    let failed = |error| db_error(&files.database, error);
    let before = FileBeforeOpen::inspect(&files.database)?;
    let mut connection = connect(&files.database).map_err(failed)?;
    configure(&connection).map_err(failed)?;
    // Other processes need not wait for the check, which may take long.
    drop(folder_lock);
    if let DamageCheck::Damaged(found) = check(&connection, &files.database, Some(wait))? {
        return Err(LogError::Damaged { path: files.database.clone(), found });
    }
    migrate(&mut connection, MIGRATIONS).map_err(failed)??;
    let open_files = OpenFiles::inspect(&files.database, &before)?;
    Ok((connection, open_files))
}

/// Creates a database of the newest format for the use of this process alone.
pub(super) fn create(database: &Path) -> Result<Connection, LogError> {
    let failed = |error| db_error(database, error);
    ensure_private(database).map_err(LogError::io("make", database))?;
    let mut connection = connect(database).map_err(failed)?;
    connection.pragma_update(None, "auto_vacuum", "INCREMENTAL").map_err(failed)?;
    migrate(&mut connection, MIGRATIONS).map_err(failed)??;
    Ok(connection)
}

/// Connects to an existing database.
pub(super) fn connect(database: &Path) -> rusqlite::Result<Connection> {
    // No mutex: the type system allows only one thread at a time to use a connection.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(database, flags)?;
    connection.busy_handler(Some(busy_handler))?;
    Ok(connection)
}

/// SQLite calls this when another process has locked the database, with the number of attempts so far. SQLite's own
/// handler sleeps for up to 100 ms, so that it rarely meets the short gaps that a busy writer leaves.
fn busy_handler(tries: i32) -> bool {
    let waited = BUSY_STEP * u32::try_from(tries).unwrap_or(u32::MAX);
    if waited < BUSY_WAIT {
        std::thread::sleep(BUSY_STEP);
    }
    waited < BUSY_WAIT
}

/// Makes sure that the file exists and that only its owner can read it. SQLite gives the files next to it the same mode.
fn ensure_private(database: &Path) -> io::Result<()> {
    // Do not open an existing file: closing it would drop the locks that other connections of this process have on it.
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(database) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        created => return created.map(|_| ()),
    }
    if database.metadata()?.permissions().mode() & 0o077 != 0 {
        std::fs::set_permissions(database, Permissions::from_mode(0o600))?;
    }
    Ok(())
}

fn configure(connection: &Connection) -> rusqlite::Result<()> {
    // Needed to return the space of deleted sessions. It has an effect on a new database only; on an existing one it
    // would be a write that fails on a full disk.
    if connection.pragma_query_value(None, "page_count", |row| row.get::<_, i64>(0))? == 0 {
        connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
    }
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    // Overwrites deleted text with zeros. `FAST` would not overwrite pages that are freed as a whole.
    connection.pragma_update(None, "secure_delete", "ON")?;
    connection.pragma_update(None, "journal_size_limit", WAL_BYTES)
}

/// Runs the missing migrations in one transaction.
fn migrate(connection: &mut Connection, migrations: &[&str]) -> rusqlite::Result<Result<(), LogError>> {
    let known = migrations.len() as i64;
    let transaction = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    let found: i64 = transaction.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if found > known {
        return Ok(Err(LogError::Newer { found, known }));
    }
    if found < known {
        for migration in migrations.iter().skip(usize::try_from(found).unwrap_or(0)) {
            transaction.execute_batch(migration)?;
        }
        transaction.pragma_update(None, "user_version", known)?;
    }
    transaction.commit().map(Ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO_MIGRATIONS: &[&str] =
        &["CREATE TABLE a (x)", "CREATE TABLE b (x); INSERT INTO b SELECT x FROM a"];

    fn version(connection: &Connection) -> i64 {
        connection.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap()
    }

    #[test]
    fn an_older_format_gets_only_the_missing_migrations() {
        let mut connection = Connection::open_in_memory().unwrap();
        migrate(&mut connection, &TWO_MIGRATIONS[..1]).unwrap().unwrap();
        connection.execute("INSERT INTO a VALUES (7)", []).unwrap();
        migrate(&mut connection, TWO_MIGRATIONS).unwrap().unwrap();
        migrate(&mut connection, TWO_MIGRATIONS).unwrap().unwrap();
        assert_eq!(connection.query_row("SELECT x FROM b", [], |row| row.get(0)), Ok(7));
        assert_eq!(version(&connection), 2);
    }

    #[test]
    fn a_failed_migration_leaves_the_database_unchanged() {
        let mut connection = Connection::open_in_memory().unwrap();
        assert!(migrate(&mut connection, &[TWO_MIGRATIONS[0], "CREATE TABLE c (x)", "nonsense"]).is_err());
        assert_eq!(version(&connection), 0);
        assert!(!connection.table_exists(None, "a").unwrap());
    }

    #[test]
    fn a_newer_format_is_refused() {
        let mut connection = Connection::open_in_memory().unwrap();
        migrate(&mut connection, TWO_MIGRATIONS).unwrap().unwrap();
        let error = migrate(&mut connection, &TWO_MIGRATIONS[..1]).unwrap().unwrap_err();
        assert!(matches!(error, LogError::Newer { found: 2, known: 1 }));
    }
}
