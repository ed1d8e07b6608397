//! The session behind the screen: what is sent to it, and what it reports.

use std::sync::Arc;
use std::time::Duration;

use parlor_engine::{Sessions, Watcher};
use parlor_log::PageRequest;
use parlor_vocab::{
    AgentChoice, AgentId, HistoryItem, NewSession, PolicyMode, RunId, Sender, Seq, SessionCommand, SessionId,
    SessionRefusal, SessionReply, SessionUpdate, UserInput, WhenBusy,
};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::super::exchange::DOOR;
use super::picker::{MAX_SESSIONS, SessionChoice};
use super::state::{JoinedSession, ScreenEvent};
use crate::sessions::pick::short_id;
use crate::settings::LOCAL;
use crate::time::minute;

/// Of a session that is opened, at most this much of its newest messages is shown.
pub(crate) const TAIL_BYTES: usize = 32 << 10;
/// Commands to a session that wait for the ones before them.
const OUTBOX: usize = 64;
/// How long a session may take to stop a run before it is no longer waited for.
const STOP_WAIT: Duration = Duration::from_secs(2);

/// The session that the screen shows. The first message creates one.
pub(super) struct SessionLink {
    sessions: Arc<Sessions>,
    pub(super) id: Option<SessionId>,
    pub(super) watcher: Option<Watcher>,
    /// The agent and model for a session that is created.
    pub(super) choice: AgentChoice,
    /// The mode for a session that is created.
    pub(super) mode: Option<PolicyMode>,
    /// Commands in the order in which they should be executed.
    outbox: mpsc::Sender<(SessionId, SessionCommand)>,
    results: mpsc::Sender<ScreenEvent>,
}

impl SessionLink {
    pub(super) fn new(
        sessions: &Arc<Sessions>,
        choice: AgentChoice,
        mode: Option<PolicyMode>,
        results: mpsc::Sender<ScreenEvent>,
    ) -> Self {
        let (outbox, commands) = mpsc::channel(OUTBOX);
        tokio::spawn(execute_in_order(Arc::clone(sessions), commands, results.clone()));
        Self { sessions: Arc::clone(sessions), id: None, watcher: None, choice, mode, outbox, results }
    }

    /// Shows the session from now on. An active run is shown from its start.
    pub(super) async fn join(&mut self, id: SessionId) -> Result<JoinedSession, SessionRefusal> {
        let view = self.sessions.view_without_history(&id).await?;
        let newest = self.sessions.read_newest(&id, TAIL_BYTES).await?;
        let active = view.active().and_then(|run| view.start_of(run)).map(|(_, _, message)| message);
        // The watcher reports the active run from its start.
        let is_before = |item: &&HistoryItem| match item {
            HistoryItem::Message(message) => Some(&message.id) != active.as_ref(),
            HistoryItem::ToolUse(_) | HistoryItem::UnfinishedRun { .. } => true,
        };
        let start = self.sessions.start_of_run_at(&id, view.head()).await?;
        let joined = JoinedSession {
            id: short_id(&id),
            title: view.title().map(str::to_owned),
            agent: view.choice().agent.as_ref().map(|agent| agent.as_str().to_owned()),
            model: view.choice().model.clone(),
            mode: view.mode(),
            usage: view.usage(),
            head: view.head(),
            tail: newest.history().iter().take_while(is_before).cloned().collect(),
            is_cut: newest.history_is_cut(),
            queue: view.queue().map(|queued| (queued.run.clone(), queued.input.text.clone())).collect(),
        };
        self.watcher = Some(self.sessions.join(&id, start).await);
        self.id = Some(id);
        Ok(joined)
    }

    /// The next message begins a new session.
    pub(super) fn leave(&mut self) {
        (self.id, self.watcher) = (None, None);
    }

    /// Waits for the next event of the session. Cancel safe. For ever if there is none.
    pub(super) async fn next(&mut self) -> ScreenEvent {
        let Some(watcher) = &mut self.watcher else { return std::future::pending().await };
        match watcher.next().await {
            Ok(update) => ScreenEvent::Update(update),
            Err(error) => {
                self.watcher = None;
                ScreenEvent::Error(format!("The session cannot be read any more: {error}"))
            }
        }
    }

    /// An event that came already.
    pub(super) async fn try_next(&mut self) -> Option<SessionUpdate> {
        // An error is reported by `next`.
        self.watcher.as_mut()?.try_next().await.ok().flatten()
    }

    /// Sends a message; the first one creates the session. Says which session was created.
    pub(super) async fn send(
        &mut self,
        text: String,
        when_busy: WhenBusy,
        is_shell: bool,
    ) -> anyhow::Result<Option<String>> {
        let (id, created) = match &self.id {
            Some(id) => (id.clone(), None),
            None => {
                let id = self.create().await?;
                (id.clone(), Some(short_id(&id)))
            }
        };
        // A shell command is for the built-in agent, whoever answers otherwise.
        let agent = if is_shell { Some(AgentId::parse(LOCAL)?) } else { None };
        let choice = AgentChoice { agent, ..AgentChoice::default() };
        let by = Some(Sender::at(DOOR));
        // A person sees the screen.
        let input =
            UserInput { text, choice, by, can_answer: true, is_attended: true, ..UserInput::default() };
        self.execute(id, SessionCommand::Send { input, when_busy });
        Ok(created)
    }

    async fn create(&mut self) -> anyhow::Result<SessionId> {
        let new_session = NewSession {
            title: None,
            door: DOOR.to_owned(),
            folder: std::env::current_dir()?,
            choice: self.choice.clone(),
            system: None,
            forked_from: None,
        };
        let id = self.sessions.create(None, new_session).await?;
        if let Some(mode) = self.mode {
            self.sessions.execute(&id, SessionCommand::ChooseMode(mode)).await?;
        }
        self.watcher = Some(self.sessions.join(&id, Seq::START).await);
        self.id = Some(id.clone());
        Ok(id)
    }

    /// Executes a command after those before it, and reports only its failure: what it changes comes as an event.
    pub(super) fn execute(&self, id: SessionId, command: SessionCommand) {
        if self.outbox.try_send((id, command)).is_err() {
            let text = "The session does not answer. The message was not sent.".to_owned();
            self.report(ScreenEvent::Error(text));
        }
    }

    /// Stops a run. Does not wait behind other commands.
    pub(super) fn stop(&self, run: RunId) {
        let Some(id) = self.id.clone() else { return };
        let sessions = Arc::clone(&self.sessions);
        tokio::spawn(async move {
            let command = SessionCommand::Stop { run: Some(run), reason: None };
            // The run may have just ended; then there is nothing to stop.
            let _ = timeout(STOP_WAIT, sessions.execute(&id, command)).await;
        });
    }

    /// Takes a waiting message out of the queue, and reports its text.
    pub(super) fn take_back(&self, run: RunId) {
        let Some(id) = self.id.clone() else { return };
        let (sessions, results) = (Arc::clone(&self.sessions), self.results.clone());
        tokio::spawn(async move {
            if let Ok(SessionReply::Unqueued(inputs)) =
                sessions.execute(&id, SessionCommand::Unqueue(run)).await
            {
                for queued in inputs {
                    // If the screen is gone, nobody wants the text.
                    let _ = results.send(ScreenEvent::TakenBack(queued.input.text)).await;
                }
            }
        });
    }

    fn report(&self, event: ScreenEvent) {
        // A full channel has newer reports of the same kind.
        let _ = self.results.try_send(event);
    }
}

/// The sessions to choose from, the most recently used first.
pub(super) async fn recent_sessions(sessions: &Sessions) -> Result<Vec<SessionChoice>, SessionRefusal> {
    let page = sessions.list(PageRequest::first(MAX_SESSIONS)).await?;
    let choice = |record: parlor_log::SessionRecord| SessionChoice {
        time: minute(record.updated),
        title: record.title.unwrap_or_else(|| short_id(&record.id)),
        messages: record.messages,
        id: record.id,
    };
    Ok(page.records.into_iter().map(choice).collect())
}

async fn execute_in_order(
    sessions: Arc<Sessions>,
    mut commands: mpsc::Receiver<(SessionId, SessionCommand)>,
    results: mpsc::Sender<ScreenEvent>,
) {
    while let Some((id, command)) = commands.recv().await {
        let text = match sessions.execute(&id, command).await {
            Ok(_) => continue,
            Err(SessionRefusal::NoActiveRun) => "No run is active, so there is nothing to steer.".to_owned(),
            Err(refusal) => format!("Not done: {refusal}"),
        };
        if results.send(ScreenEvent::Error(text)).await.is_err() {
            return;
        }
    }
}
