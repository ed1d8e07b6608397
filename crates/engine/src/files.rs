//! Reads whole files that a client named, up to a size limit, without blocking on a pipe that nobody writes to.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use parlor_vocab::{FileError, NamedFile};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;

/// What [`read_files`] does when the last part of a path is a symbolic link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SymlinkPolicy {
    /// Read the file that the link points to.
    Follow,
    /// Fail: somebody else may have created the link.
    Refuse,
}

/// Reads each of `paths`. A file larger than `max_bytes` fails. The results are in the order of `paths`.
pub async fn read_files(
    paths: Vec<PathBuf>,
    max_bytes: u64,
    symlinks: SymlinkPolicy,
) -> Vec<Result<NamedFile, FileError>> {
    let count = paths.len();
    let read = move || paths.iter().map(|path| read_file(path, max_bytes, symlinks)).collect();
    tokio::task::spawn_blocking(read).await.unwrap_or_else(|_| vec![Err(FileError::Unreadable); count])
}

fn read_file(path: &Path, max_bytes: u64, symlinks: SymlinkPolicy) -> Result<NamedFile, FileError> {
    // Without NONBLOCK, opening a pipe blocks until somebody opens its other end.
    let mut flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    if symlinks == SymlinkPolicy::Refuse {
        flags |= OFlags::NOFOLLOW;
    }
    let file = File::from(open(path, flags, Mode::empty()).map_err(|errno| open_error(path, errno))?);
    let metadata = file.metadata().map_err(|_| FileError::Inaccessible)?;
    if !metadata.is_file() {
        return Err(FileError::NotRegular);
    }
    if metadata.len() > max_bytes {
        return Err(FileError::TooLarge { bytes: metadata.len() });
    }
    let mut bytes = Vec::new();
    file.take(max_bytes + 1).read_to_end(&mut bytes).map_err(|_| FileError::Unreadable)?;
    // The file may have grown since its size was checked.
    if bytes.len() as u64 > max_bytes {
        return Err(FileError::TooLarge { bytes: bytes.len() as u64 });
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Ok(NamedFile { name, bytes })
}

/// `open` gives the same error for an unreadable file and for an inaccessible folder; this tells them apart.
fn open_error(path: &Path, errno: Errno) -> FileError {
    match errno {
        Errno::NOENT | Errno::NOTDIR => FileError::Missing,
        // A socket cannot be opened at all.
        Errno::NXIO => FileError::NotRegular,
        _ => match path.metadata() {
            Ok(metadata) if !metadata.is_file() => FileError::NotRegular,
            Ok(_) => FileError::Unreadable,
            Err(_) => FileError::Inaccessible,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn only_regular_files_within_the_limit_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("plain"), "hello").unwrap();
        std::fs::write(path("empty"), "").unwrap();
        symlink(path("plain"), path("link")).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            path("pipe"),
            rustix::fs::FileType::Fifo,
            Mode::RUSR | Mode::WUSR,
            0,
        )
        .unwrap();
        let read = |name: &str, max_bytes| read_file(&path(name), max_bytes, SymlinkPolicy::Refuse);
        let plain = NamedFile { name: "plain".to_owned(), bytes: b"hello".to_vec() };
        assert_eq!(read("plain", 5), Ok(plain));
        assert_eq!(read("plain", 4), Err(FileError::TooLarge { bytes: 5 }));
        assert_eq!(read("empty", 5).unwrap().bytes, b"");
        assert_eq!(read("link", 5), Err(FileError::Unreadable));
        assert_eq!(read_file(&path("link"), 5, SymlinkPolicy::Follow).unwrap().bytes, b"hello");
        assert_eq!(read("missing", 5), Err(FileError::Missing));
        assert_eq!(read("plain/below", 5), Err(FileError::Missing));
        assert_eq!(read("pipe", 5), Err(FileError::NotRegular));
        assert_eq!(read("", 5), Err(FileError::NotRegular));
        assert_eq!(read_file(Path::new("/dev/null"), 5, SymlinkPolicy::Follow), Err(FileError::NotRegular));
    }
}
