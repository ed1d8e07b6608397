//! The backend of one connection that works with sessions: its requests, and the sessions it watches.
//!
//! Requests are dispatched in the order in which they were submitted; a request that takes long to answer does not
//! delay the next. Watched events stay in the log until the connection takes them, so a connection that does not read
//! falls behind and costs no memory.
//!
//! A server may have thousands of idle connections, so an idle client has no task: each request has a task until it
//! is answered, and [`next`](Backend::next) polls the watches.

mod begun_runs;
mod dispatch;
mod peer;
mod watches;

use std::collections::VecDeque;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::join_all;
use parlor_tools::catch_panic;
use parlor_vocab::{
    Answer, Backend, ClosingPart, RegistryEvent, RegistryReply, RegistryRequest, SessionId, SessionRefusal,
    Ticket, Update, UpdateOf,
};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use self::begun_runs::BegunRuns;
use self::dispatch::{Dispatched, Outcome, dispatch};
pub use self::peer::{MAX_PEER_REQUESTS, MAX_PEER_WATCHED, PeerClient};
use self::watches::{WatchProgress, Watches};
use super::{Reach, Sessions};

/// How many requests of one connection may be unanswered at a time.
pub const MAX_REQUESTS: usize = 64;

/// How many sessions one connection may watch at a time.
pub const MAX_WATCHED: usize = 64;

/// The limits of one connection.
#[derive(Clone, Copy)]
struct ClientLimits {
    requests: usize,
    watched: usize,
}

/// What happens to active runs when the connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnDisconnect {
    /// All runs of this process stop, and those that this client began in sessions of other processes. For a process that
    /// serves only this connection.
    Stop,
    /// Like [`Stop`](Self::Stop), but sessions that other processes watch stay open, until [`Sessions::hand_over`].
    HandOver,
    /// Runs continue.
    Keep,
}

/// The session backend of one connection.
pub struct SessionClient {
    sessions: Arc<Sessions>,
    reach: Reach,
    limits: ClientLimits,
    on_disconnect: OnDisconnect,
    /// Requests that wait for the one before them to be dispatched.
    submitted: VecDeque<(Ticket, RegistryRequest)>,
    is_dispatching: bool,
    /// How many requests have no answer yet.
    unanswered: usize,
    begun_runs: BegunRuns,
    tasks: JoinSet<Progress>,
    watches: Watches,
    is_closing: bool,
    /// The session to delete when the connection ends, if it is unused then.
    delete_if_unused: Option<SessionId>,
    /// Cancelled when the runs that had to stop have stopped.
    closed: CancellationToken,
}

/// What a client waits for.
enum ClientProgress {
    Update(UpdateOf<SessionClient>),
    /// The watch of this session has ended.
    WatchEnded(SessionId),
}

/// What a request's task reports.
enum Progress {
    /// The request was dispatched: the next one may be dispatched.
    Dispatched(Ticket, Result<Dispatched, SessionRefusal>),
    /// A request that was dispatched earlier has its answer.
    Answered(Ticket, Outcome),
    /// A run of the client was stopped after the client had left.
    Stopped,
}

impl SessionClient {
    /// A client with no request and no watch.
    pub fn new(sessions: Arc<Sessions>, on_disconnect: OnDisconnect) -> Self {
        Self {
            sessions,
            reach: Reach::AllProcesses,
            limits: ClientLimits { requests: MAX_REQUESTS, watched: MAX_WATCHED },
            on_disconnect,
            submitted: VecDeque::new(),
            is_dispatching: false,
            unanswered: 0,
            begun_runs: BegunRuns::default(),
            tasks: JoinSet::new(),
            watches: Watches::default(),
            is_closing: false,
            delete_if_unused: None,
            closed: CancellationToken::new(),
        }
    }

    /// Dispatches the next request, unless one is being dispatched. A command that the session's actor accepts at
    /// once, as it does most, is dispatched here without waiting for a task to be scheduled.
    fn dispatch_next(&mut self) {
        while !self.is_dispatching
            && let Some((ticket, request)) = self.submitted.pop_front()
        {
            if self.submitted.is_empty() {
                // Frees the buffer: most clients are idle, and there may be thousands.
                self.submitted = VecDeque::new();
            }
            let (sessions, reach) = (Arc::clone(&self.sessions), self.reach);
            let max_watched = self.limits.watched;
            let is_full = self.watches.len() >= max_watched;
            let is_refused = matches!(&request, RegistryRequest::Watch { session, .. }
                if is_full && !self.watches.contains(session));
            let mut dispatching = Box::pin(async move {
                match is_refused {
                    true => Err(SessionRefusal::TooManyWatched { limit: max_watched }),
                    false => catch_panic(dispatch(&sessions, reach, request))
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
            Progress::Stopped => return None,
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
                    Ok(Dispatched::Watch { watcher, session, seen, head, peer }) => {
                        let sessions = Arc::clone(&self.sessions);
                        self.watches.begin(sessions, session, watcher, peer, &self.closed);
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
        self.begun_runs.on_answer(ticket, &outcome);
        if self.is_closing {
            self.stop_late_runs();
        }
        Some(Update::Answer(ticket, outcome))
    }

    /// Stops the runs whose inputs were accepted after the client had left.
    fn stop_late_runs(&mut self) {
        for (session, run) in self.begun_runs.take_newest() {
            let sessions = Arc::clone(&self.sessions);
            self.tasks.spawn(async move {
                sessions.stop_at_peer(&session, &run).await;
                Progress::Stopped
            });
        }
    }

    /// Waits for the next answer, event or end of a watch. `None` when the client is closed. Cancel safe.
    async fn next_progress(&mut self) -> Option<ClientProgress> {
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
                        return Some(ClientProgress::Update(update));
                    }
                }
                progress = self.watches.next(), if !self.watches.is_empty() => {
                    return Some(match progress {
                        WatchProgress::Updated(event) => ClientProgress::Update(Update::Event(event)),
                        WatchProgress::Ended(session) => ClientProgress::WatchEnded(session),
                    });
                }
                () = self.closed.cancelled(), if is_finished => return None,
                () = std::future::pending(), if is_idle && !self.is_closing => {}
            }
        }
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
        if let RegistryRequest::DeleteIfUnused(session) = request {
            // At once, because the connection may end before a task is scheduled.
            self.delete_if_unused = session;
            return Some((ticket, Ok(RegistryReply::Done)));
        }
        let limit = self.limits.requests;
        if self.unanswered >= limit {
            return Some((ticket, Err(SessionRefusal::TooManyRequests { limit })));
        }
        self.unanswered += 1;
        if self.on_disconnect != OnDisconnect::Keep {
            self.begun_runs.on_request(ticket, &request);
        }
        self.submitted.push_back((ticket, request));
        self.dispatch_next();
        None
    }

    async fn next(&mut self) -> Option<UpdateOf<Self>> {
        loop {
            match self.next_progress().await? {
                ClientProgress::Update(update) => return Some(update),
                ClientProgress::WatchEnded(_) => {}
            }
        }
    }

    /// Pending requests are still answered, and watches deliver all events that happened before the close.
    fn begin_close(&mut self) {
        self.is_closing = true;
        let (sessions, closed, on_disconnect) =
            (Arc::clone(&self.sessions), self.closed.clone(), self.on_disconnect);
        let unused = self.delete_if_unused.take();
        let begun = self.begun_runs.take_newest();
        tokio::spawn(async move {
            let close = async {
                match on_disconnect {
                    OnDisconnect::Stop => sessions.close().await,
                    OnDisconnect::HandOver => sessions.close_unless_peers_use().await,
                    OnDisconnect::Keep => {}
                }
            };
            // At the same time: an owner that does not answer must not delay the end of the sessions here.
            tokio::join!(
                join_all(begun.iter().map(|(session, run)| sessions.stop_at_peer(session, run))),
                close,
            );
            if let Some(session) = unused {
                // If this fails, the session stays and is as good as any other without messages.
                let _ = sessions.delete_if_unused(&session).await;
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
