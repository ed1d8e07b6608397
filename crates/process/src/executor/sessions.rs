//! Sessions of the exec door that outlive their connections: the processes of a client whose connection is lost run on for
//! a while, and the client can go on with them over another connection.

use std::collections::HashMap;
use std::future::pending;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use parlor_vocab::{
    Answer, Backend, ExecutorEvent, ExecutorRefusal, ExecutorReply, ExecutorRequest, Ticket, Update, UpdateOf,
};
use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, sleep_until};

use super::{Executor, HttpClient, WorkObserver};
use crate::Processes;

/// How long a session is kept after its connection is lost.
pub const SESSION_KEEP_TIME: Duration = Duration::from_secs(30);

/// How many sessions without a connection are kept; the oldest ends first.
pub const MAX_KEPT_SESSIONS: usize = 64;

/// All sessions of a door. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct ExecutorSessions {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// How many sessions have not ended.
    living: watch::Sender<usize>,
    http: Option<Arc<dyn HttpClient>>,
    observer: Option<Arc<dyn WorkObserver>>,
}

#[derive(Debug, Default)]
struct State {
    by_id: HashMap<String, Slot>,
    /// How often a session was kept.
    kept: u64,
    is_closed: bool,
}

#[derive(Debug)]
enum Slot {
    /// A connection has the session.
    Attached,
    /// A task keeps the session.
    Kept {
        /// Larger for those that were kept later.
        number: u64,
        order: oneshot::Sender<Order>,
    },
}

/// What the task that keeps a session is told.
#[derive(Debug)]
enum Order {
    Resume(oneshot::Sender<Box<Attachment>>),
    End,
}

#[derive(Debug)]
struct Session {
    executor: Executor<Processes>,
    /// The first ticket that the executor has not seen. The tickets of a connection are counted from here, so that the
    /// answer to a request of an earlier connection is not taken for another.
    next_ticket: u64,
}

/// A session that has a connection. Dropping it keeps the session for another connection.
#[derive(Debug)]
struct Attachment {
    /// `None` only while it is dropped.
    session: Option<Session>,
    /// What is added to the connection's tickets.
    first_ticket: u64,
    shared: Arc<Shared>,
}

impl ExecutorSessions {
    /// Sessions whose clients can make HTTP requests with `client`.
    pub fn with_http(client: Arc<dyn HttpClient>) -> Self {
        Self { shared: Arc::new(Shared { http: Some(client), ..Shared::default() }) }
    }

    /// Tells `observer` what clients do. Must come before the first connection.
    #[must_use]
    pub fn with_observer(mut self, observer: Arc<dyn WorkObserver>) -> Self {
        if let Some(shared) = Arc::get_mut(&mut self.shared) {
            shared.observer = Some(observer);
        }
        self
    }

    /// The backend of a connection, which has no session yet.
    pub fn connect(&self) -> SessionExecutor {
        SessionExecutor { shared: Arc::clone(&self.shared), state: Connection::New }
    }

    /// Ends the sessions that have no connection, and those that lose it from now on. Waits until none is left.
    pub async fn close(&self) {
        let orders: Vec<_> = {
            let mut state = self.shared.state();
            state.is_closed = true;
            let slots = state.by_id.extract_if(|_, slot| matches!(slot, Slot::Kept { .. }));
            slots.map(|(_, slot)| slot).collect()
        };
        for slot in orders {
            if let Slot::Kept { order, .. } = slot {
                // Otherwise it ends by itself.
                let _ = order.send(Order::End);
            }
        }
        // The sender is in `self`, so it is not closed.
        let _ = self.shared.living.subscribe().wait_for(|living| *living == 0).await;
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(self: &Arc<Self>) -> Box<Attachment> {
        let mut executor = Executor::new(Processes::default());
        if let Some(client) = &self.http {
            executor = executor.with_http(Arc::clone(client));
        }
        if let Some(observer) = &self.observer {
            executor = executor.with_observer(Arc::clone(observer));
        }
        self.state().by_id.insert(executor.session.clone(), Slot::Attached);
        self.living.send_modify(|living| *living += 1);
        self.attach(Session { executor, next_ticket: 0 })
    }

    fn attach(self: &Arc<Self>, session: Session) -> Box<Attachment> {
        let first_ticket = session.next_ticket;
        Box::new(Attachment { session: Some(session), first_ticket, shared: Arc::clone(self) })
    }

    /// Asks for a session that is kept.
    fn resume(&self, id: &str) -> Result<oneshot::Receiver<Box<Attachment>>, ExecutorRefusal> {
        let mut state = self.state();
        let unknown = || ExecutorRefusal::UnknownSession(id.to_owned());
        let slot = state.by_id.get_mut(id).ok_or_else(unknown)?;
        let Slot::Kept { order, .. } = std::mem::replace(slot, Slot::Attached) else {
            return Err(ExecutorRefusal::SessionAttached(id.to_owned()));
        };
        let (to, from) = oneshot::channel();
        order.send(Order::Resume(to)).map_err(|_| unknown())?;
        Ok(from)
    }

    /// Keeps a session that has lost its connection.
    fn detach(self: &Arc<Self>, mut session: Session) {
        session.executor.forget_requests();
        // Without a runtime the program is ending, and the processes end with it.
        let Ok(runtime) = Handle::try_current() else { return };
        let mut state = self.state();
        if state.is_closed {
            state.by_id.remove(&session.executor.session);
            runtime.spawn(end(Arc::clone(self), session));
            return;
        }
        let (order, orders) = oneshot::channel();
        state.kept += 1;
        let slot = Slot::Kept { number: state.kept, order };
        state.by_id.insert(session.executor.session.clone(), slot);
        state.end_oldest();
        runtime.spawn(keep(Arc::clone(self), session, orders));
    }

    /// Forgets a session if it is kept. Returns false if a connection has asked for it.
    fn forget(&self, id: &str) -> bool {
        let mut state = self.state();
        let is_kept = matches!(state.by_id.get(id), Some(Slot::Kept { .. }));
        if is_kept {
            state.by_id.remove(id);
        }
        is_kept
    }
}

impl State {
    /// Ends the session that is kept longest, if there are too many.
    fn end_oldest(&mut self) {
        let kept = self.by_id.iter().filter_map(|(id, slot)| match slot {
            Slot::Kept { number, .. } => Some((*number, id)),
            Slot::Attached => None,
        });
        let (mut count, mut oldest) = (0, None);
        for (number, id) in kept {
            count += 1;
            if oldest.is_none_or(|(least, _)| number < least) {
                oldest = Some((number, id));
            }
        }
        let oldest = oldest.filter(|_| count > MAX_KEPT_SESSIONS).map(|(_, id)| id.clone());
        if let Some(Slot::Kept { order, .. }) = oldest.and_then(|id| self.by_id.remove(&id)) {
            let _ = order.send(Order::End);
        }
    }
}

/// Keeps a session until a connection asks for it, or its time is over. Its processes run on; what they write is retained
/// for `process/read`.
async fn keep(shared: Arc<Shared>, mut session: Session, mut orders: oneshot::Receiver<Order>) {
    let deadline = Instant::now() + SESSION_KEEP_TIME;
    let order = loop {
        tokio::select! {
            order = &mut orders => break order.ok(),
            // Events and answers of a connection that is gone.
            _ = session.executor.next() => {}
            () = sleep_until(deadline) => {
                let is_forgotten = shared.forget(&session.executor.session);
                break if is_forgotten { None } else { orders.await.ok() };
            }
        }
    };
    match order {
        // If that connection is gone too, the attachment keeps the session again.
        Some(Order::Resume(to)) => drop(to.send(shared.attach(session))),
        Some(Order::End) | None => end(shared, session).await,
    }
}

/// Ends the processes of a session.
async fn end(shared: Arc<Shared>, mut session: Session) {
    session.executor.begin_close();
    session.executor.closed().await;
    shared.living.send_modify(|living| *living -= 1);
}

impl Attachment {
    fn submit(&mut self, ticket: Ticket, request: ExecutorRequest) -> Option<ExecutorAnswer> {
        let session = self.session.as_mut()?;
        let inner = ticket.0 + self.first_ticket;
        session.next_ticket = session.next_ticket.max(inner + 1);
        let (_, answer) = session.executor.submit(Ticket(inner), request)?;
        Some((ticket, answer))
    }

    async fn next(&mut self) -> Option<UpdateOf<SessionExecutor>> {
        let session = self.session.as_mut()?;
        loop {
            match session.executor.next().await? {
                Update::Answer(ticket, answer) => {
                    // Otherwise a connection asked that is gone.
                    if let Some(outer) = ticket.0.checked_sub(self.first_ticket) {
                        return Some(Update::Answer(Ticket(outer), answer));
                    }
                }
                Update::Event(event) => return Some(Update::Event(event)),
            }
        }
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        if let Some(session) = self.session.take() {
            self.shared.detach(session);
        }
    }
}

type ExecutorAnswer = Answer<ExecutorReply, ExecutorRefusal>;

/// The backend of a connection whose session can outlive it.
#[derive(Debug)]
pub struct SessionExecutor {
    shared: Arc<Shared>,
    state: Connection,
}

#[derive(Debug)]
enum Connection {
    /// The client has no session yet.
    New,
    /// The client waits for its earlier session.
    Resuming {
        ticket: Ticket,
        id: String,
        from: oneshot::Receiver<Box<Attachment>>,
    },
    Open(Box<Attachment>),
    /// The connection is ending, and has left its session.
    Closed,
}

impl Backend for SessionExecutor {
    type Request = ExecutorRequest;
    type Reply = ExecutorReply;
    type Event = ExecutorEvent;
    type Error = ExecutorRefusal;

    fn submit(&mut self, ticket: Ticket, request: ExecutorRequest) -> Option<ExecutorAnswer> {
        let request = match (request, &mut self.state) {
            (request, Connection::Open(attachment)) => return attachment.submit(ticket, request),
            (request, _) => request,
        };
        let ExecutorRequest::OpenSession { resume } = request else {
            // The door lets no other request through before a session is open.
            return Some((ticket, Err(ExecutorRefusal::UnknownSession(String::new()))));
        };
        let Some(id) = resume else {
            let mut attachment = self.shared.open();
            let answer = attachment.submit(ticket, ExecutorRequest::OpenSession { resume: None });
            self.state = Connection::Open(attachment);
            return answer;
        };
        match self.shared.resume(&id) {
            Ok(from) => {
                self.state = Connection::Resuming { ticket, id, from };
                None
            }
            Err(refusal) => Some((ticket, Err(refusal))),
        }
    }

    async fn next(&mut self) -> Option<UpdateOf<Self>> {
        match &mut self.state {
            Connection::New => pending().await,
            Connection::Closed => None,
            Connection::Open(attachment) => attachment.next().await,
            Connection::Resuming { ticket, id, from } => {
                let (ticket, attachment) = (*ticket, from.await);
                let Ok(mut attachment) = attachment else {
                    let id = std::mem::take(id);
                    self.state = Connection::New;
                    return Some(Update::Answer(ticket, Err(ExecutorRefusal::UnknownSession(id))));
                };
                let opened = attachment.submit(ticket, ExecutorRequest::OpenSession { resume: None });
                self.state = Connection::Open(attachment);
                opened.map(|(ticket, answer)| Update::Answer(ticket, answer))
            }
        }
    }

    fn begin_close(&mut self) {
        self.state = Connection::Closed;
    }

    async fn closed(self) {}
}

#[cfg(test)]
mod tests;
