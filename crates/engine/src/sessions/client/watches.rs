//! The sessions that a client watches. They are polled when the client asks for its next update.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use parlor_log::LogError;
use parlor_vocab::{RegistryEvent, Seq, SessionId, SessionRefusal, SessionUpdate};
use tokio_util::sync::CancellationToken;

use super::super::peer_watches::PeerWatch;
use crate::{Sessions, Watcher};

/// How long a watch waits before it tries again to read a log that failed.
const READ_RETRY: Duration = Duration::from_secs(1);

/// All watches of one client.
#[derive(Default)]
pub(super) struct Watches {
    list: Vec<Watch>,
    /// The index of the watch that is polled first. It changes with each poll, so that every watch gets its turn.
    first: usize,
}

/// What a watch reports.
pub(super) enum WatchProgress {
    Updated(RegistryEvent),
    /// The watch of this session has ended; there will be no more updates.
    Ended(SessionId),
}

struct Watch {
    session: SessionId,
    state: WatchState,
}

enum WatchState {
    /// No read is under way; buffered updates can be taken.
    Ready(Box<WatchedSession>),
    /// A future waits for the next update.
    Waiting(Pin<Box<dyn Future<Output = NextUpdate> + Send>>),
}

/// The next update, with the watch to continue with. `None` at the end of the watch.
type NextUpdate = Option<(Box<WatchedSession>, SessionUpdate)>;

impl Watches {
    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(super) fn contains(&self, session: &SessionId) -> bool {
        self.list.iter().any(|watch| watch.session == *session)
    }

    /// Watches a session from the position of `watcher`, until the client is closed, or, for another process, until this
    /// one closes the session. Replaces an earlier watch of the session.
    pub(super) fn begin(
        &mut self,
        sessions: Arc<Sessions>,
        session: SessionId,
        watcher: Box<Watcher>,
        peer: Option<PeerWatch>,
        client_closed: &CancellationToken,
    ) {
        self.end(&session);
        let closed = peer.as_ref().map_or(client_closed, |peer| &peer.closed).clone();
        let watched =
            Box::new(WatchedSession { sessions, session: session.clone(), watcher, closed, _peer: peer });
        self.list.push(Watch { session, state: WatchState::Ready(watched) });
    }

    pub(super) fn end(&mut self, session: &SessionId) {
        self.list.retain(|watch| watch.session != *session);
    }

    /// Waits for the next update of any watch, or for the end of one. Cancel safe.
    pub(super) async fn next(&mut self) -> WatchProgress {
        poll_fn(|context| self.poll_next(context)).await
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<WatchProgress> {
        let count = self.list.len();
        self.first = self.first.wrapping_add(1);
        for index in (0..count).map(|step| self.first.wrapping_add(step) % count) {
            let Some(watch) = self.list.get_mut(index) else { continue };
            match watch.poll_update(context) {
                Poll::Pending => {}
                Poll::Ready(Some(update)) => {
                    let session = watch.session.clone();
                    return Poll::Ready(WatchProgress::Updated(RegistryEvent { session, update }));
                }
                Poll::Ready(None) => {
                    return Poll::Ready(WatchProgress::Ended(self.list.swap_remove(index).session));
                }
            }
        }
        Poll::Pending
    }
}

impl Watch {
    fn poll_update(&mut self, context: &mut Context<'_>) -> Poll<Option<SessionUpdate>> {
        if let WatchState::Ready(watched) = &mut self.state
            && let Some(update) = watched.watcher.next_buffered()
        {
            return Poll::Ready(Some(update));
        }
        let waiting: WatchState =
            match std::mem::replace(&mut self.state, WatchState::Waiting(Box::pin(async { None }))) {
                WatchState::Ready(watched) => WatchState::Waiting(Box::pin(watched.next())),
                waiting @ WatchState::Waiting(_) => waiting,
            };
        self.state = waiting;
        let WatchState::Waiting(next) = &mut self.state else { unreachable!("just set to waiting") };
        match next.as_mut().poll(context) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Ready(Some((watched, update))) => {
                self.state = WatchState::Ready(watched);
                Poll::Ready(Some(update))
            }
        }
    }
}

/// A watcher with what it needs to survive errors and deletion of its session.
struct WatchedSession {
    sessions: Arc<Sessions>,
    session: SessionId,
    watcher: Box<Watcher>,
    closed: CancellationToken,
    _peer: Option<PeerWatch>,
}

impl WatchedSession {
    /// Waits for the next update; `None` when there will be no more.
    async fn next(mut self: Box<Self>) -> NextUpdate {
        loop {
            let update = tokio::select! {
                update = self.watcher.next() => update.map(Some),
                // The client is closing: deliver what has happened so far, and do not wait for more.
                () = self.closed.cancelled() => self.watcher.try_next().await,
            };
            match update {
                Ok(Some(update)) => return Some((self, update)),
                Err(LogError::UnknownSession(_)) if !self.closed.is_cancelled() => {
                    self.wait_until_created().await?
                }
                // The error may be temporary.
                Err(_) if !self.closed.is_cancelled() => tokio::time::sleep(READ_RETRY).await,
                Ok(None) | Err(_) => return None,
            }
        }
    }

    /// Waits until a session that does not exist is created, and watches it from its start. `None` if the client
    /// closes meanwhile.
    async fn wait_until_created(&mut self) -> Option<()> {
        let mut head = self.sessions.head(&self.session);
        while matches!(self.sessions.record(&self.session).await, Err(SessionRefusal::UnknownSession(_))) {
            tokio::select! {
                changed = head.changed() => changed.ok()?,
                () = self.closed.cancelled() => return None,
            }
        }
        *self.watcher = self.sessions.join(&self.session, Seq::START).await;
        Some(())
    }
}
