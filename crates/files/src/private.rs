//! Parlor's own state folder: nothing in it can be changed through a policy, and little of it can be read.
//!
//! It may lie anywhere, in an allowed folder too, and have more names than one: links, `..`, a bind mount. So it is not
//! known by its path but by device and inode, and what is asked for is looked at from the inside: from the open folder
//! upwards by `..`, which no link can change.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, fstat, openat, statat};
use rustix::io::Errno;

/// What may be read of the state folder: skills and files of messages, which are for agents, and the user's
/// instructions, which models are told anyway.
pub const READABLE_STATE: [&str; 3] = ["AGENTS.md", "media", "skills"];

/// How many folders lie above each other at most: as many as a path can name.
const MAX_DEPTH: usize = crate::PATH_BYTES / 2 + 1;

/// How many entries of the state folder are looked at. It has a few dozen.
const MAX_ENTRIES: usize = 10_000;

/// What a file is known by, whatever it is called.
type FileId = (u64, u64);

/// The state folder, held open.
#[derive(Debug)]
pub(crate) struct PrivateFolder {
    pub(crate) path: PathBuf,
    folder: OwnedFd,
    id: FileId,
    /// Its folders of which nothing may be read. They are known by themselves, since one can be mounted elsewhere.
    closed: Vec<FileId>,
}

impl PrivateFolder {
    /// None if there is no such folder.
    pub(crate) fn open(path: &Path) -> Option<Self> {
        let folder = open_folder(CWD, path).ok()?;
        let id = id_of(&fstat(&folder).ok()?);
        let mut private = Self { path: path.to_owned(), folder, id, closed: Vec::new() };
        let is_closed = |name: &OsStr| !READABLE_STATE.iter().any(|readable| name == *readable);
        let closed = entries(private.folder.as_fd())
            .filter(|(name, _)| is_closed(name))
            .filter_map(|(name, _)| {
                let stat = statat(&private.folder, Path::new(&name), AtFlags::SYMLINK_NOFOLLOW).ok()?;
                (FileType::from_raw_mode(stat.st_mode) == FileType::Directory).then(|| id_of(&stat))
            })
            .collect();
        private.closed = closed;
        Some(private)
    }

    /// Whether `folder` is the state folder or lies in it.
    pub(crate) fn holds(&self, folder: BorrowedFd<'_>) -> Result<bool, Errno> {
        Ok(self.place(folder)? != Place::Outside)
    }

    /// Whether the entry `name` of `folder` may not be read, or `folder` itself if there is no name.
    pub(crate) fn hides(&self, folder: BorrowedFd<'_>, name: Option<&OsStr>) -> Result<bool, Errno> {
        let is_readable = |name: &OsStr| READABLE_STATE.iter().any(|readable| name == *readable);
        Ok(match self.place(folder)? {
            Place::Outside => false,
            Place::Top => !name.is_some_and(is_readable),
            Place::Below(entry) => !READABLE_STATE.iter().any(|name| {
                statat(&self.folder, *name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|stat| id_of(&stat) == entry)
            }),
            Place::Closed => true,
        })
    }

    /// Whether this is the state folder, one of its folders that may not be read, or one of their files under another
    /// name.
    pub(crate) fn is(&self, stat: &Stat) -> bool {
        let id = id_of(stat);
        let kind = FileType::from_raw_mode(stat.st_mode);
        if kind == FileType::Directory {
            return id == self.id || self.closed.contains(&id);
        }
        kind == FileType::RegularFile && stat.st_nlink > 1 && id.0 == self.id.0 && self.has_file(id.1)
    }

    /// Whether a file of this number is in the state folder, or in one of its folders that may not be read.
    fn has_file(&self, inode: u64) -> bool {
        let in_folder = |folder: BorrowedFd<'_>| entries(folder).any(|(_, entry)| entry == inode);
        let in_inner = |name: &OsStr| {
            statat(&self.folder, Path::new(name), AtFlags::SYMLINK_NOFOLLOW)
                .is_ok_and(|stat| self.closed.contains(&id_of(&stat)))
                && open_folder(&self.folder, Path::new(name)).is_ok_and(|inner| in_folder(inner.as_fd()))
        };
        in_folder(self.folder.as_fd()) || entries(self.folder.as_fd()).any(|(name, _)| in_inner(&name))
    }

    /// Where `folder` is, seen from the state folder.
    fn place(&self, folder: BorrowedFd<'_>) -> Result<Place, Errno> {
        let mut at = open_folder(folder, Path::new("."))?;
        let mut below = None;
        for _ in 0..MAX_DEPTH {
            let id = id_of(&fstat(&at)?);
            if id == self.id {
                return Ok(below.map_or(Place::Top, Place::Below));
            }
            if self.closed.contains(&id) {
                return Ok(Place::Closed);
            }
            let above = open_folder(&at, Path::new(".."))?;
            if id_of(&fstat(&above)?) == id {
                return Ok(Place::Outside);
            }
            (below, at) = (Some(id), above);
        }
        Err(Errno::NAMETOOLONG)
    }
}

/// Where a folder is, seen from the state folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Outside,
    /// It is the state folder.
    Top,
    /// In that entry of the state folder, or that entry itself.
    Below(FileId),
    /// In a folder of which nothing may be read, wherever that is mounted.
    Closed,
}

fn id_of(stat: &Stat) -> FileId {
    (stat.st_dev, stat.st_ino)
}

fn open_folder(from: impl AsFd, path: &Path) -> Result<OwnedFd, Errno> {
    openat(from, path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

/// The names in a folder with their inodes. Those of a folder that cannot be read are none.
fn entries(folder: BorrowedFd<'_>) -> impl Iterator<Item = (OsString, u64)> {
    // The descriptor stands for a path alone, and cannot be read itself.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let readable = openat(folder, ".", flags, Mode::empty()).and_then(Dir::new);
    let entries = readable.into_iter().flatten().flatten().take(MAX_ENTRIES);
    entries
        .map(|entry| (OsStr::from_bytes(entry.file_name().to_bytes()).to_owned(), entry.ino()))
        .filter(|(name, _)| name != "." && name != "..")
}
