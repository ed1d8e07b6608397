//! Replaces a file's content at once: whoever reads sees all of the old or all of the new.
//!
//! The new content goes into a file of its own in the same folder, reaches the disk, and takes the
//! old one's name. All of it relative to the folder's descriptor, so that nothing that happens to
//! the path in the meantime can lead it elsewhere.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};

use parlor_vocab::Failure;
use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, Stat, Uid, fchmod, fchown, openat, renameat, statat, unlinkat,
};
use rustix::io::Errno;

use crate::code::{PATH_CHANGED, failure, system};
use crate::file::regular;
use crate::policy::{PATH_TRIES, Parents, Spot};
use crate::tool::Context;

/// What a replacement found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Before {
    /// Nothing was there.
    Missing,
    /// A file was there, and is gone now.
    File,
}

/// Writes `bytes` as the whole content of `path`, creating it and the folders above if need be. A
/// file that was there keeps its permissions, and its owner where the system allows.
///
/// With `unless_changed`, only if the file is still the one that had this status.
pub(crate) fn replace(
    context: &Context,
    path: &str,
    bytes: &[u8],
    unless_changed: Option<&Stat>,
) -> Result<Before, Failure> {
    for _ in 0..PATH_TRIES {
        context.check()?;
        let spot = context.policy.spot(&context.folder, path, Parents::Made)?;
        let old = match statat(&spot.folder, Path::new(&spot.name), AtFlags::SYMLINK_NOFOLLOW) {
            // The policy followed all links: this one has just appeared. Follow it as well.
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink => continue,
            Ok(stat) => Some(stat),
            Err(Errno::NOENT) => None,
            Err(errno) => return Err(system("look at", path)(errno)),
        };
        if old.is_some() {
            check_regular(path, &spot)?;
        }
        if let Some(seen) = unless_changed
            && !old.as_ref().is_some_and(|old| is_same(seen, old))
        {
            let message = format!("`{path}` was changed by somebody else meanwhile; read it again");
            return Err(failure(PATH_CHANGED, message));
        }
        put(&spot, bytes, old.as_ref())
            .map_err(|error| system("write", path)(Errno::from_io_error(&error).unwrap_or(Errno::IO)))?;
        return Ok(if old.is_some() { Before::File } else { Before::Missing });
    }
    Err(failure(PATH_CHANGED, format!("`{path}` keeps changing while it is looked at")))
}

/// Refuses to put a file in the place of a folder, a FIFO or a device.
fn check_regular(path: &str, spot: &Spot) -> Result<(), Failure> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match openat(&spot.folder, Path::new(&spot.name), flags, Mode::empty()) {
        Ok(fd) => regular(path, fd).map(|_| ()),
        Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(system("look at", path)(errno)),
    }
}

fn is_same(one: &Stat, other: &Stat) -> bool {
    let mark = |stat: &Stat| (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime, stat.st_mtime_nsec);
    mark(one) == mark(other)
}

fn put(spot: &Spot, bytes: &[u8], old: Option<&Stat>) -> io::Result<()> {
    let (name, fd) = create_beside(spot.folder.as_fd(), old)?;
    let outcome = fill(fd, bytes, old).and_then(|()| {
        renameat(&spot.folder, &name, &spot.folder, Path::new(&spot.name)).map_err(io::Error::from)
    });
    if outcome.is_err() {
        // The first failure is the one to tell; this one leaves a file with a telling name.
        let _ = unlinkat(&spot.folder, &name, AtFlags::empty());
    }
    outcome?;
    sync_folder(spot.folder.as_fd());
    Ok(())
}

/// Creates a new file with a name that nobody has.
fn create_beside(folder: BorrowedFd<'_>, old: Option<&Stat>) -> io::Result<(String, OwnedFd)> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    // Private until it has the permissions of the old one; a new file gets what the umask leaves.
    let mode = Mode::from_raw_mode(if old.is_some() { 0o600 } else { 0o666 });
    loop {
        let name = format!(".parlor-{}-{}.tmp", process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        match openat(folder, &name, flags, mode) {
            Ok(fd) => return Ok((name, fd)),
            Err(Errno::EXIST | Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

fn fill(fd: OwnedFd, bytes: &[u8], old: Option<&Stat>) -> io::Result<()> {
    let mut file = File::from(fd);
    file.write_all(bytes)?;
    if let Some(old) = old {
        let owned = fchown(&file, Some(Uid::from_raw(old.st_uid)), Some(Gid::from_raw(old.st_gid)));
        // Without the old owner, "run as the owner" would mean somebody else.
        let keep = if owned.is_ok() { 0o7777 } else { 0o777 };
        fchmod(&file, Mode::from_raw_mode(old.st_mode & keep))?;
    }
    file.sync_all()
}

/// Makes the new name durable. Best effort: a folder that may be written but not read cannot be
/// opened for it, and the content is safe in either case.
fn sync_folder(folder: BorrowedFd<'_>) {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    if let Ok(folder) = openat(folder, ".", flags, Mode::empty()) {
        let _ = rustix::fs::fsync(folder);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_failed_write_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let context = Context::new(folder.path()).unwrap();
        let spot = context.policy.spot(&context.folder, "a", Parents::Made).unwrap();
        // Too late for any check: nothing can take the name of a folder.
        fs::create_dir(folder.path().join("a")).unwrap();
        assert!(put(&spot, b"text", None).is_err());
        let names: Vec<_> =
            fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["a"]);
    }

    #[test]
    fn a_file_that_somebody_else_changed_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let context = Context::new(folder.path()).unwrap();
        let path = folder.path().join("a");
        fs::write(&path, "old").unwrap();
        let seen = rustix::fs::stat(&path).unwrap();
        assert_eq!(replace(&context, "a", b"mine", Some(&seen)), Ok(Before::File));
        // By now another file has the name.
        let failure = replace(&context, "a", b"stale", Some(&seen)).unwrap_err();
        assert_eq!(failure.code, PATH_CHANGED);
        assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
        fs::remove_file(&path).unwrap();
        assert_eq!(replace(&context, "a", b"stale", Some(&seen)).unwrap_err().code, PATH_CHANGED);
        assert!(!path.exists());
    }
}
