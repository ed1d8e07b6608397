//! Files that a peer named, read as the user who runs the program reads them.

use std::fs;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use parlor_vocab::{File, PathFlaw};

/// Reads `paths`, none of them larger than `max_bytes`.
pub(super) async fn read_all(paths: Vec<PathBuf>, max_bytes: u64) -> Vec<Result<File, PathFlaw>> {
    let count = paths.len();
    let read = move || paths.iter().map(|path| read(path, max_bytes)).collect();
    let done = tokio::task::spawn_blocking(read).await;
    done.unwrap_or_else(|_| (0..count).map(|_| Err(PathFlaw::Closed)).collect())
}

fn read(path: &Path, max_bytes: u64) -> Result<File, PathFlaw> {
    // Looked at first: opening a pipe would wait for whoever writes to it.
    let about = fs::metadata(path).map_err(|error| {
        let is_missing = matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory);
        if is_missing { PathFlaw::Missing } else { PathFlaw::Hidden }
    })?;
    if !about.is_file() {
        return Err(PathFlaw::NotFile);
    }
    if about.len() > max_bytes {
        return Err(PathFlaw::TooLarge(about.len()));
    }
    let mut bytes = Vec::new();
    let file = fs::File::open(path).map_err(|_| PathFlaw::Closed)?;
    // It may have grown in between.
    file.take(max_bytes + 1).read_to_end(&mut bytes).map_err(|_| PathFlaw::Closed)?;
    if bytes.len() as u64 > max_bytes {
        return Err(PathFlaw::TooLarge(bytes.len() as u64));
    }
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
    Ok(File { name: name.unwrap_or_default(), bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_read_is_told_apart() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("f"), b"four").unwrap();
        std::os::unix::fs::symlink(path("f"), path("link")).unwrap();
        assert_eq!(read(&path("gone"), 9), Err(PathFlaw::Missing));
        assert_eq!(read(&path("f/below"), 9), Err(PathFlaw::Missing));
        assert_eq!(read(folder.path(), 9), Err(PathFlaw::NotFile));
        assert_eq!(read(Path::new("/dev/null"), 9), Err(PathFlaw::NotFile));
        assert_eq!(read(&path("f"), 3), Err(PathFlaw::TooLarge(4)));
        for name in ["f", "link"] {
            assert_eq!(read(&path(name), 4).unwrap().bytes, b"four");
        }
    }
}
