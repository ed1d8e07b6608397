//! What can be saved of a damaged database, in a new one.
//!
//! The damaged files are only read, and not through SQLite, which refuses a table at its first damaged page
//! ([`pages`], [`cells`]). All rows that are left are collected ([`scan`]), and the sessions are put together from
//! them anew ([`rebuild`]). Only a new file that has passed all checks takes the place of the old one, which is kept.

mod bytes;
mod cells;
mod pages;
mod rebuild;
mod scan;
mod write_ahead;

use std::fs::{DirBuilder, File, OpenOptions};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use parlor_vocab::Clock;
use rusqlite::Connection;
use rustix::process::{Flock, FlockOffsetType, FlockType, fcntl_getlk};

use self::pages::Pages;
use super::check::{Checked, check_database};
use super::fault::fault;
use super::open_files::beside;
use super::save::dated;
use super::work::SPAN;
use super::{Files, holder, schema};
use crate::LogError;

/// Where SQLite locks a file that it has open, and how many bytes.
const LOCKED: (u64, u64) = (1 << 30, 512);

/// How many pages are read between two words about it.
const TELL_PAGES: u32 = 4096;

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecoveryProgress {
    /// Pages are read.
    Reading {
        /// How many were.
        pages: u32,
        /// How many there are.
        of: u32,
    },
    /// Events are written to the new database.
    Writing {
        /// How many were.
        events: u64,
    },
    /// The new database is checked.
    Checking,
}

/// What is in the new database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SavedData {
    /// Sessions, whole or the beginning of them.
    pub sessions: u64,
    /// Those of them whose id was not to be found: they are called `recovered-N`.
    pub unnamed: u64,
    /// Their events.
    pub events: u64,
}

/// What is not in it, as far as it is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LostData {
    /// Sessions of which nothing could be saved.
    pub sessions: u64,
    /// Events of all sessions.
    pub events: u64,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recovered {
    /// The database is not damaged, and was left as it is.
    Intact,
    /// There is a new database.
    New {
        /// What is in it.
        saved: SavedData,
        /// What is not.
        lost: LostData,
        /// Where the damaged one is now, with its write-ahead log beside it.
        damaged: PathBuf,
    },
}

/// Puts a new database with all that can be saved in the place of a damaged one, in the state folder `home`. Fails
/// with `InUse` while anybody has it open, and then, as at any other failure, all is as it was.
pub fn recover(
    home: &Path,
    clock: &dyn Clock,
    mut tell: impl FnMut(RecoveryProgress),
) -> Result<Recovered, LogError> {
    let files = Files::of(&std::path::absolute(home).map_err(LogError::io("find", home))?);
    let database = &files.database;
    let made = DirBuilder::new().recursive(true).mode(0o700).create(&files.holders);
    made.map_err(LogError::io("make folder", &files.holders))?;
    // Nobody can begin to use it, and nobody does.
    let _door = holder::close_the_door(&files.holders)?;
    refuse_if_used(&files)?;
    if check_database(database, None)? == Checked::Intact {
        return Ok(Recovered::Intact);
    }
    let pages = Pages::open(database).map_err(LogError::io("read", database))?;
    let found = scan::scan(&pages, |number| {
        if number % TELL_PAGES == 0 {
            tell(RecoveryProgress::Reading { pages: number, of: pages.count() });
        }
    });
    let draft = Draft::make(beside(database, ".recovering"))?;
    let mut connection = schema::create(&draft.0)?;
    let told = |events| tell(RecoveryProgress::Writing { events });
    let (saved, lost) = rebuild::rebuild(&draft.0, &mut connection, &pages, &found, told)?;
    tell(RecoveryProgress::Checking);
    verify(&connection, &draft.0, saved)?;
    // Before it is given its name, and after nobody has it open.
    connection.close().map_err(|(_, error)| fault(&draft.0, error))?;
    let synced = File::open(&draft.0).and_then(|file| file.sync_all());
    synced.map_err(LogError::io("sync", &draft.0))?;
    let damaged = exchange(database, &draft.0, clock)?;
    Ok(Recovered::New { saved, lost, damaged })
}

/// The new database while it is made. What is left of it goes when it is dropped.
struct Draft(PathBuf);

impl Draft {
    fn make(path: PathBuf) -> Result<Self, LogError> {
        let draft = Self(path);
        draft.remove();
        // Made anew, so that nobody else has it open.
        let made = OpenOptions::new().write(true).create_new(true).open(&draft.0);
        made.map_err(LogError::io("make", &draft.0))?;
        Ok(draft)
    }

    fn remove(&self) {
        for suffix in ["", "-journal", "-wal", "-shm"] {
            // Mostly there is none.
            let _ = std::fs::remove_file(beside(&self.0, suffix));
        }
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Fails if a process has the database open. Who comes later finds the door closed.
fn refuse_if_used(files: &Files) -> Result<(), LogError> {
    let failed = |error: std::io::Error| LogError::io("look at", &files.database)(error);
    let file = OpenOptions::new().read(true).write(true).open(&files.database).map_err(failed)?;
    let (start, length) = LOCKED;
    let (typ, offset_type) = (FlockType::WriteLock, FlockOffsetType::Set);
    let wanted = Flock { start, length, pid: None, typ, offset_type };
    let found = fcntl_getlk(&file, &wanted).map_err(|errno| failed(errno.into()))?;
    let path = files.database.clone();
    if let Some(lock) = found {
        let pid = lock.pid.and_then(|pid| u32::try_from(pid.as_raw_nonzero().get()).ok());
        return Err(LogError::InUse { path, pid });
    }
    if holder::anybody_lives(&files.holders)? {
        return Err(LogError::InUse { path, pid: None });
    }
    Ok(())
}

/// Fails unless the new database is what it is said to be: intact, and without a gap in any session.
fn verify(connection: &Connection, path: &Path, saved: SavedData) -> Result<(), LogError> {
    let look = || -> rusqlite::Result<(String, (u64, u64))> {
        let intact = connection.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0))?;
        let dense = format!(
            "SELECT count(*), total(s.head) FROM sessions AS s WHERE s.head = (SELECT count(*) FROM events
             WHERE place > s.key * {SPAN} AND place <= s.key * {SPAN} + s.head)"
        );
        let counts = connection
            .query_row(&dense, [], |row| Ok((row.get::<_, i64>(0)? as u64, row.get::<_, f64>(1)? as u64)))?;
        Ok((intact, counts))
    };
    let (intact, counts) = look().map_err(|error| fault(path, error))?;
    if intact != "ok" || counts != (saved.sessions, saved.events) {
        let found = format!("{intact}, {counts:?} and not {saved:?}");
        return Err(LogError::Damaged { path: path.to_owned(), found });
    }
    Ok(())
}

/// Gives the new database the name of the old one, which gets another. Returns that.
fn exchange(database: &Path, draft: &Path, clock: &dyn Clock) -> Result<PathBuf, LogError> {
    let failed = |error| LogError::io("replace", database)(error);
    let damaged = dated(database, "damaged", clock.now(), |name| std::fs::hard_link(database, name));
    let damaged = damaged.map_err(failed)?;
    let (log, kept) = (beside(database, "-wal"), beside(&damaged, "-wal"));
    let put = || {
        // First the log gets its other name, then it loses the old one, under which it would be taken for a part of
        // the new database.
        if log.exists() {
            std::fs::hard_link(&log, &kept)?;
            std::fs::remove_file(&log)?;
        }
        std::fs::rename(draft, database)?;
        let index = beside(database, "-shm");
        if index.exists() {
            std::fs::remove_file(index)?;
        }
        database.parent().map_or(Ok(()), |home| File::open(home)?.sync_all())
    };
    put().map_err(|error| {
        if kept.exists() && !log.exists() {
            // If this fails as well, the log is still there under its other name.
            let _ = std::fs::hard_link(&kept, &log);
        }
        failed(error)
    })?;
    Ok(damaged)
}
