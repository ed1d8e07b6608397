//! Waiting, and the time of day, so that tests own both.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use parlor_vocab::{Clock, Timestamp};

/// A wait that is under way.
pub(crate) type Waiting = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What waits between two polls.
pub(crate) trait Pause: Send + Sync {
    /// Waits for so long.
    fn pause(&self, for_this_long: Duration) -> Waiting;
}

/// The runtime's timer.
pub(crate) struct Timer;

impl Pause for Timer {
    fn pause(&self, for_this_long: Duration) -> Waiting {
        Box::pin(tokio::time::sleep(for_this_long))
    }
}

/// The clock and the timer that a login goes by.
#[derive(Clone)]
pub(crate) struct Time {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) timer: Arc<dyn Pause>,
}

impl Time {
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(crate) async fn pause(&self, for_this_long: Duration) {
        self.timer.pause(for_this_long).await;
    }
}

/// The moment so much later.
pub(crate) fn later(at: Timestamp, by: Duration) -> Timestamp {
    Timestamp(at.0.saturating_add(i64::try_from(by.as_millis()).unwrap_or(i64::MAX)))
}
