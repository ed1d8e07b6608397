//! The clock and the timer of logins, which tests replace.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use parlor_vocab::{Clock, Timestamp};

/// A boxed sleep.
pub(crate) type SleepFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Sleeps between two polls.
pub(crate) trait Sleep: Send + Sync {
    /// Completes after `duration`.
    fn sleep(&self, duration: Duration) -> SleepFuture;
}

/// The timer of the tokio runtime.
pub(crate) struct TokioTimer;

impl Sleep for TokioTimer {
    fn sleep(&self, duration: Duration) -> SleepFuture {
        Box::pin(tokio::time::sleep(duration))
    }
}

/// The clock and the timer of a login.
#[derive(Clone)]
pub(crate) struct Time {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) timer: Arc<dyn Sleep>,
}

impl Time {
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(crate) async fn sleep(&self, duration: Duration) {
        self.timer.sleep(duration).await;
    }
}

/// `at` plus `by`, saturating.
pub(crate) fn later(at: Timestamp, by: Duration) -> Timestamp {
    Timestamp(at.0.saturating_add(i64::try_from(by.as_millis()).unwrap_or(i64::MAX)))
}
