//! A sessions with the local agent and a log in memory, and somebody who talks to it.

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

/// How long a test waits for what must come.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) fn sessions_on(log: &Arc<MemoryLog>) -> Sessions {
    house_with(log, Arc::new(LocalAgent::default()))
}

pub(crate) fn house_with(log: &Arc<MemoryLog>, agent: Arc<dyn Agent>) -> Sessions {
    house_of(log, agent, Arc::new(SystemClock))
}

pub(crate) fn house_of(log: &Arc<MemoryLog>, agent: Arc<dyn Agent>, clock: Arc<dyn Clock>) -> Sessions {
    Sessions::new(deps(log, agent, clock))
}

pub(crate) fn deps(log: &Arc<MemoryLog>, agent: Arc<dyn Agent>, clock: Arc<dyn Clock>) -> SessionDeps {
    let local = AgentId::parse("local").unwrap();
    SessionDeps {
        log: Arc::clone(log) as _,
        agents: Agents::new(local, agent),
        tools: Toolbox::standard(ShellTool::default()),
        media: MediaStore::open(&std::env::temp_dir().join("parlor-none")).unwrap(),
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

pub(crate) fn says(text: &str, when_busy: WhenBusy) -> SessionCommand {
    SessionCommand::Send { input: UserInput { text: text.to_owned(), ..UserInput::default() }, when_busy }
}

pub(crate) struct Talk {
    pub(crate) sessions: Sessions,
    pub(crate) session: SessionId,
    pub(crate) watcher: Watcher,
}

impl Talk {
    pub(crate) async fn begin() -> Self {
        let sessions = sessions_on(&Arc::new(MemoryLog::new(Arc::new(SystemClock))));
        let session = sessions.create(None, new_session()).await.unwrap();
        let watcher = sessions.watch(&session, Seq::START).await;
        Self { sessions, session, watcher }
    }

    pub(crate) async fn say(&self, text: &str) -> RunId {
        let reply = self.sessions.ask(&self.session, says(text, WhenBusy::Refuse)).await.unwrap();
        let SessionReply::Started(run) = reply else { panic!("{reply:?}") };
        run
    }

    pub(crate) async fn next(&mut self) -> SessionUpdate {
        tokio::time::timeout(PATIENCE, self.watcher.next()).await.expect("something to see").unwrap()
    }

    /// Watches until `stop` says so. Returns everything seen.
    pub(crate) async fn until(&mut self, stop: impl Fn(&SessionUpdate) -> bool) -> Vec<SessionUpdate> {
        let mut all = Vec::new();
        loop {
            all.push(self.next().await);
            if stop(all.last().unwrap()) {
                return all;
            }
        }
    }

    /// Watches to the end of a run. Returns all that was seen, and how it ended.
    pub(crate) async fn end_of(&mut self, run: &RunId) -> (Vec<SessionUpdate>, RunEnding) {
        let seen = self.until(|seen| ending(seen, run).is_some()).await;
        let ending = ending(seen.last().unwrap(), run).unwrap();
        (seen, ending)
    }
}

pub(crate) fn run_event<'a>(seen: &'a SessionUpdate, of: &RunId) -> Option<(&'a Entry, u64, &'a RunEvent)> {
    let SessionUpdate::Entry(entry) = seen else { return None };
    let SessionEvent::Run { run, sequence, event } = &entry.event else { return None };
    (run == of).then_some((&**entry, *sequence, event))
}

pub(crate) fn ending(seen: &SessionUpdate, of: &RunId) -> Option<RunEnding> {
    let (_, _, event) = run_event(seen, of)?;
    if let RunEvent::Ended { ending, .. } = event { Some(ending.clone()) } else { None }
}

/// All message deltas, put together.
pub(crate) fn spoken(seen: &[SessionUpdate]) -> String {
    let pieces = seen.iter().filter_map(|seen| match seen {
        SessionUpdate::Delta { subject: StreamKind::Message(_), text, .. } => Some(text.as_str()),
        SessionUpdate::Delta { .. } | SessionUpdate::Entry(_) => None,
    });
    pieces.collect()
}
