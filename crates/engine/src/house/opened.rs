//! The handle of a session that is open here: how the house speaks to the session's task.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parlor_log::LogError;
use parlor_vocab::{
    Birth, Failure, Message, MessageId, Refusal, RunEvent, RunId, SessionCommand, SessionEvent, SessionId,
    SessionReply, Usage,
};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::actor::Actor;
use super::recall::KEPT_HISTORY_BYTES;
use super::{Rooms, refusal_of};
use crate::session::{Finish, History, Session};

/// How many events are read at a time when a session is opened. Many: a long reading is shared by two
/// threads, and its bytes are bounded by the log.
const READ_EVENTS: usize = 16 * 1024;

/// What the task is asked. Large parts are boxed: room for many of these is kept for each session.
pub(super) enum Ask {
    Command(Box<SessionCommand>, oneshot::Sender<Result<SessionReply, Refusal>>),
    View(oneshot::Sender<Box<Session>>),
    /// Why the end of a run cannot be recorded, if that is so.
    Trouble(oneshot::Sender<Option<String>>),
    /// From a performer; answered when it is durable.
    Record(RunId, Vec<RunEvent>, oneshot::Sender<Result<(), LogError>>),
    /// From a performer: a summary stands in the place of what was said before a message. Answered when it
    /// is durable.
    Forget(MessageId, String, oneshot::Sender<Result<(), LogError>>),
    /// How many inputs wait.
    Waiting(oneshot::Sender<usize>),
    /// What the session has consumed.
    Usage(oneshot::Sender<Usage>),
    Finish(Box<Finish>),
    /// What became of a summary.
    Summarized(Box<Result<String, Failure>>),
    /// End, if there is nothing to do; answered with whether it does.
    Leave(oneshot::Sender<Result<(), Refusal>>),
    Close,
}

/// A session that is open here.
#[derive(Clone)]
pub(super) struct OpenSession {
    asks: mpsc::Sender<Ask>,
    id: SessionId,
    task: Arc<tokio::sync::Mutex<Option<JoinHandle<()>>>>,
    used: Arc<AtomicU64>,
}

impl OpenSession {
    pub(super) fn new(asks: mpsc::Sender<Ask>, id: SessionId, task: JoinHandle<()>) -> Self {
        let task = Arc::new(tokio::sync::Mutex::new(Some(task)));
        Self { asks, id, task, used: Arc::default() }
    }

    pub(super) async fn create(
        rooms: &Rooms,
        id: SessionId,
        birth: Birth,
        messages: Vec<Message>,
    ) -> Result<Self, Refusal> {
        let lease = rooms.means.log.acquire(&id).await.map_err(refusal_of)?;
        let mut actor = Actor::new(rooms, id.clone(), lease);
        let messages = messages.into_iter().map(SessionEvent::MessageAdded);
        match actor.append(std::iter::once(SessionEvent::Created(birth)).chain(messages).collect()).await {
            Ok(()) => Ok(actor.start()),
            Err(LogError::Conflict { .. }) => Err(Refusal::SessionExists(id)),
            Err(error) => Err(refusal_of(error)),
        }
    }

    pub(super) async fn load(rooms: &Rooms, id: SessionId) -> Result<Self, Refusal> {
        // An id that nobody has used is not worth a lease.
        rooms.means.log.session(&id).await.map_err(refusal_of)?;
        let lease = rooms.means.log.acquire(&id).await.map_err(refusal_of)?;
        let session = read_with(rooms, &id, |history| history.let_go_beyond(KEPT_HISTORY_BYTES)).await?;
        let mut actor = Actor::new(rooms, id, lease);
        actor.recover(session).await.map_err(refusal_of)?;
        Ok(actor.start())
    }

    pub(super) fn is_running(&self) -> bool {
        !self.asks.is_closed()
    }

    /// Notes that it was used, as the `moment`th use of any session.
    pub(super) fn touch(&self, moment: u64) {
        self.used.store(moment, Ordering::Relaxed);
    }

    /// When it was used last.
    pub(super) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    pub(super) async fn submit(
        self,
        command: SessionCommand,
    ) -> Result<impl Future<Output = Result<SessionReply, Refusal>> + Send, Refusal> {
        let (reply, answer) = oneshot::channel();
        self.put(Ask::Command(Box::new(command), reply)).await?;
        Ok(async move { answer.await.map_err(|_| self.gone())? })
    }

    pub(super) async fn view(&self) -> Result<Session, Refusal> {
        let (reply, answer) = oneshot::channel();
        self.put(Ask::View(reply)).await?;
        answer.await.map(|session| *session).map_err(|_| self.gone())
    }

    pub(super) async fn trouble(&self) -> Result<Option<String>, Refusal> {
        let (reply, answer) = oneshot::channel();
        self.put(Ask::Trouble(reply)).await?;
        answer.await.map_err(|_| self.gone())
    }

    pub(super) async fn waiting(&self) -> Result<usize, Refusal> {
        let (reply, answer) = oneshot::channel();
        self.put(Ask::Waiting(reply)).await?;
        answer.await.map_err(|_| self.gone())
    }

    /// Ends the task if the session has nothing to do, and waits for its end.
    pub(super) async fn leave(self) -> Result<(), Refusal> {
        let (reply, answer) = oneshot::channel();
        self.put(Ask::Leave(reply)).await?;
        answer.await.map_err(|_| self.gone())??;
        self.closed().await;
        Ok(())
    }

    /// Asks the task to stop its runs and end.
    pub(super) fn begin_close(&self) {
        let asks = self.asks.clone();
        tokio::spawn(async move { asks.send(Ask::Close).await });
    }

    /// Waits for the task's end.
    pub(super) async fn closed(self) {
        if let Some(task) = self.task.lock().await.take() {
            // A task that panicked is as gone as one that ended.
            let _ = task.await;
        }
    }

    async fn put(&self, ask: Ask) -> Result<(), Refusal> {
        self.asks.send(ask).await.map_err(|_| self.gone())
    }

    fn gone(&self) -> Refusal {
        Refusal::LogUnavailable { reason: format!("session {} was closed", self.id) }
    }
}

/// A session as its log tells it, without opening it.
pub(super) async fn read(rooms: &Rooms, id: &SessionId) -> Result<Session, Refusal> {
    read_with(rooms, id, |_| {}).await
}

/// The same, with what was said last: of its history no more than `max_bytes`, and nothing of what tools did.
pub(super) async fn read_newest(rooms: &Rooms, id: &SessionId, max_bytes: usize) -> Result<Session, Refusal> {
    read_with(rooms, id, |history| history.keep_newest(max_bytes)).await
}

/// The same; `trim` is given the history again and again while it is read.
async fn read_with(rooms: &Rooms, id: &SessionId, trim: impl Fn(&mut History)) -> Result<Session, Refusal> {
    let mut session = Session::default();
    loop {
        let entries = rooms.means.log.read(id, session.head(), READ_EVENTS).await.map_err(refusal_of)?;
        if entries.is_empty() {
            break;
        }
        entries.iter().for_each(|entry| session.apply(entry));
        trim(&mut session.history);
    }
    if session.birth().is_none() {
        return Err(Refusal::UnknownSession(id.clone()));
    }
    Ok(session)
}
