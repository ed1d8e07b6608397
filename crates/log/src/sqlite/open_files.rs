//! Whether the files that are open are still those that the next start will find.
//!
//! A file that was removed or replaced stays usable for whoever has it open: writes succeed, and are gone when it
//! is closed. So the device and the inode behind each name are compared with those of the open files. Only by name,
//! though: closing a second handle of a file would drop the locks that SQLite has on it.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::LogError;

/// A file, whatever it is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    /// What the name stands for; nothing, if there is no such name.
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

/// The files of an open database, and why nothing may be written to them any more.
pub(super) struct OpenFiles {
    database: PathBuf,
    /// The database first.
    files: Vec<(PathBuf, FileId)>,
    /// Set once, and for good: another look could find the old name in place again, and would know nothing of
    /// what went on in between.
    lost: OnceLock<LostData>,
}

enum LostData {
    Replaced(PathBuf),
    Damaged(String),
}

/// Where the events are that were acknowledged before a file was replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whereabouts {
    /// In the database, once its write-ahead log is copied into it; nobody else has begun another one.
    Database,
    /// Only in files that have no name any more, or are not the ones that others use.
    Nameless,
}

/// The database as it is before it is opened.
pub(super) struct Unopened(Option<FileId>);

impl Unopened {
    pub(super) fn look(database: &Path) -> Result<Self, LogError> {
        FileId::of(database).map(Self)
    }
}

impl OpenFiles {
    /// The files of `database`, which was just opened and has been looked at before that.
    pub(super) fn look(database: &Path, before: &Unopened) -> Result<Self, LogError> {
        // SQLite puts the files beside the database itself, not beside a link to it.
        let real = database.canonicalize().map_err(LogError::io("look at", database))?;
        let mut files = Vec::new();
        for path in [database.to_owned(), beside(&real, "-wal"), beside(&real, "-shm")] {
            if let Some(id) = FileId::of(&path)? {
                files.push((path, id));
            }
        }
        match files.first() {
            Some((_, id)) if before.0 == Some(*id) => {}
            Some(_) | None => return Err(LogError::Replaced { path: database.to_owned() }),
        }
        Ok(Self { database: database.to_owned(), files, lost: OnceLock::new() })
    }

    /// Fails if one of the files is not the one that is open, and from then on always. Costs a few microseconds.
    pub(super) fn verify(&self) -> Result<(), LogError> {
        self.refusal()?;
        for (path, id) in &self.files {
            if FileId::of(path)? != Some(*id) {
                let _ = self.lost.set(LostData::Replaced(path.clone()));
                return self.refusal();
            }
        }
        Ok(())
    }

    /// Fails if it is known that nothing may be written any more.
    pub(super) fn refusal(&self) -> Result<(), LogError> {
        match self.lost.get() {
            None => Ok(()),
            Some(LostData::Replaced(path)) => Err(LogError::Replaced { path: path.clone() }),
            Some(LostData::Damaged(found)) => {
                Err(LogError::Damaged { path: self.database.clone(), found: found.clone() })
            }
        }
    }

    /// Takes note of a failure: a database that is damaged does not mend itself.
    pub(super) fn heard_of(&self, failure: &LogError) {
        if let LogError::Damaged { found, .. } = failure {
            let _ = self.lost.set(LostData::Damaged(found.clone()));
        }
    }

    /// Whether a file was replaced.
    pub(super) fn are_replaced(&self) -> bool {
        matches!(self.lost.get(), Some(LostData::Replaced(_)))
    }

    /// Where the events are that were acknowledged before.
    pub(super) fn whereabouts(&self) -> Whereabouts {
        let is_alone = self.files.iter().enumerate().all(|(number, (path, id))| match FileId::of(path) {
            Ok(Some(found)) => found == *id,
            Ok(None) => number > 0,
            Err(_) => false,
        });
        if is_alone { Whereabouts::Database } else { Whereabouts::Nameless }
    }

    pub(super) fn database(&self) -> &Path {
        &self.database
    }
}

/// The file that SQLite has beside a database.
pub(super) fn beside(database: &Path, suffix: &str) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(folder: &Path) -> OpenFiles {
        let database = folder.join("a.db");
        for suffix in ["", "-wal", "-shm"] {
            std::fs::write(beside(&database, suffix), "x").unwrap();
        }
        let before = Unopened::look(&database).unwrap();
        OpenFiles::look(&database, &before).unwrap()
    }

    #[test]
    fn each_file_that_is_replaced_is_noticed_for_good() {
        for suffix in ["", "-wal", "-shm"] {
            let folder = tempfile::tempdir().unwrap();
            let files = opened(folder.path());
            files.verify().unwrap();
            let path = beside(&folder.path().join("a.db"), suffix);
            let kept = folder.path().join("kept");
            std::fs::rename(&path, &kept).unwrap();
            let error = files.verify().unwrap_err();
            assert!(matches!(&error, LogError::Replaced { path: named } if *named == path), "{error:?}");
            let expected = if suffix.is_empty() { Whereabouts::Nameless } else { Whereabouts::Database };
            assert_eq!(files.whereabouts(), expected, "{suffix:?}");
            std::fs::write(&path, "another").unwrap();
            assert_eq!(files.whereabouts(), Whereabouts::Nameless, "{suffix:?}");
            std::fs::rename(&kept, &path).unwrap();
            assert!(matches!(files.verify(), Err(LogError::Replaced { .. })), "it stays refused");
        }
    }

    #[test]
    fn a_file_that_is_replaced_while_it_is_opened_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("a.db");
        std::fs::write(&database, "x").unwrap();
        let before = Unopened::look(&database).unwrap();
        std::fs::write(folder.path().join("b.db"), "y").unwrap();
        std::fs::rename(folder.path().join("b.db"), &database).unwrap();
        assert!(matches!(OpenFiles::look(&database, &before), Err(LogError::Replaced { .. })));
    }
}
