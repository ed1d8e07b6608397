//! One at a time, among all processes of the user.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::SecretStoreError;

/// How long somebody waits for a login that another one is changing. Longer than a request to the
/// provider can take, which is what the other one does.
pub const LOCK_WAIT: Duration = Duration::from_secs(45);

/// How long to wait before trying again.
pub(crate) const LOCK_STEP: Duration = Duration::from_millis(20);

/// Holds a name until it is dropped. The system lets it go if the process dies.
#[derive(Debug)]
pub(crate) struct Lock {
    /// The lock belongs to the open file.
    _file: File,
}

impl Lock {
    pub(super) fn try_on(file: File, path: &Path) -> Result<Option<Self>, SecretStoreError> {
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
