//! Copies the database for a backup while other processes write to it, and checks such a copy before a restore.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rusqlite::backup::{Backup, StepResult};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::check::{DamageCheck, check};
use super::db_error::db_error;
use super::{Files, schema};
use crate::LogError;

/// How many pages are copied between two progress reports.
const STEP_PAGES: i32 = 1024;

/// What a database contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatabaseContents {
    /// The number of sessions.
    pub sessions: u64,
    /// The format number; [`DATABASE_FORMAT`](crate::DATABASE_FORMAT) is the newest one that this version knows.
    pub format: i64,
}

/// The progress of [`copy_database`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyProgress {
    /// The number of pages copied so far.
    pub pages: u64,
    /// The number of all pages.
    pub of: u64,
}

/// Copies the database of the state folder `home` to the new file `to`, of mode 0600: the state of one moment, although
/// other processes may write meanwhile. The copy needs no other file beside it. Fails with `Damaged` if the copy is
/// damaged, because then the database is; the copy stays for the caller to remove, as after any other failure.
pub fn copy_database(
    home: &Path,
    to: &Path,
    mut on_progress: impl FnMut(CopyProgress),
) -> Result<DatabaseContents, LogError> {
    let database = Files::in_home(home).database;
    let created = OpenOptions::new().write(true).create_new(true).mode(0o600).open(to);
    created.map_err(LogError::io("make", to))?;
    let failed = |error| db_error(&database, error);
    let from = schema::connect(&database).map_err(failed)?;
    // One read transaction around all steps. Otherwise each write of another process would restart the copy, which might
    // then never end.
    from.execute_batch("BEGIN; SELECT count(*) FROM sqlite_schema").map_err(failed)?;
    let mut copy = Connection::open_with_flags(to, OpenFlags::SQLITE_OPEN_READ_WRITE)
        .map_err(|error| db_error(to, error))?;
    {
        let backup = Backup::new(&from, &mut copy).map_err(failed)?;
        loop {
            let step = backup.step(STEP_PAGES).map_err(failed)?;
            let progress = backup.progress();
            let count = |pages: i32| u64::try_from(pages).unwrap_or(0);
            let of = count(progress.pagecount);
            on_progress(CopyProgress { pages: of.saturating_sub(count(progress.remaining)), of });
            match step {
                StepResult::Done => break,
                StepResult::More => {}
                // Nobody else uses the copy, and readers of a write-ahead log wait for nobody.
                StepResult::Busy | StepResult::Locked | _ => return Err(LogError::Busy),
            }
        }
    }
    let failed = |error| db_error(to, error);
    copy.pragma_update(None, "journal_mode", "DELETE").map_err(failed)?;
    if let DamageCheck::Damaged(found) = check(&copy, to, None)? {
        return Err(LogError::Damaged { path: database, found });
    }
    let contents = contents(&copy).map_err(failed)?;
    copy.close().map_err(|(_, error)| failed(error))?;
    Ok(contents)
}

/// What the database of the state folder `home` contains; `None` if there is none, or an empty file.
pub fn database_contents(home: &Path) -> Result<Option<DatabaseContents>, LogError> {
    let database = Files::in_home(home).database;
    if !database.metadata().is_ok_and(|found| found.len() > 0) {
        return Ok(None);
    }
    let failed = |error| db_error(&database, error);
    let connection = schema::connect(&database).map_err(failed)?;
    contents(&connection).map(Some).map_err(failed)
}

/// Checks a database that comes from elsewhere, such as a backup: fails if it is damaged, has a newer format, or has
/// triggers or views, which parlor's own databases do not have.
pub fn check_foreign_database(database: &Path) -> Result<DatabaseContents, LogError> {
    let failed = |error| db_error(database, error);
    let open = || {
        let connection = Connection::open_with_flags(database, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
        connection.pragma_update(None, "cell_size_check", true)?;
        Ok(connection)
    };
    let connection = open().map_err(failed)?;
    if let DamageCheck::Damaged(found) = check(&connection, database, None)? {
        return Err(LogError::Damaged { path: database.to_owned(), found });
    }
    let code = "SELECT name FROM sqlite_schema WHERE type NOT IN ('table', 'index') LIMIT 1";
    let foreign = connection.query_row(code, [], |row| row.get::<_, String>(0));
    match foreign {
        Err(rusqlite::Error::QueryReturnedNoRows) => {}
        Ok(name) => {
            let found = format!("it has {name:?}, which is neither a table nor an index");
            return Err(LogError::Damaged { path: database.to_owned(), found });
        }
        Err(error) => return Err(failed(error)),
    }
    let contents = contents(&connection).map_err(failed)?;
    if contents.format > schema::NEWEST_FORMAT {
        return Err(LogError::Newer { found: contents.format, known: schema::NEWEST_FORMAT });
    }
    Ok(contents)
}

fn contents(connection: &Connection) -> rusqlite::Result<DatabaseContents> {
    let format: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    // Format 0 is a database in which a process has not made its tables yet.
    let count = |row: &rusqlite::Row<'_>| row.get::<_, i64>(0);
    let sessions =
        if format == 0 { 0 } else { connection.query_row("SELECT count(*) FROM sessions", [], count)? };
    Ok(DatabaseContents { sessions: u64::try_from(sessions).unwrap_or(0), format })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEW_SESSION: &str = "INSERT INTO sessions (key, id, door, created, updated, head, messages, bytes)
        VALUES (?1, ?2, 'chat', 0, 0, 0, 0, 0)";

    fn database(folder: &Path) -> Connection {
        let connection = schema::create(&Files::in_home(folder).database).unwrap();
        connection.pragma_update(None, "journal_mode", "WAL").unwrap();
        connection
    }

    #[test]
    fn a_copy_is_the_state_of_one_moment_although_others_write() {
        let folder = tempfile::tempdir().unwrap();
        let writer = database(folder.path());
        let add = |key: i64| writer.execute(NEW_SESSION, (key, format!("s{key}"))).unwrap();
        add(1);
        // More pages than one step copies.
        writer
            .execute_batch("CREATE TABLE filler (x); INSERT INTO filler VALUES (zeroblob(9000000))")
            .unwrap();
        let copy = folder.path().join("copy");
        let mut steps = 0;
        let copied = copy_database(folder.path(), &copy, |_| {
            steps += 1;
            add(1 + steps);
        });
        assert_eq!(copied.unwrap(), DatabaseContents { sessions: 1, format: schema::NEWEST_FORMAT });
        assert!(steps > 1, "the copy had one step, so nothing was written during it");
        assert_eq!(check_foreign_database(&copy).unwrap().sessions, 1);
        assert_eq!(database_contents(folder.path()).unwrap().unwrap().sessions, 1 + steps as u64);
        assert!(!folder.path().join("copy-wal").exists(), "the copy needs a second file");
    }

    #[test]
    fn a_foreign_database_may_not_be_damaged_newer_or_have_triggers() {
        let folder = tempfile::tempdir().unwrap();
        let path = Files::in_home(folder.path()).database;
        let connection = schema::create(&path).unwrap();
        assert!(check_foreign_database(&path).is_ok());
        connection.pragma_update(None, "user_version", 99).unwrap();
        assert!(matches!(check_foreign_database(&path), Err(LogError::Newer { found: 99, .. })));
        connection.pragma_update(None, "user_version", 1).unwrap();
        connection.execute_batch("CREATE VIEW v AS SELECT 1").unwrap();
        assert!(matches!(check_foreign_database(&path), Err(LogError::Damaged { .. })));
        drop(connection);
        std::fs::write(&path, b"SQLite format 3\0 and then nonsense".repeat(300)).unwrap();
        assert!(matches!(check_foreign_database(&path), Err(LogError::Damaged { .. })));
    }
}
