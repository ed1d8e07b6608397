//! Files of this machine that a peer named: read whole, and never waited for.

use std::fs::File as Handle;
use std::io::Read;
use std::path::{Path, PathBuf};

use parlor_vocab::{File, FileFlaw};
use rustix::fs::{Mode, OFlags, open};

/// Reads each of `paths`, none larger than `max_bytes`.
pub(crate) async fn read_all(paths: Vec<PathBuf>, max_bytes: u64) -> Vec<Result<File, FileFlaw>> {
    let count = paths.len();
    let read = move || paths.iter().map(|path| read(path, max_bytes)).collect();
    tokio::task::spawn_blocking(read).await.unwrap_or_else(|_| vec![Err(FileFlaw::Closed); count])
}

fn read(path: &Path, max_bytes: u64) -> Result<File, FileFlaw> {
    // The last name is not followed, since it may be a link that somebody put there for us; a pipe
    // without a writer is not waited for.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let handle = open(path, flags, Mode::empty()).map_err(|_| FileFlaw::Closed)?;
    let handle = Handle::from(handle);
    let about = handle.metadata().map_err(|_| FileFlaw::Closed)?;
    if !about.is_file() {
        return Err(FileFlaw::NotRegular);
    }
    if about.len() > max_bytes {
        return Err(FileFlaw::TooLarge);
    }
    let mut bytes = Vec::new();
    handle.take(max_bytes + 1).read_to_end(&mut bytes).map_err(|_| FileFlaw::Closed)?;
    match bytes.len() as u64 {
        0 => Err(FileFlaw::Empty),
        // It grew while it was read.
        read if read > max_bytes => Err(FileFlaw::TooLarge),
        _ => {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            Ok(File { name, bytes })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn only_plain_files_with_something_in_them_are_read() {
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
        let plain = File { name: "plain".to_owned(), bytes: b"hello".to_vec() };
        assert_eq!(read(&path("plain"), 5), Ok(plain));
        assert_eq!(read(&path("plain"), 4), Err(FileFlaw::TooLarge));
        assert_eq!(read(&path("empty"), 5), Err(FileFlaw::Empty));
        assert_eq!(read(&path("link"), 5), Err(FileFlaw::Closed));
        assert_eq!(read(&path("missing"), 5), Err(FileFlaw::Closed));
        assert_eq!(read(&path("pipe"), 5), Err(FileFlaw::NotRegular));
        assert_eq!(read(folder.path(), 5), Err(FileFlaw::NotRegular));
    }
}
