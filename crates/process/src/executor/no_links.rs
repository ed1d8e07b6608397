//! Access to paths that must not lead through symbolic links. The kernel checks it while it resolves the path, so that
//! nobody can put a link into the path between a check and the access.

use std::fs::{self, File, Metadata};
use std::io::ErrorKind;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use parlor_vocab::ExecutorRefusal;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;

use super::files::{Outcome, refusal};

/// The metadata of a file.
pub(super) fn metadata(path: &Path) -> Outcome<Metadata> {
    File::from(open(path, OFlags::PATH)?).metadata().map_err(refusal)
}

/// Calls `access` with a path for `path` whose parent is open, so that only the last part is looked up. `access` must not
/// follow a link there.
pub(super) fn in_parent<T>(path: &Path, access: impl FnOnce(&Path) -> Outcome<T>) -> Outcome<T> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        // The root folder has no parent, and is no link.
        return access(path);
    };
    let parent = open(parent, OFlags::PATH | OFlags::DIRECTORY)?;
    let inside = PathBuf::from(format!("/proc/self/fd/{}", parent.as_raw_fd())).join(name);
    access(&inside)
}

/// Creates a folder in an existing one.
pub(super) fn create_folder(path: &Path) -> Outcome<()> {
    in_parent(path, |path| fs::create_dir(path).map_err(refusal))
}

/// Creates a folder and its parents, as far as they are missing.
pub(super) fn create_folders(path: &Path) -> Outcome<()> {
    let mut folders: Vec<&Path> = path.ancestors().collect();
    folders.reverse();
    for folder in folders {
        match metadata(folder) {
            Ok(metadata) if metadata.is_dir() => {}
            Ok(_) => return Err(refusal(ErrorKind::NotADirectory.into())),
            Err(ExecutorRefusal::FileNotFound(_)) => create_folder(folder)?,
            Err(refusal) => return Err(refusal),
        }
    }
    Ok(())
}

fn open(path: &Path, flags: OFlags) -> Outcome<OwnedFd> {
    loop {
        match openat2(CWD, path, flags | OFlags::CLOEXEC, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
            // A concurrent change of the tree makes the kernel ask for another attempt.
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(Errno::LOOP) => {
                let path = path.display();
                return Err(ExecutorRefusal::FileRefused(format!("path `{path}` has a symbolic link in it")));
            }
            opened => return opened.map_err(|error| refusal(error.into())),
        }
    }
}
