//! Notices when somebody removes or replaces the files of an open database.
//!
//! A process can still write a file that was removed or replaced, but the data is gone when the process closes it. So the
//! store compares the device and inode of each path with those of the open file. It never opens the files for that:
//! closing a second handle of a file would drop the locks that SQLite has on it.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::LogError;

/// Identifies a file independently of its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    /// The file at this path, if there is one.
    fn of(path: &Path) -> Result<Option<Self>, LogError> {
        match path.metadata() {
            Ok(found) => Ok(Some(Self { device: found.dev(), inode: found.ino() })),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                Ok(None)
            }
            Err(error) => Err(LogError::io("look at", path)(error)),
        }
    }
}

/// The files of an open database, and whether they may still be written.
pub(super) struct OpenFiles {
    database: PathBuf,
    /// The database first, then `-wal` and `-shm`.
    files: Vec<(PathBuf, FileId)>,
    /// Set once and never cleared: even if the original file comes back, other processes may have written another file
    /// meanwhile.
    unusable: OnceLock<Unusable>,
}

/// Why the store may not write any more.
enum Unusable {
    Replaced(PathBuf),
    Damaged(String),
}

/// Where the events are that were acknowledged before a file was removed or replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EventLocation {
    /// In the database, after a checkpoint of the write-ahead log. Nobody else has created another log.
    Database,
    /// In open files that have no path any more, or that other processes do not use.
    UnnamedFiles,
}

/// The identity of the database file before SQLite opened it.
pub(super) struct FileBeforeOpen(Option<FileId>);

impl FileBeforeOpen {
    pub(super) fn inspect(database: &Path) -> Result<Self, LogError> {
        FileId::of(database).map(Self)
    }
}

impl OpenFiles {
    /// Records the files of `database`, which SQLite has just opened. Fails if the file is not `before`.
    pub(super) fn inspect(database: &Path, before: &FileBeforeOpen) -> Result<Self, LogError> {
        // SQLite creates these files next to the database itself, not next to a link to it.
        let real = database.canonicalize().map_err(LogError::io("look at", database))?;
        let mut files = Vec::new();
        for path in [database.to_owned(), sibling(&real, "-wal"), sibling(&real, "-shm")] {
            if let Some(id) = FileId::of(&path)? {
                files.push((path, id));
            }
        }
        match files.first() {
            Some((_, id)) if before.0 == Some(*id) => {}
            Some(_) | None => return Err(LogError::Replaced { path: database.to_owned() }),
        }
        Ok(Self { database: database.to_owned(), files, unusable: OnceLock::new() })
    }

    /// Fails if a path no longer leads to the open file, and from then on always. Takes a few microseconds.
    pub(super) fn verify(&self) -> Result<(), LogError> {
        self.check_usable()?;
        for (path, id) in &self.files {
            if FileId::of(path)? != Some(*id) {
                let _ = self.unusable.set(Unusable::Replaced(path.clone()));
                return self.check_usable();
            }
        }
        Ok(())
    }

    /// Fails if a replaced or damaged file was noticed before.
    pub(super) fn check_usable(&self) -> Result<(), LogError> {
        match self.unusable.get() {
            None => Ok(()),
            Some(Unusable::Replaced(path)) => Err(LogError::Replaced { path: path.clone() }),
            Some(Unusable::Damaged(found)) => {
                Err(LogError::Damaged { path: self.database.clone(), found: found.clone() })
            }
        }
    }

    /// Makes the store unusable if the error says that the database is damaged.
    pub(super) fn note_error(&self, failure: &LogError) {
        if let LogError::Damaged { found, .. } = failure {
            let _ = self.unusable.set(Unusable::Damaged(found.clone()));
        }
    }

    /// Whether a removed or replaced file was noticed.
    pub(super) fn are_replaced(&self) -> bool {
        matches!(self.unusable.get(), Some(Unusable::Replaced(_)))
    }

    /// Where the acknowledged events are now.
    pub(super) fn event_location(&self) -> EventLocation {
        let is_original = self.files.iter().enumerate().all(|(number, (path, id))| match FileId::of(path) {
            Ok(Some(found)) => found == *id,
            Ok(None) => number > 0,
            Err(_) => false,
        });
        if is_original { EventLocation::Database } else { EventLocation::UnnamedFiles }
    }

    pub(super) fn database(&self) -> &Path {
        &self.database
    }
}

/// The path with a suffix: SQLite's files next to a database, or a copy of it.
pub(super) fn sibling(database: &Path, suffix: &str) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open_files(folder: &Path) -> OpenFiles {
        let database = folder.join("a.db");
        for suffix in ["", "-wal", "-shm"] {
            std::fs::write(sibling(&database, suffix), "x").unwrap();
        }
        let before = FileBeforeOpen::inspect(&database).unwrap();
        OpenFiles::inspect(&database, &before).unwrap()
    }

    #[test]
    fn a_replaced_file_is_noticed_and_stays_refused() {
        for suffix in ["", "-wal", "-shm"] {
            let folder = tempfile::tempdir().unwrap();
            let files = open_files(folder.path());
            files.verify().unwrap();
            let path = sibling(&folder.path().join("a.db"), suffix);
            let moved = folder.path().join("kept");
            std::fs::rename(&path, &moved).unwrap();
            let error = files.verify().unwrap_err();
            assert!(matches!(&error, LogError::Replaced { path: named } if *named == path), "{error:?}");
            let expected =
                if suffix.is_empty() { EventLocation::UnnamedFiles } else { EventLocation::Database };
            assert_eq!(files.event_location(), expected, "{suffix:?}");
            std::fs::write(&path, "another").unwrap();
            assert_eq!(files.event_location(), EventLocation::UnnamedFiles, "{suffix:?}");
            std::fs::rename(&moved, &path).unwrap();
            assert!(matches!(files.verify(), Err(LogError::Replaced { .. })), "it stays refused");
        }
    }

    #[test]
    fn a_file_that_is_replaced_during_open_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("a.db");
        std::fs::write(&database, "x").unwrap();
        let before = FileBeforeOpen::inspect(&database).unwrap();
        std::fs::write(folder.path().join("b.db"), "y").unwrap();
        std::fs::rename(folder.path().join("b.db"), &database).unwrap();
        assert!(matches!(OpenFiles::inspect(&database, &before), Err(LogError::Replaced { .. })));
    }
}
