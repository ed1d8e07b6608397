//! The handle of a session that is open here: how the sessions speaks to the session's task.

use std::sync::Arc;

use parlor_log::LogError;
use parlor_vocab::{
    Failure, Message, MessageId, NewSession, RunEvent, RunId, SessionCommand, SessionEvent, SessionId,
    SessionRefusal, SessionReply, Usage,
};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::actor::Actor;
use super::history_loader::KEPT_HISTORY_BYTES;
use super::{SessionShared, refusal_of};
use crate::session::{Finish, History, Session};

/// How many events are read at a time when a session is opened. Many: a long reading is shared by two
/// threads, and its bytes are bounded by the log.
const READ_EVENTS: usize = 16 * 1024;

/// What the task is asked. Large parts are boxed: room for many of these is kept for each session.
pub(super) enum ActorMessage {
    Command(Box<SessionCommand>, oneshot::Sender<Result<SessionReply, SessionRefusal>>),
    View(oneshot::Sender<Box<Session>>),
    /// Why the end of a run cannot be recorded, if that is so.
    Trouble(oneshot::Sender<Option<String>>),
    /// From a driver; answered when it is durable.
    Record(RunId, Vec<RunEvent>, oneshot::Sender<Result<(), LogError>>),
    /// From a driver: a summary stands in the place of what was said before a message. Answered when it
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
    Leave(oneshot::Sender<Result<(), SessionRefusal>>),
    Close,
}

/// A session that is open here.
#[derive(Clone)]
pub(super) struct OpenSession {
    inbox: mpsc::Sender<ActorMessage>,
    id: SessionId,
    task: Arc<tokio::sync::Mutex<Option<JoinHandle<()>>>>,
}

impl OpenSession {
    pub(super) fn new(inbox: mpsc::Sender<ActorMessage>, id: SessionId, task: JoinHandle<()>) -> Self {
        let task = Arc::new(tokio::sync::Mutex::new(Some(task)));
        Self { inbox, id, task }
    }

    pub(super) async fn create(
        shared: &SessionShared,
        id: SessionId,
        new_session: NewSession,
        messages: Vec<Message>,
    ) -> Result<Self, SessionRefusal> {
        let lease = shared.deps.log.acquire(&id).await.map_err(refusal_of)?;
        let mut actor = Actor::new(shared, id.clone(), lease);
        let messages = messages.into_iter().map(SessionEvent::MessageAdded);
        match actor
            .append(std::iter::once(SessionEvent::Created(new_session)).chain(messages).collect())
            .await
        {
            Ok(()) => Ok(actor.start()),
            Err(LogError::Conflict { .. }) => Err(SessionRefusal::SessionExists(id)),
            Err(error) => Err(refusal_of(error)),
        }
    }

    pub(super) async fn load(shared: &SessionShared, id: SessionId) -> Result<Self, SessionRefusal> {
        // An id that nobody has used is not worth a lease.
        shared.deps.log.session(&id).await.map_err(refusal_of)?;
        let lease = shared.deps.log.acquire(&id).await.map_err(refusal_of)?;
        let session = read_with(shared, &id, |history| history.drop_beyond(KEPT_HISTORY_BYTES)).await?;
        let mut actor = Actor::new(shared, id, lease);
        actor.recover(session).await.map_err(refusal_of)?;
        Ok(actor.start())
    }

    pub(super) fn is_running(&self) -> bool {
        !self.inbox.is_closed()
    }

    pub(super) async fn submit(
        self,
        command: SessionCommand,
    ) -> Result<impl Future<Output = Result<SessionReply, SessionRefusal>> + Send, SessionRefusal> {
        let (reply, answer) = oneshot::channel();
        self.put(ActorMessage::Command(Box::new(command), reply)).await?;
        Ok(async move { answer.await.map_err(|_| self.gone())? })
    }

    pub(super) async fn view(&self) -> Result<Session, SessionRefusal> {
        let (reply, answer) = oneshot::channel();
        self.put(ActorMessage::View(reply)).await?;
        answer.await.map(|session| *session).map_err(|_| self.gone())
    }

    pub(super) async fn trouble(&self) -> Result<Option<String>, SessionRefusal> {
        let (reply, answer) = oneshot::channel();
        self.put(ActorMessage::Trouble(reply)).await?;
        answer.await.map_err(|_| self.gone())
    }

    pub(super) async fn waiting(&self) -> Result<usize, SessionRefusal> {
        let (reply, answer) = oneshot::channel();
        self.put(ActorMessage::Waiting(reply)).await?;
        answer.await.map_err(|_| self.gone())
    }

    /// Ends the task if the session has nothing to do, and waits for its end.
    pub(super) async fn leave(self) -> Result<(), SessionRefusal> {
        let (reply, answer) = oneshot::channel();
        self.put(ActorMessage::Leave(reply)).await?;
        answer.await.map_err(|_| self.gone())??;
        self.closed().await;
        Ok(())
    }

    /// Asks the task to stop its runs and end.
    pub(super) fn begin_close(&self) {
        let inbox = self.inbox.clone();
        tokio::spawn(async move { inbox.send(ActorMessage::Close).await });
    }

    /// Waits for the task's end.
    pub(super) async fn closed(self) {
        if let Some(task) = self.task.lock().await.take() {
            // A task that panicked is as gone as one that ended.
            let _ = task.await;
        }
    }

    async fn put(&self, ask: ActorMessage) -> Result<(), SessionRefusal> {
        self.inbox.send(ask).await.map_err(|_| self.gone())
    }

    fn gone(&self) -> SessionRefusal {
        SessionRefusal::LogUnavailable { reason: format!("session {} was closed", self.id) }
    }
}

/// A session as its log tells it, without opening it.
pub(crate) async fn read(shared: &SessionShared, id: &SessionId) -> Result<Session, SessionRefusal> {
    read_with(shared, id, |_| {}).await
}

/// The same, with what was said last: of its history no more than `max_bytes`, and nothing of what tools did.
pub(crate) async fn read_newest(
    shared: &SessionShared,
    id: &SessionId,
    max_bytes: usize,
) -> Result<Session, SessionRefusal> {
    read_with(shared, id, |history| history.keep_newest(max_bytes)).await
}

/// The same; `trim` is given the history again and again while it is read.
async fn read_with(
    shared: &SessionShared,
    id: &SessionId,
    trim: impl Fn(&mut History),
) -> Result<Session, SessionRefusal> {
    let mut session = Session::default();
    loop {
        let entries = shared.deps.log.read(id, session.head(), READ_EVENTS).await.map_err(refusal_of)?;
        if entries.is_empty() {
            break;
        }
        entries.iter().for_each(|entry| session.apply(entry));
        trim(&mut session.history);
    }
    if session.new_session().is_none() {
        return Err(SessionRefusal::UnknownSession(id.clone()));
    }
    Ok(session)
}
