//! Opens regular files and lists folders through a policy.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use parlor_vocab::{Failure, FailureCode};
use rustix::fs::{Dir, FileType, OFlags, Stat, fstat};

use crate::failure::{failure, system};
use crate::{OpenedFile, Policy};

impl Policy {
    /// Opens a regular file for reading. Does not open a FIFO or a device even briefly.
    pub fn open_file(&self, folder: &Path, path: &str) -> Result<(File, Stat), Failure> {
        let (opened, stat) = self.open_regular(folder, path)?;
        Ok((File::from(opened.fd), stat))
    }

    /// The same, with the path that was opened.
    pub fn open_regular(&self, folder: &Path, path: &str) -> Result<(OpenedFile, Stat), Failure> {
        // Check first, because opening a device or a FIFO can have effects. The check after the opening is the reliable one.
        let checked = self.open(folder, path, OFlags::PATH)?;
        check_regular(path, &checked.fd)?;
        let opened = self.open(folder, path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY)?;
        let stat = check_regular(path, &opened.fd)?;
        Ok((opened, stat))
    }

    /// The entries of a folder that may be folders (folders and links), sorted by name; and the number of entries read, at
    /// most `limit`.
    pub fn subfolders(
        &self,
        folder: &Path,
        path: &str,
        limit: usize,
    ) -> Result<(Vec<OsString>, usize), Failure> {
        let opened = self.open(folder, path, OFlags::RDONLY | OFlags::DIRECTORY)?;
        let entries = Dir::new(opened.fd).map_err(system("read", path))?;
        let (mut names, mut entries_read) = (Vec::new(), 0);
        for entry in entries {
            let entry = entry.map_err(system("read", path))?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            if entries_read == limit {
                break;
            }
            entries_read += 1;
            // Some file systems do not report the type of an entry.
            if [FileType::Directory, FileType::Symlink, FileType::Unknown].contains(&entry.file_type()) {
                names.push(OsStr::from_bytes(name).to_owned());
            }
        }
        names.sort();
        Ok((names, entries_read))
    }

    /// Whether `path` is a folder or a link to one. Fails if it does not exist.
    pub fn is_folder(&self, folder: &Path, path: &str) -> Result<bool, Failure> {
        let opened = self.open(folder, path, OFlags::PATH)?;
        let stat = fstat(&opened.fd).map_err(system("look at", path))?;
        Ok(FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
    }
}

/// Fails unless `fd` is a regular file; the message names what it is instead.
pub fn check_regular(path: &str, fd: impl AsFd) -> Result<Stat, Failure> {
    let stat = fstat(fd).map_err(system("look at", path))?;
    let what = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => return Ok(stat),
        FileType::Directory => "a folder, not a file",
        FileType::Symlink => "a symbolic link that leads nowhere",
        FileType::Fifo => "a FIFO, not a file",
        FileType::Socket => "a socket, not a file",
        FileType::CharacterDevice | FileType::BlockDevice => "a device, not a file",
        FileType::Unknown => "not a file",
    };
    Err(failure(FailureCode::Unsupported, format!("`{path}` is {what}")))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn only_regular_files_inside_of_the_roots_are_opened() {
        let folder = tempfile::tempdir().unwrap();
        let project = folder.path().join("project");
        fs::create_dir_all(project.join("sub")).unwrap();
        fs::write(folder.path().join("secret"), "x").unwrap();
        fs::write(project.join("file"), "x").unwrap();
        symlink("../file", project.join("sub/inside")).unwrap();
        symlink("../secret", project.join("outside")).unwrap();
        symlink("/dev/null", project.join("device")).unwrap();
        let policy = Policy::new([&project]).unwrap();
        assert!(policy.open_file(&project, "sub/inside").is_ok());
        let code = |path: &str| policy.open_file(&project, path).unwrap_err().code;
        assert_eq!(
            [code("outside"), code("device"), code("../secret")],
            [const { FailureCode::PathRefused }; 3]
        );
        assert_eq!([code("sub"), code("none")], [FailureCode::Unsupported, FailureCode::NotFound]);
        let everything = Policy::new(["/"]).unwrap();
        assert_eq!(everything.open_file(&project, "device").unwrap_err().code, FailureCode::Unsupported);
    }

    #[test]
    fn subfolders_are_sorted_and_have_a_limit() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["b", "a"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        fs::write(folder.path().join("file"), "").unwrap();
        symlink("a", folder.path().join("link")).unwrap();
        let policy = Policy::new([folder.path()]).unwrap();
        let names = |limit| policy.subfolders(folder.path(), ".", limit).unwrap();
        assert_eq!(names(9), (vec!["a".into(), "b".into(), "link".into()], 4));
        assert_eq!(names(2).1, 2);
        assert!(policy.is_folder(folder.path(), "a").unwrap());
    }
}
