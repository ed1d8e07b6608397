//! Requests the lists of models in the background, so that a client does not wait for a slow provider.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, timeout};

/// How long a client waits for the list of a provider that has none in the cache.
pub(crate) const FIRST_LIST_WAIT: Duration = Duration::from_secs(2);

/// How long after a request for the lists no other one is made, so that a provider that fails is not asked each time.
pub(crate) const RETRY_WAIT: Duration = Duration::from_secs(60);

/// At most one request for the lists at a time.
#[derive(Default)]
pub(crate) struct ListRefresh(Mutex<Option<LastRefresh>>);

struct LastRefresh {
    started: Instant,
    /// Closed when the request has ended.
    ended: watch::Receiver<()>,
}

impl ListRefresh {
    /// Starts `work`, unless it runs already or has just run.
    pub(crate) fn start(&self, work: impl Future<Output = ()> + Send + 'static) {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_recent = |last: &LastRefresh| last.is_running() || last.started.elapsed() < RETRY_WAIT;
        if last.as_ref().is_some_and(is_recent) {
            return;
        }
        let (running, ended) = watch::channel(());
        *last = Some(LastRefresh { started: Instant::now(), ended });
        tokio::spawn(async move {
            work.await;
            drop(running);
        });
    }

    /// Waits until the running request has ended, but no longer than [`FIRST_LIST_WAIT`].
    pub(crate) async fn wait(&self) {
        let running = {
            let last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            last.as_ref().filter(|last| last.is_running()).map(|last| last.ended.clone())
        };
        if let Some(mut ended) = running {
            // The channel closes; nothing is ever sent.
            let _ = timeout(FIRST_LIST_WAIT, ended.changed()).await;
        }
    }

    /// Allows the next request at once: a key or a login has changed.
    pub(crate) fn reset(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl LastRefresh {
    fn is_running(&self) -> bool {
        self.ended.has_changed().is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_provider_that_does_not_answer_delays_a_client_only_briefly() {
        let refresh = ListRefresh::default();
        refresh.start(std::future::pending());
        let begin = Instant::now();
        refresh.wait().await;
        assert_eq!(begin.elapsed(), FIRST_LIST_WAIT);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_is_not_repeated_at_once() {
        let (refresh, count) = (ListRefresh::default(), Arc::new(AtomicUsize::new(0)));
        let start = || {
            let count = Arc::clone(&count);
            refresh.start(async move {
                count.fetch_add(1, Ordering::Relaxed);
            });
        };
        let counted = async || {
            refresh.wait().await;
            count.load(Ordering::Relaxed)
        };
        start();
        start();
        assert_eq!(counted().await, 1);
        tokio::time::advance(RETRY_WAIT - Duration::from_secs(1)).await;
        start();
        assert_eq!(counted().await, 1);
        tokio::time::advance(Duration::from_secs(1)).await;
        start();
        assert_eq!(counted().await, 2);
        refresh.reset();
        start();
        assert_eq!(counted().await, 3, "after a key has changed");
    }
}
