//! Locks between processes. The kernel releases them when a process dies.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::content::create_folder;
use crate::error::UndoError;

/// How long a run waits for an undo in the same session, and a snapshot for a sweep.
pub const UNDO_LOCK_WAIT: Duration = Duration::from_secs(10);

/// The pause between two attempts.
const LOCK_RETRY: Duration = Duration::from_millis(2);

/// Whether others may hold the lock too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockKind {
    Shared,
    Exclusive,
}

/// Locks the file `path`, which is created if it is missing, until the result is dropped. `None` if others held it for
/// all of `wait`.
pub(crate) fn lock(path: &Path, kind: LockKind, wait: Duration) -> Result<Option<File>, UndoError> {
    let open = || OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path);
    let file = open().or_else(|error| match path.parent() {
        Some(parent) if error.kind() == std::io::ErrorKind::NotFound => {
            create_folder(parent).and_then(|()| open())
        }
        _ => Err(error),
    });
    let file = file.map_err(UndoError::io("lock", path))?;
    let operation = match kind {
        LockKind::Shared => FlockOperation::NonBlockingLockShared,
        LockKind::Exclusive => FlockOperation::NonBlockingLockExclusive,
    };
    let begun = Instant::now();
    loop {
        match flock(&file, operation) {
            Ok(()) => return Ok(Some(file)),
            Err(Errno::INTR) => {}
            Err(Errno::WOULDBLOCK) if begun.elapsed() >= wait => return Ok(None),
            Err(Errno::WOULDBLOCK) => thread::sleep(LOCK_RETRY),
            Err(errno) => return Err(UndoError::io("lock", path)(errno.into())),
        }
    }
}
