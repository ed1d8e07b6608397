//! Which connections wait for a request, or for the rest of one, so that the one that has waited longest can make room for a
//! new connection.
//!
//! Without this, a client that opens connections and never completes a request could use up the connections of its group,
//! and keep out the group's other clients, such as those of the same user, until its requests time out.

use std::collections::{BTreeMap, HashMap};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use parlor_transport::PeerGroup;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio_util::sync::CancellationToken;

/// The connections that wait for the head of a request, of all groups of peers.
#[derive(Debug, Default)]
pub(crate) struct WaitingHeads {
    inner: Mutex<Inner>,
    wait_began: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    /// The number of the newest wait; waits are numbered in the order in which they began.
    last_wait: u64,
    /// By group; the oldest wait first.
    waiting: HashMap<PeerGroup, BTreeMap<u64, Signals>>,
}

/// How to close a connection.
#[derive(Clone, Debug, Default)]
struct Signals {
    /// Cancelled if the connection has to close.
    close: CancellationToken,
    /// Cancelled when the connection is closed.
    closed: CancellationToken,
}

impl WaitingHeads {
    /// Adds a connection of `group`, which waits for the head of its first request.
    pub(crate) fn add_connection(self: &Arc<Self>, group: PeerGroup) -> HeadWait {
        let (signals, has_had_request, is_reading_body, wait) = Default::default();
        let heads = Arc::clone(self);
        let head_wait = HeadWait { heads, group, signals, has_had_request, is_reading_body, wait };
        head_wait.begin();
        head_wait
    }

    /// Closes the connection of `group` that has waited longest. Returns a token that is cancelled when it is closed, or
    /// `None` if no connection of the group waits.
    pub(crate) fn close_oldest(&self, group: PeerGroup) -> Option<CancellationToken> {
        let mut inner = self.inner();
        let (_, Signals { close, closed }) = inner.waiting.get_mut(&group)?.pop_first()?;
        close.cancel();
        Some(closed)
    }

    /// Completes when a connection begins to wait.
    pub(crate) fn next_wait(&self) -> Notified<'_> {
        self.wait_began.notified()
    }

    /// Locks in spite of poisoning: no code under the lock panics in the middle of a change.
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tracks whether one connection waits for the head of a request. Dropping it marks the connection as closed.
#[derive(Debug)]
pub(crate) struct HeadWait {
    heads: Arc<WaitingHeads>,
    group: PeerGroup,
    signals: Signals,
    /// Whether a request has ever arrived.
    has_had_request: AtomicBool,
    /// Whether the head of a request has arrived, but not all of its body.
    is_reading_body: AtomicBool,
    /// The number of the present wait; `None` while a request is answered.
    wait: Mutex<Option<u64>>,
}

impl HeadWait {
    /// Waits until this connection has to close.
    pub(crate) async fn close_requested(&self) {
        self.signals.close.cancelled().await;
    }

    /// Whether an answer may still be on its way to the client, or a request is being answered.
    pub(crate) fn has_answer(&self) -> bool {
        self.has_had_request.load(Ordering::Relaxed) && !self.is_reading_body.load(Ordering::Relaxed)
    }

    /// Whether a request has arrived and its answer is not complete.
    pub(crate) fn is_answering(&self) -> bool {
        self.wait().is_none()
    }

    /// The connection waits for the head of the next request from now on.
    fn begin(&self) {
        let (mut wait, mut inner) = (self.wait(), self.heads.inner());
        inner.last_wait += 1;
        let number = inner.last_wait;
        inner.waiting.entry(self.group).or_default().insert(number, self.signals.clone());
        *wait = Some(number);
        self.heads.wait_began.notify_waiters();
    }

    /// The head of a request has arrived.
    pub(crate) fn on_head(&self) {
        self.is_reading_body.store(true, Ordering::Relaxed);
    }

    /// All that is wanted of a request has arrived.
    pub(crate) fn on_request(&self) {
        self.is_reading_body.store(false, Ordering::Relaxed);
        self.has_had_request.store(true, Ordering::Relaxed);
        self.end();
    }

    fn end(&self) {
        let Some(number) = self.wait().take() else { return };
        let mut inner = self.heads.inner();
        if let Some(waiting) = inner.waiting.get_mut(&self.group) {
            waiting.remove(&number);
            if waiting.is_empty() {
                inner.waiting.remove(&self.group);
            }
        }
    }

    fn wait(&self) -> MutexGuard<'_, Option<u64>> {
        self.wait.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for HeadWait {
    fn drop(&mut self) {
        self.end();
        self.signals.closed.cancel();
    }
}

/// The body of an answer. When it is dropped, its connection waits for the next request.
pub(crate) struct AnswerBody {
    body: Body,
    connection: Arc<HeadWait>,
}

impl AnswerBody {
    pub(crate) fn new(body: Body, connection: Arc<HeadWait>) -> Self {
        Self { body, connection }
    }
}

impl HttpBody for AnswerBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for AnswerBody {
    fn drop(&mut self) {
        self.connection.begin();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_connection_of_the_group_that_has_waited_longest_is_closed() {
        let heads = Arc::new(WaitingHeads::default());
        let [first, second, busy] = [(); 3].map(|()| Arc::new(heads.add_connection(PeerGroup::Owner)));
        let other = heads.add_connection(PeerGroup::UnknownUsers);
        busy.on_request();
        // It has answered a request, so it has waited less long than the second one.
        first.on_request();
        drop(AnswerBody::new(Body::empty(), Arc::clone(&first)));
        let closed = heads.close_oldest(PeerGroup::Owner).unwrap();
        let has_to_close = [&*first, &second, &busy, &other].map(|wait| wait.signals.close.is_cancelled());
        assert_eq!(has_to_close, [false, true, false, false]);
        assert!(!closed.is_cancelled());
        drop(second);
        assert!(closed.is_cancelled());
        heads.close_oldest(PeerGroup::Owner).unwrap();
        assert!(first.signals.close.is_cancelled() && heads.close_oldest(PeerGroup::Owner).is_none());
        drop((first, busy, other));
        assert!(heads.inner().waiting.is_empty());
    }
}
