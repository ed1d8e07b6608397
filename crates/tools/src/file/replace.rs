//! Replaces a file's content atomically: a reader sees either all of the old content or all of the new one.
//!
//! The new content goes to a temporary file in the same folder, is synced to disk, and is renamed to the old name. All
//! of these steps are relative to the folder's descriptor, so that a change of the path cannot redirect them.
//!
//! A caller that must not lose changes of other programs passes the status of the file that it read. That status is
//! compared with the current one right before the rename. Between the two steps a lock on the folder excludes all users
//! of this module, also in other processes. Other programs do not take this lock: a change that they make between the
//! two system calls is lost.

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

use crate::failure::{failure, system};
use crate::tool::ToolContext;
use parlor_files::{FileLocation, PATH_TRIES, ParentFolders, check_regular};

/// How long to wait for the lock on a folder before going on without it.
const LOCK_WAIT: Duration = Duration::from_secs(2);

/// How long to wait between two attempts to lock a folder.
const LOCK_STEP: Duration = Duration::from_millis(1);

/// What [`replace`] found under the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Before {
    /// Nothing: the file is new.
    Missing,
    /// A file, whose content is replaced now.
    File,
}

/// Writes `bytes` as the whole content of `path`. Creates the file and its parent folders if they are missing. An
/// existing file keeps its permissions, and its owner where the system allows.
///
/// With `unless_changed`, fails with [`FailureCode::PathChanged`] if the status of the file differs from this one.
pub(crate) fn replace(
    context: &ToolContext,
    path: &str,
    bytes: &[u8],
    unless_changed: Option<&Stat>,
) -> Result<Before, Failure> {
    for _ in 0..PATH_TRIES {
        context.check_cancelled()?;
        let spot = context.policy.locate(&context.folder, path, ParentFolders::Create)?;
        context.check_opened(&spot.path)?;
        let old = match statat(&spot.folder, Path::new(&spot.name), AtFlags::SYMLINK_NOFOLLOW) {
            // The policy followed all links, so this link is new. Try again to follow it too.
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink => continue,
            Ok(stat) => Some(stat),
            Err(Errno::NOENT) => None,
            Err(errno) => return Err(system("look at", path)(errno)),
        };
        if old.is_some() {
            check_replaceable(path, &spot)?;
        }
        // `rename_into_place` checks again. This early check only saves the writing.
        check_same(path, unless_changed, old.as_ref())?;
        context.changes.before_write(&spot, bytes);
        write_new(path, &spot, bytes, old.as_ref(), unless_changed)?;
        context.changes.after_write(&spot);
        return Ok(if old.is_some() { Before::File } else { Before::Missing });
    }
    Err(failure(FailureCode::PathChanged, format!("`{path}` keeps changing while it is looked at")))
}

/// Refuses to replace a folder, a FIFO or a device.
fn check_replaceable(path: &str, spot: &FileLocation) -> Result<(), Failure> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match openat(&spot.folder, Path::new(&spot.name), flags, Mode::empty()) {
        Ok(fd) => check_regular(path, fd).map(|_| ()),
        Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(system("look at", path)(errno)),
    }
}

/// Fails if `seen` is given and differs from `now`.
fn check_same(path: &str, seen: Option<&Stat>, now: Option<&Stat>) -> Result<(), Failure> {
    // Programs can set the modification time, but not the change time (ctime).
    let identity = |stat: &Stat| {
        let content = (stat.st_size, stat.st_mtime, stat.st_mtime_nsec);
        (stat.st_dev, stat.st_ino, content, stat.st_ctime, stat.st_ctime_nsec)
    };
    if seen.is_none() || seen.map(identity) == now.map(identity) {
        return Ok(());
    }
    let message = format!("`{path}` was changed by somebody else meanwhile; read it again");
    Err(failure(FailureCode::PathChanged, message))
}

fn write_new(
    path: &str,
    spot: &FileLocation,
    bytes: &[u8],
    old: Option<&Stat>,
    unless_changed: Option<&Stat>,
) -> Result<(), Failure> {
    let failed = |error: io::Error| system("write", path)(Errno::from_io_error(&error).unwrap_or(Errno::IO));
    let (name, fd) = create_temporary(spot.folder.as_fd(), old).map_err(failed)?;
    let filled = fill(fd, bytes, old).map_err(failed);
    let outcome = filled.and_then(|()| rename_into_place(path, spot, &name, unless_changed));
    if outcome.is_err() {
        // If this fails too, a file named .parlor-….tmp stays. The first failure is the one to report.
        let _ = unlinkat(&spot.folder, &name, AtFlags::empty());
    }
    outcome
}

/// Renames the temporary file to the final name and syncs the folder.
fn rename_into_place(
    path: &str,
    spot: &FileLocation,
    temporary: &str,
    unless_changed: Option<&Stat>,
) -> Result<(), Failure> {
    let folder = lock(spot.folder.as_fd(), LOCK_WAIT);
    let name = Path::new(&spot.name);
    if unless_changed.is_some() {
        let now = statat(&spot.folder, name, AtFlags::SYMLINK_NOFOLLOW).ok();
        check_same(path, unless_changed, now.as_ref())?;
    }
    renameat(&spot.folder, temporary, &spot.folder, name).map_err(system("write", path))?;
    if let Some(folder) = folder {
        // Unlock before the sync, so that other calls do not wait for the disk.
        let _ = flock(&folder, FlockOperation::Unlock);
        let _ = fsync(&folder);
    }
    Ok(())
}

/// Opens the folder, for locking and syncing, and locks it until the descriptor is closed. Best effort: a folder
/// without read permission cannot be opened, some file systems have no locks, and another program may hold the lock.
fn lock(folder: BorrowedFd<'_>, wait: Duration) -> Option<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = openat(folder, ".", flags, Mode::empty()).ok()?;
    let begun = Instant::now();
    while let Err(Errno::WOULDBLOCK | Errno::INTR) = flock(&folder, FlockOperation::NonBlockingLockExclusive)
        && begun.elapsed() < wait
    {
        thread::sleep(LOCK_STEP);
    }
    Some(folder)
}

/// Creates a temporary file with an unused name.
fn create_temporary(folder: BorrowedFd<'_>, old: Option<&Stat>) -> io::Result<(String, OwnedFd)> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    // A replacement is private until `fill` copies the old permissions; a new file gets what the umask leaves.
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
        // If the owner could not be kept, setuid and setgid bits would run the file as another user.
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
    fn a_failed_write_removes_the_temporary_file() {
        let folder = tempfile::tempdir().unwrap();
        let context = ToolContext::new(folder.path()).unwrap();
        let spot = context.policy.locate(&context.folder, "a", ParentFolders::Create).unwrap();
        // The folder appears after all checks. A rename over a folder fails.
        fs::create_dir(folder.path().join("a")).unwrap();
        assert!(write_new("a", &spot, b"text", None, None).is_err());
        let names: Vec<_> =
            fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["a"]);
    }

    #[test]
    fn a_file_that_another_program_changed_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let context = ToolContext::new(folder.path()).unwrap();
        let path = folder.path().join("a");
        fs::write(&path, "old").unwrap();
        let seen = rustix::fs::stat(&path).unwrap();
        assert_eq!(replace(&context, "a", b"mine", Some(&seen)), Ok(Before::File));
        // The first replacement put another file under the name.
        let failure = replace(&context, "a", b"stale", Some(&seen)).unwrap_err();
        assert_eq!(failure.code, FailureCode::PathChanged);
        assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
        fs::remove_file(&path).unwrap();
        assert_eq!(replace(&context, "a", b"stale", Some(&seen)).unwrap_err().code, FailureCode::PathChanged);
        assert!(!path.exists());
    }

    #[test]
    fn a_change_after_the_first_check_is_noticed_too() {
        let folder = tempfile::tempdir().unwrap();
        let context = ToolContext::new(folder.path()).unwrap();
        let path = folder.path().join("a");
        fs::write(&path, "old").unwrap();
        let spot = context.policy.locate(&context.folder, "a", ParentFolders::Create).unwrap();
        let seen = rustix::fs::stat(&path).unwrap();
        let time = fs::metadata(&path).unwrap().modified().unwrap();
        let write =
            || write_new("a", &spot, b"mine", Some(&seen), Some(&seen)).map_err(|failure| failure.code);
        // The new content has the same size, and the modification time is set back.
        let file = File::create(&path).unwrap();
        (&file).write_all(b"new").unwrap();
        file.set_modified(time).unwrap();
        assert_eq!(write(), Err(FailureCode::PathChanged));
        fs::remove_file(&path).unwrap();
        assert_eq!(write(), Err(FailureCode::PathChanged));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "the temporary file is removed");
    }

    #[test]
    fn a_folder_that_stays_locked_is_written_to_anyway() {
        let folder = tempfile::tempdir().unwrap();
        let context = ToolContext::new(folder.path()).unwrap();
        let spot = context.policy.locate(&context.folder, "a", ParentFolders::Create).unwrap();
        let held = lock(spot.folder.as_fd(), Duration::ZERO).unwrap();
        let other = lock(spot.folder.as_fd(), LOCK_STEP).expect("open, if not locked");
        assert_eq!(flock(&other, FlockOperation::NonBlockingLockShared), Err(Errno::WOULDBLOCK));
        assert_eq!(replace(&context, "a", b"text", None), Ok(Before::Missing));
        drop(held);
        assert_eq!(flock(&other, FlockOperation::NonBlockingLockShared), Ok(()));
    }
}
