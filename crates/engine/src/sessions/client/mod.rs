//! The backend of one connection that works with sessions: its requests, and the sessions it watches.
//!
//! Requests are dispatched in the order in which they were submitted; a request that takes long to answer does not
//! delay the next. Watched events stay in the log until the connection takes them, so a connection that does not read
//! falls behind and costs no memory.
//!
//! A server may have thousands of idle connections, so an idle client has no task: each request has a task until it
//! is answered, and [`next`](Backend::next) polls the watches.

mod dispatch;
mod watches;

use std::collections::VecDeque;
use std::sync::Arc;

use futures_util::FutureExt;
use parlor_tools::catch_panic;
use parlor_vocab::{
    Answer, Backend, ClosingPart, RegistryEvent, RegistryReply, RegistryRequest, SessionRefusal, Ticket,
    Update, UpdateOf,
};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use self::dispatch::{Dispatched, Outcome, dispatch};
use self::watches::Watches;
use super::Sessions;

/// How many requests of one connection may be unanswered at a time.
pub const MAX_REQUESTS: usize = 64;

/// How many sessions one connection may watch at a time.
pub const MAX_WATCHED: usize = 64;

/// What happens to active runs when the connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnDisconnect {
    /// All runs of this process stop. For a process that serves only this connection.
    Stop,
    /// Runs continue.
    Keep,
}

/// The session backend of one connection.
pub struct SessionClient {
    sessions: Arc<Sessions>,
    on_disconnect: OnDisconnect,
    /// Requests that wait for the one before them to be dispatched.
    submitted: VecDeque<(Ticket, RegistryRequest)>,
    is_dispatching: bool,
    /// How many requests have no answer yet.
    unanswered: usize,
    tasks: JoinSet<Progress>,
    watches: Watches,
    is_closing: bool,
    /// Cancelled when the runs that had to stop have stopped.
    closed: CancellationToken,
}

/// What a request's task reports.
enum Progress {
    /// The request was dispatched: the next one may be dispatched.
    Dispatched(Ticket, Result<Dispatched, SessionRefusal>),
    /// A request that was dispatched earlier has its answer.
    Answered(Ticket, Outcome),
}

impl SessionClient {
    /// A client with no request and no watch.
    pub fn new(sessions: Arc<Sessions>, on_disconnect: OnDisconnect) -> Self {
        Self {
            sessions,
            on_disconnect,
            submitted: VecDeque::new(),
            is_dispatching: false,
            unanswered: 0,
            tasks: JoinSet::new(),
            watches: Watches::default(),
            is_closing: false,
            closed: CancellationToken::new(),
        }
    }

    /// Dispatches the next request, unless one is being dispatched. A command that the session's actor accepts at
    /// once, as it does most, is dispatched here without waiting for a task to be scheduled.
    fn dispatch_next(&mut self) {
        while !self.is_dispatching
            && let Some((ticket, request)) = self.submitted.pop_front()
        {
            let (sessions, is_full) = (Arc::clone(&self.sessions), self.watches.len() >= MAX_WATCHED);
            let is_refused = matches!(&request, RegistryRequest::Watch { session, .. }
                if is_full && !self.watches.contains(session));
            let mut dispatching = Box::pin(async move {
                match is_refused {
                    true => Err(SessionRefusal::TooManyWatched { limit: MAX_WATCHED }),
                    false => catch_panic(dispatch(&sessions, request))
                        .await
                        .unwrap_or(Err(SessionRefusal::Internal)),
                }
            });
            match dispatching.as_mut().now_or_never() {
                Some(Ok(Dispatched::Deferred(outcome))) => {
                    self.tasks.spawn(async move {
                        Progress::Answered(ticket, outcome_or_internal_error(outcome).await)
                    });
                }
                dispatched => {
                    self.is_dispatching = true;
                    self.tasks.spawn(async move {
                        let dispatched = match dispatched {
                            Some(dispatched) => dispatched,
                            None => dispatching.await,
                        };
                        Progress::Dispatched(ticket, dispatched)
                    });
                }
            }
        }
    }

    fn on_progress(&mut self, progress: Progress) -> Option<UpdateOf<Self>> {
        let (ticket, outcome) = match progress {
            Progress::Answered(ticket, outcome) => (ticket, outcome),
            Progress::Dispatched(ticket, dispatched) => {
                self.is_dispatching = false;
                let outcome = match dispatched {
                    Ok(Dispatched::Deferred(outcome)) => {
                        self.tasks.spawn(async move {
                            Progress::Answered(ticket, outcome_or_internal_error(outcome).await)
                        });
                        self.dispatch_next();
                        return None;
                    }
                    Ok(Dispatched::Done(reply)) => Ok(reply),
                    Ok(Dispatched::Watch { watcher, session, seen, head }) => {
                        self.watches.begin(Arc::clone(&self.sessions), session, watcher, self.closed.clone());
                        Ok(RegistryReply::Watching { seen, head })
                    }
                    Ok(Dispatched::Unwatch(session)) => {
                        self.watches.end(&session);
                        Ok(RegistryReply::Done)
                    }
                    Err(refusal) => Err(refusal),
                };
                self.dispatch_next();
                (ticket, outcome)
            }
        };
        self.unanswered -= 1;
        Some(Update::Answer(ticket, outcome))
    }
}

impl Backend for SessionClient {
    type Request = RegistryRequest;
    type Reply = RegistryReply;
    type Event = RegistryEvent;
    type Error = SessionRefusal;

    /// Must be called within a tokio runtime.
    fn submit(
        &mut self,
        ticket: Ticket,
        request: RegistryRequest,
    ) -> Option<Answer<RegistryReply, SessionRefusal>> {
        if self.is_closing {
            return Some((ticket, Err(SessionRefusal::Closing { part: ClosingPart::Connection })));
        }
        if self.unanswered >= MAX_REQUESTS {
            return Some((ticket, Err(SessionRefusal::TooManyRequests { limit: MAX_REQUESTS })));
        }
        self.unanswered += 1;
        self.submitted.push_back((ticket, request));
        self.dispatch_next();
        None
    }

    async fn next(&mut self) -> Option<UpdateOf<Self>> {
        loop {
            let is_idle = self.tasks.is_empty() && self.watches.is_empty();
            let is_finished = self.is_closing && is_idle;
            tokio::select! {
                // Answers first: an answer comes before the events that follow it.
                biased;
                Some(progress) = self.tasks.join_next(), if !self.tasks.is_empty() => {
                    // A task that was aborted has no answer.
                    if let Ok(progress) = progress
                        && let Some(update) = self.on_progress(progress)
                    {
                        return Some(update);
                    }
                }
                event = self.watches.next(), if !self.watches.is_empty() => {
                    if let Some(event) = event {
                        return Some(Update::Event(event));
                    }
                }
                () = self.closed.cancelled(), if is_finished => return None,
                () = std::future::pending(), if is_idle && !self.is_closing => {}
            }
        }
    }

    /// Pending requests are still answered, and watches deliver all events that happened before the close.
    fn begin_close(&mut self) {
        self.is_closing = true;
        let (sessions, closed, on_disconnect) =
            (Arc::clone(&self.sessions), self.closed.clone(), self.on_disconnect);
        tokio::spawn(async move {
            if on_disconnect == OnDisconnect::Stop {
                sessions.close().await;
            }
            closed.cancel();
        });
    }

    async fn closed(mut self) {
        self.watches = Watches::default();
        while self.next().await.is_some() {}
    }
}

/// Waits for the outcome of a request. A panic becomes [`SessionRefusal::Internal`].
async fn outcome_or_internal_error(outcome: impl Future<Output = Outcome>) -> Outcome {
    catch_panic(outcome).await.unwrap_or(Err(SessionRefusal::Internal))
}
