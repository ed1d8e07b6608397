//! The handle of a session that is open in this process: how the registry talks to the session's actor.

use std::sync::Arc;

use parlor_log::{EventLog, Lease, LogError};
use parlor_tools::clean;
use parlor_vocab::{
    Failure, MessageId, QuestionId, QuestionOutcome, RunEvent, RunId, SessionCommand, SessionEvent,
    SessionId, SessionRefusal, SessionReply, SessionTotals, Timestamp, Usage,
};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::actor::Actor;
use super::external_run::BeginRun;
use super::history_loader::{CACHED_HISTORY_BYTES, load_history, load_newest_history};
use super::state_loader::{LoadedState, load_state};
use super::{SessionShared, refusal_of};
use crate::session::{FinishedRun, History, Session};

/// A message to a session's actor. Large parts are boxed, because each session's mailbox holds room for many
/// messages.
pub(super) enum ActorMessage {
    Command(Box<SessionCommand>, CommandReply),
    /// Asks for a copy of the state.
    View(oneshot::Sender<Box<Session>>),
    /// Asks why the end of a run could not be recorded, if so.
    RecordingError(oneshot::Sender<Option<String>>),
    /// Begin a run that a client carries out.
    BeginExternalRun(Box<BeginRun>),
    /// From a run driver: append these events. Answered when they are durable.
    Record(RunId, Vec<RunEvent>, oneshot::Sender<Result<(), LogError>>),
    /// From a run driver: replace the history before a message with a summary. Answered when that is durable.
    CompactBefore(MessageId, String, oneshot::Sender<Result<(), LogError>>),
    /// Asks how many inputs are queued.
    QueueLength(oneshot::Sender<usize>),
    /// Asks for tokens and cost of the session.
    Usage(oneshot::Sender<Usage>),
    /// Asks for the number of messages, and for tokens and cost.
    Totals(oneshot::Sender<Result<SessionTotals, LogError>>),
    /// From a run driver: tell it how the question is settled, which it has asked before.
    AwaitAnswer(QuestionId, oneshot::Sender<QuestionOutcome>),
    /// From a run driver: nobody has answered the question in time.
    ExpireQuestion(QuestionId),
    /// From a run driver: its run has ended.
    RunFinished(Box<FinishedRun>),
    /// The summary of a compaction, or why there is none.
    Summarized(Box<Result<String, Failure>>),
    /// Close the session if it is idle. Answered with the reason if it is not.
    CloseIfIdle(oneshot::Sender<Result<(), SessionRefusal>>),
    /// Stop all runs and close the session.
    Close,
}

/// The channel for the reply to a command.
pub(super) type CommandReply = oneshot::Sender<Result<SessionReply, CommandError>>;

/// Why a command has no reply.
pub(super) enum CommandError {
    /// The session refused the command.
    Refused(SessionRefusal),
    /// The owner of the session lost its lease or is gone, and did not execute the command. It may be sent again, to whoever
    /// has the session now.
    OwnerLost,
    /// The owner of the session was lost before its reply: it may have executed the command, or not.
    OutcomeUnknown,
    /// The owner of the session is there and does not reply.
    OwnerSilent {
        /// Whether the owner got the command, and may execute it later.
        was_sent: bool,
    },
}

impl From<SessionRefusal> for CommandError {
    fn from(refusal: SessionRefusal) -> Self {
        Self::Refused(refusal)
    }
}

/// The handle of an open session. Clones share one actor.
#[derive(Clone)]
pub(super) struct OpenSession {
    mailbox: mpsc::Sender<ActorMessage>,
    id: SessionId,
    task: Arc<tokio::sync::Mutex<Option<JoinHandle<()>>>>,
    /// Cancelled when the actor ends.
    closed: CancellationToken,
}

impl OpenSession {
    /// The handle of the actor that `task` runs. `closed` is cancelled when it ends.
    pub(super) fn new(
        mailbox: mpsc::Sender<ActorMessage>,
        id: SessionId,
        task: JoinHandle<()>,
        closed: CancellationToken,
    ) -> Self {
        let task = Arc::new(tokio::sync::Mutex::new(Some(task)));
        Self { mailbox, id, task, closed }
    }

    /// Cancelled when the actor ends.
    pub(super) fn closed_token(&self) -> CancellationToken {
        self.closed.clone()
    }

    /// Creates a session that begins with `events`, and starts its actor.
    pub(super) async fn create(
        shared: &SessionShared,
        id: SessionId,
        events: Vec<(Timestamp, SessionEvent)>,
    ) -> Result<Self, SessionRefusal> {
        let lease = shared.deps.log.acquire(&id).await.map_err(refusal_of)?;
        let mut actor = Actor::new(shared, id.clone(), lease);
        match actor.append_at(events).await {
            Ok(()) => Ok(actor.start()),
            Err(LogError::Conflict { .. }) => Err(SessionRefusal::SessionExists(id)),
            Err(error) => Err(refusal_of(error)),
        }
    }

    /// Reads a leased session from the log and starts its actor.
    pub(super) async fn load(
        shared: &SessionShared,
        id: SessionId,
        lease: Lease,
    ) -> Result<Self, SessionRefusal> {
        let trim = |history: &mut History| history.drop_beyond(CACHED_HISTORY_BYTES);
        let loaded = load_state(&*shared.deps.log, &id, trim).await.map_err(refusal_of)?;
        let mut actor = Actor::new(shared, id, lease);
        actor.recover(loaded, shared.starts_queued).await.map_err(refusal_of)?;
        Ok(actor.start())
    }

    pub(super) fn is_running(&self) -> bool {
        !self.mailbox.is_closed()
    }

    /// Sends a command. The returned future waits for the reply.
    pub(super) async fn submit(
        self,
        command: SessionCommand,
    ) -> Result<impl Future<Output = Result<SessionReply, CommandError>> + Send, SessionRefusal> {
        let (reply, answer) = oneshot::channel();
        self.send(ActorMessage::Command(Box::new(command), reply)).await?;
        Ok(async move { answer.await.map_err(|_| CommandError::Refused(self.closed_refusal()))? })
    }

    pub(super) async fn view(&self) -> Result<Session, SessionRefusal> {
        let (reply, answer) = oneshot::channel();
        self.send(ActorMessage::View(reply)).await?;
        answer.await.map(|session| *session).map_err(|_| self.closed_refusal())
    }

    pub(super) async fn totals(&self) -> Result<SessionTotals, SessionRefusal> {
        let (reply, answer) = oneshot::channel();
        self.send(ActorMessage::Totals(reply)).await?;
        answer.await.map_err(|_| self.closed_refusal())?.map_err(refusal_of)
    }

    pub(super) async fn recording_error(&self) -> Result<Option<String>, SessionRefusal> {
        let (reply, answer) = oneshot::channel();
        self.send(ActorMessage::RecordingError(reply)).await?;
        answer.await.map_err(|_| self.closed_refusal())
    }

    pub(super) async fn queue_length(&self) -> Result<usize, SessionRefusal> {
        let (reply, answer) = oneshot::channel();
        self.send(ActorMessage::QueueLength(reply)).await?;
        answer.await.map_err(|_| self.closed_refusal())
    }

    /// Closes the session if it is idle, and waits for the actor's end.
    pub(super) async fn close_if_idle(self) -> Result<(), SessionRefusal> {
        let (reply, answer) = oneshot::channel();
        self.send(ActorMessage::CloseIfIdle(reply)).await?;
        answer.await.map_err(|_| self.closed_refusal())??;
        self.closed().await;
        Ok(())
    }

    /// Tells the actor to stop its runs and end. Does not wait.
    pub(super) fn begin_close(&self) {
        let mailbox = self.mailbox.clone();
        tokio::spawn(async move { mailbox.send(ActorMessage::Close).await });
    }

    /// Waits for the actor's end.
    pub(super) async fn closed(self) {
        if let Some(task) = self.task.lock().await.take() {
            // An actor that panicked has ended too.
            let _ = task.await;
        }
    }

    /// Where the actor gets its messages.
    pub(super) fn mailbox(&self) -> mpsc::Sender<ActorMessage> {
        self.mailbox.clone()
    }

    pub(super) async fn send(&self, message: ActorMessage) -> Result<(), SessionRefusal> {
        self.mailbox.send(message).await.map_err(|_| self.closed_refusal())
    }

    fn closed_refusal(&self) -> SessionRefusal {
        SessionRefusal::session_closing(&self.id)
    }
}

/// Reads the state of a session from the log, without opening it.
pub(crate) async fn read(shared: &SessionShared, id: &SessionId) -> Result<Session, SessionRefusal> {
    let mut session = read_whole(&*shared.deps.log, id).await.map_err(refusal_of)?;
    show_interrupted_message(shared, id, &mut session).await?;
    Ok(session)
}

async fn read_whole(log: &dyn EventLog, id: &SessionId) -> Result<Session, LogError> {
    let LoadedState { mut session, .. } = load_state(log, id, |_| {}).await?;
    if !session.history.is_cached() {
        session.history = load_history(log, id, session.history.from(), session.head()).await?;
    }
    Ok(session)
}

/// The number of messages and the usage of a session in the log. Reads its history only if nobody has counted the messages.
pub(crate) async fn read_totals(
    shared: &SessionShared,
    id: &SessionId,
) -> Result<SessionTotals, SessionRefusal> {
    let LoadedState { session, .. } =
        load_state(&*shared.deps.log, id, |history| history.drop_beyond(0)).await.map_err(refusal_of)?;
    let messages = match session.history.message_count() {
        Some(messages) => messages,
        None => read(shared, id).await?.history.message_count().unwrap_or_default(),
    };
    Ok(SessionTotals { messages, usage: session.usage() })
}

/// Like [`read`], but with at most `max_bytes` of the newest history, and without tool uses.
pub(crate) async fn read_newest(
    shared: &SessionShared,
    id: &SessionId,
    max_bytes: usize,
) -> Result<Session, SessionRefusal> {
    let log = &*shared.deps.log;
    let loaded = load_state(log, id, |history| history.keep_newest(max_bytes)).await;
    let LoadedState { mut session, .. } = loaded.map_err(refusal_of)?;
    if !session.history.is_cached() {
        let (from, head) = (session.history.from(), session.head());
        let newest = load_newest_history(log, id, from, head, max_bytes).await.map_err(refusal_of)?;
        session.history = newest.with_counts_of(&session.history);
    }
    show_interrupted_message(shared, id, &mut session).await?;
    Ok(session)
}

/// Adds the text that was kept of an unfinished message, if the process that wrote it has died. While it lives, watchers
/// get the text from it.
async fn show_interrupted_message(
    shared: &SessionShared,
    id: &SessionId,
    session: &mut Session,
) -> Result<(), SessionRefusal> {
    let log = &shared.deps.log;
    if session.open_message().is_none() || log.holder(id).await.map_err(refusal_of)?.is_some() {
        return Ok(());
    }
    if let Some(partial) = log.partial_message(id).await.map_err(refusal_of)? {
        session.show_partial_message(&partial.message, clean(&*shared.redact, partial.text));
    }
    Ok(())
}
