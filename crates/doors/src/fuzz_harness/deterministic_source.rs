//! A clock and a source of ids that give the same values in every play.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parlor_vocab::{Clock, IdSource, Timestamp, UniqueNumber};

/// A clock that stands still, and a source of ids that counts from 0.
pub struct DeterministicSource {
    now: Timestamp,
    next_id: AtomicU64,
}

impl DeterministicSource {
    /// A source whose clock stands at `now`.
    pub fn new(now: Timestamp) -> Arc<Self> {
        Arc::new(Self { now, next_id: AtomicU64::new(0) })
    }
}

impl Clock for DeterministicSource {
    fn now(&self) -> Timestamp {
        self.now
    }
}

impl IdSource for DeterministicSource {
    fn next(&self) -> UniqueNumber {
        UniqueNumber(self.next_id.fetch_add(1, Ordering::Relaxed).into())
    }
}
