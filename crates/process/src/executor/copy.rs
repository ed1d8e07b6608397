//! Copies files, links and folders.

use std::fs::{self, FileType, ReadDir};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use parlor_vocab::{ExecutorRefusal, FileReply};

use super::files::{Outcome, refusal};

/// How deep a copied folder may be: each level keeps a folder open.
pub const MAX_COPY_DEPTH: usize = 128;

pub(super) fn copy(
    source: &Path,
    destination: &Path,
    recursive: bool,
    is_abandoned: &dyn Fn() -> bool,
) -> Outcome<FileReply> {
    let kind = fs::symlink_metadata(source).map_err(refusal)?.file_type();
    if !kind.is_dir() {
        copy_file(kind, source, destination)?;
        return Ok(FileReply::Done);
    }
    if !recursive {
        return refused("fs/copy requires recursive: true when sourcePath is a directory");
    }
    let top = fs::canonicalize(source).map_err(refusal)?;
    // The destination may not exist yet; then its nearest existing parent decides.
    let parent = destination.ancestors().find_map(|path| fs::canonicalize(path).ok());
    if parent.is_some_and(|parent| parent.starts_with(&top)) {
        return refused("fs/copy cannot copy a directory to itself or one of its descendants");
    }
    let mut open = vec![open_folder(source, destination.to_path_buf())?];
    while let Some((listing, destination)) = open.last_mut() {
        let Some(entry) = listing.next() else {
            open.pop();
            continue;
        };
        let entry = entry.map_err(refusal)?;
        let destination = destination.join(entry.file_name());
        let kind = entry.file_type().map_err(refusal)?;
        if is_abandoned() {
            return Err(ExecutorRefusal::FileFailed("the copy was given up".to_owned()));
        } else if !kind.is_dir() {
            copy_file(kind, &entry.path(), &destination)?;
        } else if open.len() < MAX_COPY_DEPTH {
            open.push(open_folder(&entry.path(), destination)?);
        } else {
            return refused("fs/copy cannot copy folders that are this deep");
        }
    }
    Ok(FileReply::Done)
}

/// Creates `destination` and returns the content of `source`.
fn open_folder(source: &Path, destination: PathBuf) -> Outcome<(ReadDir, PathBuf)> {
    fs::create_dir_all(&destination).map_err(refusal)?;
    Ok((fs::read_dir(source).map_err(refusal)?, destination))
}

fn copy_file(kind: FileType, source: &Path, destination: &Path) -> Outcome<()> {
    if kind.is_symlink() {
        fs::read_link(source).and_then(|target| symlink(target, destination)).map_err(refusal)
    } else if kind.is_file() {
        fs::copy(source, destination).map(|_| ()).map_err(refusal)
    } else {
        refused("fs/copy only supports regular files, directories, and symlinks")
    }
}

fn refused<T>(text: &str) -> Outcome<T> {
    Err(ExecutorRefusal::FileRefused(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_copied_down_to_the_deepest_level() {
        let folder = tempfile::tempdir().unwrap();
        let (source, copied) = (folder.path().join("a"), folder.path().join("b"));
        let deep = (1..MAX_COPY_DEPTH).fold(source.clone(), |path, _| path.join("d"));
        fs::create_dir_all(&deep).unwrap();
        fs::write(deep.join("f"), "text").unwrap();
        assert_eq!(copy(&source, &copied, true, &|| false), Ok(FileReply::Done));
        let file = (1..MAX_COPY_DEPTH).fold(copied.clone(), |path, _| path.join("d")).join("f");
        assert_eq!(fs::read_to_string(file).unwrap(), "text");

        fs::create_dir(deep.join("d")).unwrap();
        let refused = copy(&source, &copied, true, &|| false);
        assert!(matches!(refused, Err(ExecutorRefusal::FileRefused(_))), "{refused:?}");
    }

    #[test]
    fn an_abandoned_copy_stops() {
        let folder = tempfile::tempdir().unwrap();
        let (source, copied) = (folder.path().join("a"), folder.path().join("b"));
        fs::create_dir(&source).unwrap();
        fs::write(source.join("f"), "text").unwrap();
        assert!(copy(&source, &copied, true, &|| true).is_err());
        assert!(!copied.join("f").exists());
    }
}
