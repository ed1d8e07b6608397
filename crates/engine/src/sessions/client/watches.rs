//! The sessions that a caller watches: looked at when the caller inbox for the next thing that happened.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use parlor_log::LogError;
use parlor_vocab::{RegistryEvent, Seq, SessionId, SessionRefusal, SessionUpdate};
use tokio_util::sync::CancellationToken;

use crate::{Sessions, Watcher};

/// How long a watch waits before it tries again to read a log that cannot be read.
const RETRY_READING: Duration = Duration::from_secs(1);

/// All that one caller watches.
#[derive(Default)]
pub(super) struct Watches {
    list: Vec<Watch>,
    /// Who is looked at first, so that each has its turn.
    turn: usize,
}

struct Watch {
    session: SessionId,
    state: State,
}

enum State {
    /// What is at hand can be taken.
    Ready(Box<WatchedSession>),
    /// The next thing is waited for.
    Waiting(Pin<Box<dyn Future<Output = ShownText> + Send>>),
}

/// The next thing that happened; none if there will be none.
type ShownText = Option<(Box<WatchedSession>, SessionUpdate)>;

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

    /// Watches a session from where `watcher` stands, in the place of an earlier watch.
    pub(super) fn begin(
        &mut self,
        sessions: Arc<Sessions>,
        session: SessionId,
        watcher: Box<Watcher>,
        over: CancellationToken,
    ) {
        self.end(&session);
        let tell = Box::new(WatchedSession { sessions, session: session.clone(), watcher, over });
        self.list.push(Watch { session, state: State::Ready(tell) });
    }

    pub(super) fn end(&mut self, session: &SessionId) {
        self.list.retain(|watch| watch.session != *session);
    }

    /// Waits for the next thing that happened; none if one of the watches has come to its end. Cancel safe.
    pub(super) async fn next(&mut self) -> Option<RegistryEvent> {
        poll_fn(|context| self.poll_next(context)).await
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<RegistryEvent>> {
        let count = self.list.len();
        self.turn = self.turn.wrapping_add(1);
        for index in (0..count).map(|step| self.turn.wrapping_add(step) % count) {
            let Some(watch) = self.list.get_mut(index) else { continue };
            match watch.poll_seen(context) {
                Poll::Pending => {}
                Poll::Ready(Some(seen)) => {
                    let session = watch.session.clone();
                    return Poll::Ready(Some(RegistryEvent { session, seen }));
                }
                Poll::Ready(None) => {
                    self.list.swap_remove(index);
                    return Poll::Ready(None);
                }
            }
        }
        Poll::Pending
    }
}

impl Watch {
    fn poll_seen(&mut self, context: &mut Context<'_>) -> Poll<Option<SessionUpdate>> {
        if let State::Ready(tell) = &mut self.state
            && let Some(seen) = tell.watcher.at_hand()
        {
            return Poll::Ready(Some(seen));
        }
        let waiting: State =
            match std::mem::replace(&mut self.state, State::Waiting(Box::pin(async { None }))) {
                State::Ready(tell) => State::Waiting(Box::pin(tell.next())),
                waiting @ State::Waiting(_) => waiting,
            };
        self.state = waiting;
        let State::Waiting(next) = &mut self.state else { unreachable!("it was just made") };
        match next.as_mut().poll(context) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Ready(Some((tell, seen))) => {
                self.state = State::Ready(tell);
                Poll::Ready(Some(seen))
            }
        }
    }
}

/// What it takes to tell what happens in one session.
struct WatchedSession {
    sessions: Arc<Sessions>,
    session: SessionId,
    watcher: Box<Watcher>,
    over: CancellationToken,
}

impl WatchedSession {
    /// Waits for the next thing that happens; none when nothing more can.
    async fn next(mut self: Box<Self>) -> ShownText {
        loop {
            let seen = tokio::select! {
                seen = self.watcher.next() => seen.map(Some),
                // Nothing more happens; what has happened is told to its end.
                () = self.over.cancelled() => self.watcher.look().await,
            };
            match seen {
                Ok(Some(seen)) => return Some((self, seen)),
                Err(LogError::UnknownSession(_)) if !self.over.is_cancelled() => {
                    self.wait_until_created().await?
                }
                // The disk may come back.
                Err(_) if !self.over.is_cancelled() => tokio::time::sleep(RETRY_READING).await,
                Ok(None) | Err(_) => return None,
            }
        }
    }

    /// Waits for a session that is not there, or not any more, and watches it from its start. None if
    /// nothing more can happen.
    async fn wait_until_created(&mut self) -> Option<()> {
        let mut head = self.sessions.head(&self.session);
        while matches!(self.sessions.record(&self.session).await, Err(SessionRefusal::UnknownSession(_))) {
            tokio::select! {
                changed = head.changed() => changed.ok()?,
                () = self.over.cancelled() => return None,
            }
        }
        *self.watcher = self.sessions.watch(&self.session, Seq::START).await;
        Some(())
    }
}
