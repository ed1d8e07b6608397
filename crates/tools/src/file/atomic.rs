//! Replaces a file's content at once: whoever reads sees all of the old or all of the new.
//!
//! The new content goes into a file of its own in the same folder, reaches the disk, and takes the
//! old one's name. All of it relative to the folder's descriptor, so that nothing that happens to
//! the path in the meantime can lead it elsewhere.
//!
//! Where a change of somebody else must not be lost, the last look at the old file is right before
//! the new one takes its name. Between the two, a lock on the folder keeps out everybody who
//! replaces files by this module, in whatever process. Other programs know no such lock: what they
//! change between these two system calls is lost.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parlor_vocab::{Failure, FailureCode};
use rustix::fs::{
    AtFlags, FileType, FlockOperation, Gid, Mode, OFlags, Stat, Uid, fchmod, fchown, flock, fsync, openat,
    renameat, statat, unlinkat,
};
use rustix::io::Errno;

use crate::code::{failure, system};
use crate::tool::ToolContext;
use parlor_files::{FoundEntry, PATH_TRIES, ParentFolders, check_regular};

/// How long a replacement waits for others in the same folder before it goes on without a lock.
const FOLDER_WAIT: Duration = Duration::from_secs(2);

/// How long to wait before trying again to lock a folder.
const FOLDER_STEP: Duration = Duration::from_millis(1);

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
    context: &ToolContext,
    path: &str,
    bytes: &[u8],
    unless_changed: Option<&Stat>,
) -> Result<Before, Failure> {
    for _ in 0..PATH_TRIES {
        context.check()?;
        let spot = context.policy.spot(&context.folder, path, ParentFolders::Made)?;
        let old = match statat(&spot.folder, Path::new(&spot.name), AtFlags::SYMLINK_NOFOLLOW) {
            // The policy followed all links: this one has just appeared. Follow it as well.
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink => continue,
            Ok(stat) => Some(stat),
            Err(Errno::NOENT) => None,
            Err(errno) => return Err(system("look at", path)(errno)),
        };
        if old.is_some() {
            check_replaceable(path, &spot)?;
        }
        // Not the look that counts, but one that saves the writing.
        check_same(path, unless_changed, old.as_ref())?;
        put(path, &spot, bytes, old.as_ref(), unless_changed)?;
        return Ok(if old.is_some() { Before::File } else { Before::Missing });
    }
    Err(failure(FailureCode::PathChanged, format!("`{path}` keeps changing while it is looked at")))
}

/// Refuses to put a file in the place of a folder, a FIFO or a device.
fn check_replaceable(path: &str, spot: &FoundEntry) -> Result<(), Failure> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match openat(&spot.folder, Path::new(&spot.name), flags, Mode::empty()) {
        Ok(fd) => check_regular(path, fd).map(|_| ()),
        Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(system("look at", path)(errno)),
    }
}

/// Refuses if a file should be the one that had the status `seen`, and is not.
fn check_same(path: &str, seen: Option<&Stat>, now: Option<&Stat>) -> Result<(), Failure> {
    // The last two change whenever anything does, and cannot be set at will as those before can.
    let mark = |stat: &Stat| {
        let content = (stat.st_size, stat.st_mtime, stat.st_mtime_nsec);
        (stat.st_dev, stat.st_ino, content, stat.st_ctime, stat.st_ctime_nsec)
    };
    if seen.is_none() || seen.map(mark) == now.map(mark) {
        return Ok(());
    }
    let message = format!("`{path}` was changed by somebody else meanwhile; read it again");
    Err(failure(FailureCode::PathChanged, message))
}

fn put(
    path: &str,
    spot: &FoundEntry,
    bytes: &[u8],
    old: Option<&Stat>,
    unless_changed: Option<&Stat>,
) -> Result<(), Failure> {
    let failed = |error: io::Error| system("write", path)(Errno::from_io_error(&error).unwrap_or(Errno::IO));
    let (name, fd) = create_beside(spot.folder.as_fd(), old).map_err(failed)?;
    let filled = fill(fd, bytes, old).map_err(failed);
    let outcome = filled.and_then(|()| take_name(path, spot, &name, unless_changed));
    if outcome.is_err() {
        // The first failure is the one to tell; this one leaves a file with a telling name.
        let _ = unlinkat(&spot.folder, &name, AtFlags::empty());
    }
    outcome
}

/// Gives the new file the old one's name, and makes that durable.
fn take_name(path: &str, spot: &FoundEntry, new: &str, unless_changed: Option<&Stat>) -> Result<(), Failure> {
    let folder = lock(spot.folder.as_fd(), FOLDER_WAIT);
    let name = Path::new(&spot.name);
    if unless_changed.is_some() {
        let now = statat(&spot.folder, name, AtFlags::SYMLINK_NOFOLLOW).ok();
        check_same(path, unless_changed, now.as_ref())?;
    }
    renameat(&spot.folder, new, &spot.folder, name).map_err(system("write", path))?;
    if let Some(folder) = folder {
        // Others need not wait for the disk.
        let _ = flock(&folder, FlockOperation::Unlock);
        let _ = fsync(&folder);
    }
    Ok(())
}

/// Opens the folder to lock and sync it, and locks it until the descriptor is closed. Best effort:
/// a folder that may be written but not read cannot be opened for it, some file systems know no
/// locks, and somebody may have locked the folder for reasons of their own.
fn lock(folder: BorrowedFd<'_>, wait: Duration) -> Option<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = openat(folder, ".", flags, Mode::empty()).ok()?;
    let begun = Instant::now();
    while let Err(Errno::WOULDBLOCK | Errno::INTR) = flock(&folder, FlockOperation::NonBlockingLockExclusive)
        && begun.elapsed() < wait
    {
        thread::sleep(FOLDER_STEP);
    }
    Some(folder)
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

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_failed_write_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let context = ToolContext::new(folder.path()).unwrap();
        let spot = context.policy.spot(&context.folder, "a", ParentFolders::Made).unwrap();
        // Too late for any check: nothing can take the name of a folder.
        fs::create_dir(folder.path().join("a")).unwrap();
        assert!(put("a", &spot, b"text", None, None).is_err());
        let names: Vec<_> =
            fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["a"]);
    }

    #[test]
    fn a_file_that_somebody_else_changed_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let context = ToolContext::new(folder.path()).unwrap();
        let path = folder.path().join("a");
        fs::write(&path, "old").unwrap();
        let seen = rustix::fs::stat(&path).unwrap();
        assert_eq!(replace(&context, "a", b"mine", Some(&seen)), Ok(Before::File));
        // By now another file has the name.
        let failure = replace(&context, "a", b"stale", Some(&seen)).unwrap_err();
        assert_eq!(failure.code, FailureCode::PathChanged);
        assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
        fs::remove_file(&path).unwrap();
        assert_eq!(replace(&context, "a", b"stale", Some(&seen)).unwrap_err().code, FailureCode::PathChanged);
        assert!(!path.exists());
    }

    #[test]
    fn a_change_after_the_first_look_is_noticed_too() {
        let folder = tempfile::tempdir().unwrap();
        let context = ToolContext::new(folder.path()).unwrap();
        let path = folder.path().join("a");
        fs::write(&path, "old").unwrap();
        let spot = context.policy.spot(&context.folder, "a", ParentFolders::Made).unwrap();
        let seen = rustix::fs::stat(&path).unwrap();
        let time = fs::metadata(&path).unwrap().modified().unwrap();
        let put = || put("a", &spot, b"mine", Some(&seen), Some(&seen)).map_err(|failure| failure.code);
        // Of the same size, and with its time set back.
        let file = File::create(&path).unwrap();
        (&file).write_all(b"new").unwrap();
        file.set_modified(time).unwrap();
        assert_eq!(put(), Err(FailureCode::PathChanged));
        fs::remove_file(&path).unwrap();
        assert_eq!(put(), Err(FailureCode::PathChanged));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left behind");
    }

    #[test]
    fn a_folder_that_somebody_keeps_locked_is_written_to_all_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let context = ToolContext::new(folder.path()).unwrap();
        let spot = context.policy.spot(&context.folder, "a", ParentFolders::Made).unwrap();
        let held = lock(spot.folder.as_fd(), Duration::ZERO).unwrap();
        let other = lock(spot.folder.as_fd(), FOLDER_STEP).expect("open, if not locked");
        assert_eq!(flock(&other, FlockOperation::NonBlockingLockShared), Err(Errno::WOULDBLOCK));
        assert_eq!(replace(&context, "a", b"text", None), Ok(Before::Missing));
        drop(held);
        assert_eq!(flock(&other, FlockOperation::NonBlockingLockShared), Ok(()));
    }
}
