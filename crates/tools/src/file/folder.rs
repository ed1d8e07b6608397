//! Reads the entries of a folder through its descriptor.

use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, openat, statat};
use rustix::io::Errno;

/// How many entries of one folder are read. Sorting needs all of them in memory.
pub const LIST_FOLDER_ENTRIES: usize = 100_000;

/// A name in a folder and its file type. Symbolic links are not followed.
#[derive(Debug)]
pub(super) struct FolderEntry {
    pub(super) name: OsString,
    pub(super) kind: FileType,
}

/// The entries of a folder.
#[derive(Debug)]
pub(super) struct FolderEntries {
    /// Sorted by name.
    pub(super) entries: Vec<FolderEntry>,
    /// Whether the folder has more than [`LIST_FOLDER_ENTRIES`].
    pub(super) more: bool,
}

/// Reads the entries of the folder `fd`, which may have been opened with `O_PATH`.
pub(super) fn read_entries(fd: impl AsFd) -> Result<FolderEntries, Errno> {
    read_entries_up_to(LIST_FOLDER_ENTRIES, fd.as_fd())
}

fn read_entries_up_to(limit: usize, fd: BorrowedFd<'_>) -> Result<FolderEntries, Errno> {
    let mut entries = Vec::new();
    let mut more = false;
    for entry in Dir::read_from(fd)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name == b"." || name == b".." {
            continue;
        }
        if entries.len() == limit {
            more = true;
            break;
        }
        let name = std::ffi::OsStr::from_bytes(name).to_owned();
        let mut kind = entry.file_type();
        if kind == FileType::Unknown {
            // Some file systems do not return the type with the name.
            kind = statat(fd, Path::new(&name), AtFlags::SYMLINK_NOFOLLOW)
                .map_or(FileType::Unknown, |stat| FileType::from_raw_mode(stat.st_mode));
        }
        entries.push(FolderEntry { name, kind });
    }
    entries.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(FolderEntries { entries, more })
}

/// Opens the folder `name` in `folder`. Fails for a symbolic link.
pub(super) fn open_subfolder(folder: impl AsFd, name: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(folder, name, flags, Mode::empty())
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};

    use super::*;

    #[test]
    fn names_are_sorted_and_the_limit_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["b", "a", "c"] {
            fs::write(dir.path().join(name), "").unwrap();
        }
        let folder = File::open(dir.path()).unwrap();
        let found = read_entries(&folder).unwrap();
        let names: Vec<&str> = found.entries.iter().map(|entry| entry.name.to_str().unwrap()).collect();
        assert_eq!(names, ["a", "b", "c"]);
        assert!(!found.more);
        assert!(!read_entries_up_to(3, folder.as_fd()).unwrap().more);
        let found = read_entries_up_to(2, folder.as_fd()).unwrap();
        assert!(found.more && found.entries.len() == 2);
    }
}
