//! Recovers the readable data of a damaged database into a new one.
//!
//! Recovery only reads the damaged files, and without SQLite, which gives up a table at its first damaged page ([`pages`],
//! [`cells`]). It collects all readable rows ([`scan`]) and rebuilds the sessions from them ([`rebuild`]). The new file
//! replaces the old one only after it has passed all checks; the old file is kept under another name.

mod bytes;
mod cells;
mod pages;
mod rebuild;
mod scan;
mod write_ahead;

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};

use parlor_vocab::Clock;
use rusqlite::Connection;

use self::pages::Pages;
use super::check::{DamageCheck, check_database};
use super::db_error::db_error;
use super::open_files::sibling;
use super::request::PLACES_PER_SESSION;
use super::rescue::create_dated;
use super::unused::UnusedDatabase;
use super::{Files, schema};
use crate::LogError;

/// The number of pages between two progress reports.
const PROGRESS_PAGES: u32 = 4096;

/// The progress of a recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecoveryProgress {
    /// Reading the damaged database.
    Reading {
        /// The number of pages read so far.
        pages: u32,
        /// The number of all pages.
        of: u32,
    },
    /// Writing the new database.
    Writing {
        /// The number of events written so far.
        events: u64,
    },
    /// Checking the new database.
    Checking,
}

/// What the new database contains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SavedData {
    /// The number of sessions, complete or cut off at the first missing event.
    pub sessions: u64,
    /// How many of the sessions lost their id and are now called `recovered-N`.
    pub unnamed: u64,
    /// The number of events in these sessions.
    pub events: u64,
}

/// What the new database lacks, as far as the damaged one shows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LostData {
    /// The number of sessions of which no event could be saved.
    pub sessions: u64,
    /// The number of missing events in all sessions.
    pub events: u64,
}

/// The result of a recovery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recovered {
    /// The database is not damaged and was not changed.
    Intact,
    /// A new database replaced the damaged one.
    New {
        /// What the new database contains.
        saved: SavedData,
        /// What the new database lacks.
        lost: LostData,
        /// The path of the damaged database now; its write-ahead log is next to it.
        damaged: PathBuf,
    },
}

/// Replaces a damaged database in the state folder `home` by a new one with all readable data. Fails with `InUse` while
/// any process has the database open. A failure leaves everything unchanged.
pub fn recover(
    home: &Path,
    clock: &dyn Clock,
    mut on_progress: impl FnMut(RecoveryProgress),
) -> Result<Recovered, LogError> {
    let files = Files::in_home(&std::path::absolute(home).map_err(LogError::io("find", home))?);
    let database = &files.database;
    let _lock = UnusedDatabase::lock(home)?;
    if check_database(database, None)? == DamageCheck::Intact {
        return Ok(Recovered::Intact);
    }
    let pages = Pages::open(database).map_err(LogError::io("read", database))?;
    let found = scan::scan(&pages, |number| {
        if number % PROGRESS_PAGES == 0 {
            on_progress(RecoveryProgress::Reading { pages: number, of: pages.count() });
        }
    });
    let new_file = NewFile::create(sibling(database, ".recovering"))?;
    let mut connection = schema::create(&new_file.0)?;
    let on_events = |events| on_progress(RecoveryProgress::Writing { events });
    let (saved, lost) = rebuild::rebuild(&new_file.0, &mut connection, &pages, &found, on_events)?;
    on_progress(RecoveryProgress::Checking);
    verify(&connection, &new_file.0, saved)?;
    // Close and sync the file before it gets its final name.
    connection.close().map_err(|(_, error)| db_error(&new_file.0, error))?;
    let synced = File::open(&new_file.0).and_then(|file| file.sync_all());
    synced.map_err(LogError::io("sync", &new_file.0))?;
    let damaged = replace(database, &new_file.0, clock)?;
    Ok(Recovered::New { saved, lost, damaged })
}

/// The path of the new database until it is complete. Dropping it removes the files.
struct NewFile(PathBuf);

impl NewFile {
    fn create(path: PathBuf) -> Result<Self, LogError> {
        let new_file = Self(path);
        new_file.remove();
        // `create_new`, so that no other process has the file open.
        let created = OpenOptions::new().write(true).create_new(true).open(&new_file.0);
        created.map_err(LogError::io("make", &new_file.0))?;
        Ok(new_file)
    }

    fn remove(&self) {
        for suffix in ["", "-journal", "-wal", "-shm"] {
            // Fails if there is no such file, which is the usual case.
            let _ = std::fs::remove_file(sibling(&self.0, suffix));
        }
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Fails unless the new database is intact, has the counted sessions and events, and no session has a gap.
fn verify(connection: &Connection, path: &Path, saved: SavedData) -> Result<(), LogError> {
    let query = || -> rusqlite::Result<(String, (u64, u64))> {
        let intact = connection.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0))?;
        let gapless = format!(
            "SELECT count(*), total(s.head) FROM sessions AS s WHERE s.head = (SELECT count(*) FROM events
             WHERE place > s.key * {PLACES_PER_SESSION} AND place <= s.key * {PLACES_PER_SESSION} + s.head)"
        );
        let counts = connection.query_row(&gapless, [], |row| {
            Ok((row.get::<_, i64>(0)? as u64, row.get::<_, f64>(1)? as u64))
        })?;
        Ok((intact, counts))
    };
    let (intact, counts) = query().map_err(|error| db_error(path, error))?;
    if intact != "ok" || counts != (saved.sessions, saved.events) {
        let found = format!("{intact}, {counts:?} and not {saved:?}");
        return Err(LogError::Damaged { path: path.to_owned(), found });
    }
    Ok(())
}

/// Renames the damaged database, and gives its name to the new one. Returns the new name of the damaged one.
fn replace(database: &Path, new: &Path, clock: &dyn Clock) -> Result<PathBuf, LogError> {
    let failed = |error| LogError::io("replace", database)(error);
    let damaged = create_dated(database, "damaged", clock.now(), |name| std::fs::hard_link(database, name));
    let damaged = damaged.map_err(failed)?;
    let (log, renamed_log) = (sibling(database, "-wal"), sibling(&damaged, "-wal"));
    let rename = || {
        // Rename the write-ahead log too: under its old name, SQLite would apply it to the new database.
        if log.exists() {
            std::fs::hard_link(&log, &renamed_log)?;
            std::fs::remove_file(&log)?;
        }
        std::fs::rename(new, database)?;
        let index = sibling(database, "-shm");
        if index.exists() {
            std::fs::remove_file(index)?;
        }
        database.parent().map_or(Ok(()), |home| File::open(home)?.sync_all())
    };
    rename().map_err(|error| {
        if renamed_log.exists() && !log.exists() {
            // If this fails as well, the log still exists under its new name.
            let _ = std::fs::hard_link(&renamed_log, &log);
        }
        failed(error)
    })?;
    Ok(damaged)
}
