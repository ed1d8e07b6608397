//! Time of a call that does not count for its timeout, because its command waits for the answer of a person.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// How long a call was paused. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct PausedTime(Arc<Mutex<Pauses>>);

#[derive(Debug, Default)]
struct Pauses {
    total: Duration,
    since: Option<Instant>,
}

impl PausedTime {
    /// Begins a pause, unless there is one.
    pub fn begin(&self) {
        self.lock().since.get_or_insert_with(Instant::now);
    }

    /// Ends the pause.
    pub fn end(&self) {
        let mut pauses = self.lock();
        if let Some(since) = pauses.since.take() {
            pauses.total += since.elapsed();
        }
    }

    /// All pauses until now.
    pub(crate) fn so_far(&self) -> Duration {
        let pauses = self.lock();
        pauses.total + pauses.since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Pauses> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
