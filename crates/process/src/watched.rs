//! Descriptors that the runtime watches.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::SpawnError;

/// A descriptor whose readiness can be awaited, by the supervisor and by the handle.
pub(crate) type Watched = Arc<AsyncFd<OwnedFd>>;

/// Has the runtime watch `fd`. On failure it is closed.
#[expect(unsafe_code, reason = "registration borrows the raw descriptor; see SAFETY")]
pub(crate) fn watch(fd: OwnedFd, interest: Interest) -> Result<Watched, SpawnError> {
    // SAFETY: an `OwnedFd` is open until it is dropped and always names the same descriptor. It
    // moves into the `AsyncFd`, which only lends it out, so both live equally long.
    let watched = unsafe { AsyncFd::register_with_interest(fd, interest) };
    watched.map(Arc::new).map_err(SpawnError::runtime("watch a descriptor"))
}
