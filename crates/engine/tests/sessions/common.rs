//! Helpers: a registry with the local agent and a log in memory, and one session in it that is watched.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parlor_engine::media::MediaStore;
use parlor_engine::{Agents, SessionDeps, SessionUpdate, Sessions, StreamKind, Watcher};
use parlor_log::{MemoryLog, SystemClock, TimeOrderedIds};
use parlor_model::{Agent, LocalAgent};
use parlor_tools::{ShellTool, Toolbox};
use parlor_vocab::{
    AgentChoice, AgentId, Clock, Entry, NewSession, RunEnding, RunEvent, RunId, Seq, SessionCommand,
    SessionEvent, SessionId, SessionReply, UserInput, WhenBusy,
};

/// How long a test waits for an expected event before it fails.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(20);

pub(crate) fn sessions_on(log: &Arc<MemoryLog>) -> Sessions {
    sessions_with_agent(log, Arc::new(LocalAgent::default()))
}

pub(crate) fn sessions_with_agent(log: &Arc<MemoryLog>, agent: Arc<dyn Agent>) -> Sessions {
    sessions_with_clock(log, agent, Arc::new(SystemClock))
}

pub(crate) fn sessions_with_clock(
    log: &Arc<MemoryLog>,
    agent: Arc<dyn Agent>,
    clock: Arc<dyn Clock>,
) -> Sessions {
    Sessions::new(deps(log, agent, clock))
}

pub(crate) fn deps(log: &Arc<MemoryLog>, agent: Arc<dyn Agent>, clock: Arc<dyn Clock>) -> SessionDeps {
    let local = AgentId::parse("local").unwrap();
    SessionDeps {
        log: Arc::clone(log) as _,
        agents: Agents::new(local, agent),
        tools: Toolbox::standard(ShellTool::default()),
        media: MediaStore::open(Path::new("/no/such/folder")).unwrap(),
        env: vec![("PATH".to_owned(), "/usr/bin:/bin".to_owned())].into(),
        clock: Arc::clone(&clock) as _,
        ids: Arc::new(TimeOrderedIds::new(clock)),
    }
}

pub(crate) fn new_session() -> NewSession {
    NewSession {
        title: None,
        door: "test".to_owned(),
        folder: "/tmp".into(),
        choice: AgentChoice::default(),
        system: None,
        forked_from: None,
    }
}

pub(crate) fn send_command(text: &str, when_busy: WhenBusy) -> SessionCommand {
    SessionCommand::Send { input: UserInput { text: text.to_owned(), ..UserInput::default() }, when_busy }
}

/// A session with a watcher.
pub(crate) struct TestSession {
    pub(crate) sessions: Sessions,
    pub(crate) session: SessionId,
    pub(crate) watcher: Watcher,
}

impl TestSession {
    pub(crate) async fn start() -> Self {
        let sessions = sessions_on(&Arc::new(MemoryLog::new(Arc::new(SystemClock))));
        let session = sessions.create(None, new_session()).await.unwrap();
        let watcher = sessions.watch(&session, Seq::START).await;
        Self { sessions, session, watcher }
    }

    pub(crate) async fn send(&self, text: &str) -> RunId {
        let reply = self.sessions.execute(&self.session, send_command(text, WhenBusy::Refuse)).await.unwrap();
        let SessionReply::Started(run) = reply else { panic!("{reply:?}") };
        run
    }

    pub(crate) async fn next(&mut self) -> SessionUpdate {
        tokio::time::timeout(TIMEOUT, self.watcher.next()).await.expect("an update").unwrap()
    }

    /// Watches until `is_last` returns true for an update. Returns all updates.
    pub(crate) async fn until(&mut self, is_last: impl Fn(&SessionUpdate) -> bool) -> Vec<SessionUpdate> {
        let mut all = Vec::new();
        loop {
            all.push(self.next().await);
            if is_last(all.last().unwrap()) {
                return all;
            }
        }
    }

    /// Watches until a run ends. Returns all updates, and how the run ended.
    pub(crate) async fn end_of(&mut self, run: &RunId) -> (Vec<SessionUpdate>, RunEnding) {
        let updates = self.until(|update| ending(update, run).is_some()).await;
        let ending = ending(updates.last().unwrap(), run).unwrap();
        (updates, ending)
    }
}

pub(crate) fn run_event<'a>(update: &'a SessionUpdate, of: &RunId) -> Option<(&'a Entry, u64, &'a RunEvent)> {
    let SessionUpdate::Entry(entry) = update else { return None };
    let SessionEvent::Run { run, sequence, event } = &entry.event else { return None };
    (run == of).then_some((&**entry, *sequence, event))
}

pub(crate) fn ending(update: &SessionUpdate, of: &RunId) -> Option<RunEnding> {
    let (_, _, event) = run_event(update, of)?;
    if let RunEvent::Ended { ending, .. } = event { Some(ending.clone()) } else { None }
}

/// The concatenated text of all message deltas.
pub(crate) fn message_text(updates: &[SessionUpdate]) -> String {
    let pieces = updates.iter().filter_map(|update| match update {
        SessionUpdate::Delta { stream: StreamKind::Message(_), text, .. } => Some(text.as_str()),
        SessionUpdate::Delta { .. } | SessionUpdate::Entry(_) => None,
    });
    pieces.collect()
}
