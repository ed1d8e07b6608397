//! Gives back memory while a connection is quiet.

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::sleep;

/// A connection on which nothing moves for this long is quiet; it is noticed at most this much later.
pub(crate) const QUIET_AFTER: Duration = Duration::from_secs(1);

/// Whether bytes have moved since somebody asked. Marked by the threads that move them.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    has_moved: AtomicBool,
    begins: Notify,
}

impl Activity {
    /// Cheap while a connection is busy: only the first mark after [`Activity::take`] wakes anybody.
    pub(crate) fn mark(&self) {
        if !self.has_moved.swap(true, Ordering::Relaxed) {
            self.begins.notify_one();
        }
    }

    fn take(&self) -> bool {
        self.has_moved.swap(false, Ordering::Relaxed)
    }
}

/// Calls `give_back` once whenever the connection becomes quiet. A quiet connection has no timer.
pub(crate) async fn watch(activity: &Activity, mut give_back: impl FnMut()) -> Infallible {
    loop {
        while !activity.take() {
            activity.begins.notified().await;
        }
        loop {
            sleep(QUIET_AFTER).await;
            if !activity.take() {
                break;
            }
        }
        give_back();
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use tokio::time::advance;

    use super::*;

    /// Lets the watching task run after the invented time has passed.
    async fn pass(time: Duration) {
        advance(time).await;
        tokio::task::yield_now().await;
    }

    #[tokio::test(start_paused = true)]
    async fn memory_is_given_back_once_after_each_busy_time() {
        let (activity, times) = (Activity::default(), Cell::new(0));
        let watching = watch(&activity, || times.set(times.get() + 1));
        let script = async {
            pass(QUIET_AFTER * 5).await;
            assert_eq!(times.get(), 0, "nothing has moved yet");
            for _ in 0..4 {
                activity.mark();
                pass(QUIET_AFTER).await;
                assert_eq!(times.get(), 0, "the connection is busy");
            }
            pass(QUIET_AFTER).await;
            assert_eq!(times.get(), 1);
            pass(QUIET_AFTER * 5).await;
            assert_eq!(times.get(), 1, "only once");
            activity.mark();
            pass(QUIET_AFTER).await;
            pass(QUIET_AFTER).await;
            assert_eq!(times.get(), 2);
        };
        tokio::select! {
            never = watching => match never {},
            () = script => {}
        }
    }
}
