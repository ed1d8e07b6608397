//! Counts which sessions of this process other processes use, so that an owner that leaves knows who still needs them: a
//! process uses the sessions that it watches, and those that it has sent a message to.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use parlor_vocab::SessionId;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// The uses of sessions by other processes.
#[derive(Clone, Default)]
pub(super) struct PeerWatches(Arc<Shared>);

#[derive(Default)]
struct Shared {
    counts: Mutex<HashMap<SessionId, usize>>,
    /// Wakes when a use ends.
    ended: Notify,
}

impl PeerWatches {
    /// Counts a watch of `session` until the returned value is dropped. `closed` is cancelled when this process closes the
    /// session.
    pub(super) fn begin(&self, session: &SessionId, closed: CancellationToken) -> PeerWatch {
        PeerWatch { _use: self.count_use(session), closed }
    }

    /// Counts a use of `session` until the returned value is dropped.
    pub(super) fn count_use(&self, session: &SessionId) -> PeerUse {
        *self.0.lock().entry(session.clone()).or_default() += 1;
        PeerUse { shared: Arc::clone(&self.0), session: session.clone() }
    }

    pub(super) fn contains(&self, session: &SessionId) -> bool {
        self.0.lock().contains_key(session)
    }

    /// Waits until no other process uses the session.
    pub(super) async fn ended(&self, session: &SessionId) {
        loop {
            let mut ended = std::pin::pin!(self.0.ended.notified());
            // Before the look at the counts, so that no end is missed.
            ended.as_mut().enable();
            if !self.contains(session) {
                return;
            }
            ended.await;
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, usize>> {
        // Each change is a single step, so a panic leaves the map consistent.
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A watch of another process, which counts as a use until it is dropped.
pub(super) struct PeerWatch {
    _use: PeerUse,
    /// Cancelled when this process closes the session.
    pub(super) closed: CancellationToken,
}

/// A use of a session by another process, counted until it is dropped.
pub(super) struct PeerUse {
    shared: Arc<Shared>,
    session: SessionId,
}

impl Drop for PeerUse {
    fn drop(&mut self) {
        let mut counts = self.shared.lock();
        if let Some(count) = counts.get_mut(&self.session) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.session);
            }
        }
        drop(counts);
        self.shared.ended.notify_waiters();
    }
}
