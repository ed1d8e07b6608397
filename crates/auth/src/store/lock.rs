//! A file lock on a secret, across all processes of the user.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::SecretStoreError;

/// How long to wait for the lock of a login. Longer than a request to the provider can take, during which another
/// process holds the lock.
pub const LOCK_WAIT: Duration = Duration::from_secs(45);

/// How long to wait between two attempts to lock.
pub(crate) const LOCK_STEP: Duration = Duration::from_millis(20);

/// An exclusive lock. Dropping it unlocks; the kernel unlocks if the process dies.
#[derive(Debug)]
pub(crate) struct SecretLock {
    /// Closing the file releases the lock.
    _file: File,
}

impl SecretLock {
    /// Locks `file`. `None` if another process or task holds the lock.
    pub(super) fn try_lock(file: File, path: &Path) -> Result<Option<Self>, SecretStoreError> {
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Some(Self { _file: file })),
                Err(Errno::INTR) => {}
                Err(Errno::WOULDBLOCK) => return Ok(None),
                Err(errno) => return Err(SecretStoreError::io("lock", path)(errno)),
            }
        }
    }
}
