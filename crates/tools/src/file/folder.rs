//! What is in a folder, read through its descriptor.

use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, openat, statat};
use rustix::io::Errno;

/// How many entries of one folder are looked at. All of them must be in memory to be sorted.
pub const LIST_FOLDER_ENTRIES: usize = 100_000;

/// A name in a folder and what it is. A symbolic link is a symbolic link.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) name: OsString,
    pub(super) kind: FileType,
}

/// The items of a folder.
#[derive(Debug)]
pub(super) struct Items {
    /// Sorted by name.
    pub(super) items: Vec<Item>,
    /// Whether there are more than [`LIST_FOLDER_ENTRIES`].
    pub(super) more: bool,
}

/// Reads the folder that `fd` is, which may have been opened for its path alone.
pub(super) fn items(fd: impl AsFd) -> Result<Items, Errno> {
    items_within(LIST_FOLDER_ENTRIES, fd.as_fd())
}

fn items_within(limit: usize, fd: BorrowedFd<'_>) -> Result<Items, Errno> {
    let mut items = Vec::new();
    let mut more = false;
    for entry in Dir::read_from(fd)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name == b"." || name == b".." {
            continue;
        }
        if items.len() == limit {
            more = true;
            break;
        }
        let name = std::ffi::OsStr::from_bytes(name).to_owned();
        let mut kind = entry.file_type();
        if kind == FileType::Unknown {
            // Some file systems do not say; ask about the name itself.
            kind = statat(fd, Path::new(&name), AtFlags::SYMLINK_NOFOLLOW)
                .map_or(FileType::Unknown, |stat| FileType::from_raw_mode(stat.st_mode));
        }
        items.push(Item { name, kind });
    }
    items.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(Items { items, more })
}

/// Opens the folder `name` in `folder`, unless it is a symbolic link.
pub(super) fn enter(folder: impl AsFd, name: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(folder, name, flags, Mode::empty())
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};

    use super::*;

    #[test]
    fn names_are_sorted_and_too_many_are_told() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["b", "a", "c"] {
            fs::write(dir.path().join(name), "").unwrap();
        }
        let folder = File::open(dir.path()).unwrap();
        let found = items(&folder).unwrap();
        let names: Vec<&str> = found.items.iter().map(|item| item.name.to_str().unwrap()).collect();
        assert_eq!(names, ["a", "b", "c"]);
        assert!(!found.more);
        assert!(!items_within(3, folder.as_fd()).unwrap().more);
        let found = items_within(2, folder.as_fd()).unwrap();
        assert!(found.more && found.items.len() == 2);
    }
}
