//! Protects parlor's own state folder: through a policy nothing in it can be changed, and little of it can be read.
//!
//! The state folder may be anywhere, even in an allowed folder, and may have several paths: links, `..`, a bind mount. So
//! this module identifies it by device and inode. To find out whether a folder is inside, it walks from the open folder
//! upwards by `..`, which no link can change.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, fstat, openat, statat};
use rustix::io::Errno;

/// The entries of the state folder that tools may read: skills and media, which are for agents, and the user's instructions,
/// which models get anyway.
pub const READABLE_STATE: [&str; 3] = ["AGENTS.md", "media", "skills"];

/// The deepest nesting of folders: as many as a path can name.
const MAX_DEPTH: usize = crate::PATH_BYTES / 2 + 1;

/// The largest number of entries to read of a folder. The state folder has a few dozen.
const MAX_ENTRIES: usize = 10_000;

/// Device and inode: identifies a file independently of its path.
type FileId = (u64, u64);

/// The state folder with an open descriptor.
#[derive(Debug)]
pub(crate) struct PrivateFolder {
    pub(crate) path: PathBuf,
    folder: OwnedFd,
    id: FileId,
    /// The folders in it that may not be read. Listed on their own, because one can be mounted elsewhere.
    unreadable: Vec<FileId>,
}

impl PrivateFolder {
    /// `None` if the folder does not exist.
    pub(crate) fn open(path: &Path) -> Option<Self> {
        let folder = open_folder(CWD, path).ok()?;
        let id = id_of(&fstat(&folder).ok()?);
        let mut private = Self { path: path.to_owned(), folder, id, unreadable: Vec::new() };
        let is_unreadable = |name: &OsStr| !READABLE_STATE.iter().any(|readable| name == *readable);
        let unreadable = entries(private.folder.as_fd())
            .filter(|(name, _)| is_unreadable(name))
            .filter_map(|(name, _)| {
                let stat = statat(&private.folder, Path::new(&name), AtFlags::SYMLINK_NOFOLLOW).ok()?;
                (FileType::from_raw_mode(stat.st_mode) == FileType::Directory).then(|| id_of(&stat))
            })
            .collect();
        private.unreadable = unreadable;
        Some(private)
    }

    /// Whether `folder` is the state folder or inside of it.
    pub(crate) fn contains(&self, folder: BorrowedFd<'_>) -> Result<bool, Errno> {
        Ok(self.position(folder)? != Position::Outside)
    }

    /// Whether the entry `name` of `folder` may not be read; without a name, whether `folder` itself may not.
    pub(crate) fn hides(&self, folder: BorrowedFd<'_>, name: Option<&OsStr>) -> Result<bool, Errno> {
        let is_readable = |name: &OsStr| READABLE_STATE.iter().any(|readable| name == *readable);
        Ok(match self.position(folder)? {
            Position::Outside => false,
            Position::Top => !name.is_some_and(is_readable),
            Position::Below(entry) => !READABLE_STATE.iter().any(|name| {
                statat(&self.folder, *name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|stat| id_of(&stat) == entry)
            }),
            Position::Unreadable => true,
        })
    }

    /// Whether this is the state folder, one of its unreadable folders, or a hard link to a file in one of them.
    pub(crate) fn is_unreadable(&self, stat: &Stat) -> bool {
        let id = id_of(stat);
        let kind = FileType::from_raw_mode(stat.st_mode);
        if kind == FileType::Directory {
            return id == self.id || self.unreadable.contains(&id);
        }
        kind == FileType::RegularFile && stat.st_nlink > 1 && id.0 == self.id.0 && self.has_file(id.1)
    }

    /// Whether a file with this inode is in the state folder or in one of its unreadable folders.
    fn has_file(&self, inode: u64) -> bool {
        let in_folder = |folder: BorrowedFd<'_>| entries(folder).any(|(_, entry)| entry == inode);
        let in_inner = |name: &OsStr| {
            statat(&self.folder, Path::new(name), AtFlags::SYMLINK_NOFOLLOW)
                .is_ok_and(|stat| self.unreadable.contains(&id_of(&stat)))
                && open_folder(&self.folder, Path::new(name)).is_ok_and(|inner| in_folder(inner.as_fd()))
        };
        in_folder(self.folder.as_fd()) || entries(self.folder.as_fd()).any(|(name, _)| in_inner(&name))
    }

    /// Where `folder` is relative to the state folder.
    fn position(&self, folder: BorrowedFd<'_>) -> Result<Position, Errno> {
        let mut current = open_folder(folder, Path::new("."))?;
        let mut below = None;
        for _ in 0..MAX_DEPTH {
            let id = id_of(&fstat(&current)?);
            if id == self.id {
                return Ok(below.map_or(Position::Top, Position::Below));
            }
            if self.unreadable.contains(&id) {
                return Ok(Position::Unreadable);
            }
            let parent = open_folder(&current, Path::new(".."))?;
            if id_of(&fstat(&parent)?) == id {
                return Ok(Position::Outside);
            }
            (below, current) = (Some(id), parent);
        }
        Err(Errno::NAMETOOLONG)
    }
}

/// The position of a folder relative to the state folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Position {
    Outside,
    /// The state folder itself.
    Top,
    /// This entry of the state folder, or inside of it.
    Below(FileId),
    /// Inside of an unreadable folder, wherever that is mounted.
    Unreadable,
}

fn id_of(stat: &Stat) -> FileId {
    (stat.st_dev, stat.st_ino)
}

fn open_folder(from: impl AsFd, path: &Path) -> Result<OwnedFd, Errno> {
    openat(from, path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

/// The names in a folder with their inodes; empty if the folder cannot be read.
fn entries(folder: BorrowedFd<'_>) -> impl Iterator<Item = (OsString, u64)> {
    // An `O_PATH` descriptor cannot be read itself.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let readable = openat(folder, ".", flags, Mode::empty()).and_then(Dir::new);
    let entries = readable.into_iter().flatten().flatten().take(MAX_ENTRIES);
    entries
        .map(|entry| (OsStr::from_bytes(entry.file_name().to_bytes()).to_owned(), entry.ino()))
        .filter(|(name, _)| name != "." && name != "..")
}
