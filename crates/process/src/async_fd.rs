//! File descriptors that are registered with the async runtime.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::SpawnError;

/// A descriptor whose readiness the supervisor and the handle can await.
pub(crate) type RegisteredFd = Arc<AsyncFd<OwnedFd>>;

/// Registers `fd` with the runtime. Closes it on failure.
#[expect(unsafe_code, reason = "registration borrows the raw descriptor; see SAFETY")]
pub(crate) fn register(fd: OwnedFd, interest: Interest) -> Result<RegisteredFd, SpawnError> {
    // SAFETY: an `OwnedFd` stays open, and stays the same descriptor, until it is dropped. It moves into the `AsyncFd`,
    // which only lends it out, so both live equally long.
    let registered = unsafe { AsyncFd::register_with_interest(fd, interest) };
    registered.map(Arc::new).map_err(SpawnError::runtime("watch a descriptor"))
}
