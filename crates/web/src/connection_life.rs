//! How long a connection may last, and the exception for event streams.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;

/// The end of one connection's life. A connection sends one answer at a time, so at most one event stream defers the end.
#[derive(Debug, Default)]
pub(crate) struct ConnectionLife {
    is_streaming: watch::Sender<bool>,
}

impl ConnectionLife {
    /// Waits until the connection has lasted for `life` and sends no event stream.
    pub(crate) async fn is_over(&self, life: Duration) {
        sleep(life).await;
        // The sender is `self`, so the wait does not fail.
        let _ = self.is_streaming.subscribe().wait_for(|is_streaming| !is_streaming).await;
    }

    /// Defers the end of the connection until the returned value is dropped.
    pub(crate) fn defer(self: &Arc<Self>) -> DeferredEnd {
        self.is_streaming.send_replace(true);
        DeferredEnd(Arc::clone(self))
    }
}

/// Keeps a connection from ending because of its age.
#[derive(Debug)]
pub(crate) struct DeferredEnd(Arc<ConnectionLife>);

impl Drop for DeferredEnd {
    fn drop(&mut self) {
        self.0.is_streaming.send_replace(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_stream_defers_the_end_until_it_is_dropped() {
        let life = Arc::new(ConnectionLife::default());
        let long_life = Duration::from_secs(300);
        life.is_over(long_life).await;
        let stream = life.defer();
        let (waiting, other) =
            (Arc::clone(&life), tokio::time::timeout(long_life * 9, life.is_over(long_life)));
        assert!(other.await.is_err(), "the end comes during the stream");
        let end = tokio::spawn(async move { waiting.is_over(long_life).await });
        drop(stream);
        end.await.unwrap();
    }
}
