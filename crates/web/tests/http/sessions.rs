//! The sessions of a test server: a script answers them, their log is in memory, and their clock stands still.
#![expect(clippy::unwrap_used, reason = "a helper of a test that cannot go on panics, as the test would")]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use parlor_engine::{Agents, MediaStore, SessionDeps, Sessions};
use parlor_log::{EventLog, Lease, MemoryLog, TimeOrderedIds};
use parlor_model::ScriptAgent;
use parlor_tools::{ShellTool, Toolbox};
use parlor_vocab::{
    AgentChoice, AgentId, Clock, EventId, IdSource, Message, MessageId, NewEntry, NewSession, Role, RunEvent,
    Seq, SessionCommand, SessionEvent, SessionId, SessionUpdate, Timestamp, UserInput, WhenBusy,
};

/// When the session `a/b` was used: 2026-01-02T03:04:05.006Z.
pub(crate) const START: Timestamp = Timestamp(1_767_323_045_006);

/// What the agent of the test servers does: it never answers `hi`, uses 3 tokens for `cost`, and answers all else.
const SCRIPT: &str = r#"
[[on]]
match = "^hi$"
steps = [ { wait_ms = 600000 } ]

[[on]]
match = "^cost$"
steps = [ { usage = { input = 1, output = 2, cost_micros = 3 } } ]

[otherwise]
steps = [ { say = "Hello." } ]
"#;

/// A clock that moves only when a test moves it.
pub(crate) struct ManualClock(AtomicI64);

impl ManualClock {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self(AtomicI64::new(START.0)))
    }

    pub(crate) fn advance(&self, milliseconds: i64) {
        self.0.fetch_add(milliseconds, Ordering::Relaxed);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::Relaxed))
    }
}

/// Sessions over `log`, with their files in `folder`.
pub(crate) fn sessions(log: Arc<dyn EventLog>, folder: &Path, clock: &Arc<ManualClock>) -> Sessions {
    let agent = ScriptAgent::parse(SCRIPT, Path::new("test.toml"), "Local").unwrap();
    Sessions::new(SessionDeps {
        log,
        agents: Agents::new(AgentId::parse("local").unwrap(), Arc::new(agent)),
        tools: Toolbox::standard(ShellTool::default()),
        media: MediaStore::open(folder).unwrap(),
        env: Vec::new().into(),
        clock: Arc::clone(clock) as _,
        ids: Arc::new(TimeOrderedIds::new(Arc::clone(clock) as _)),
    })
}

/// The three sessions that every server starts with, the last used first: `c` is idle, `b` is open in another process,
/// and `a/b` has an active run and one queued input. Returns what keeps `b` open.
pub(crate) async fn seed(sessions: &Sessions, log: &MemoryLog, clock: &ManualClock) -> Lease {
    for text in ["hi", "later"] {
        send(sessions, "a/b", UserInput { text: text.to_owned(), ..UserInput::default() }).await;
    }
    clock.advance(1000);
    let other_process = log.as_other_process();
    append(&other_process, clock, "b", []).await;
    let lease = other_process.acquire(&id("b")).await.unwrap();
    clock.advance(1000);
    append(log, clock, "c", []).await;
    lease
}

/// Sends an input to a session, which is created if it does not exist.
pub(crate) async fn send(sessions: &Sessions, session: &str, input: UserInput) {
    let id = id(session);
    if sessions.record(&id).await.is_err() {
        sessions.create(Some(id.clone()), new_session()).await.unwrap();
    }
    sessions.execute(&id, SessionCommand::Send { input, when_busy: WhenBusy::Enqueue }).await.unwrap();
}

/// Sends an input to a session and waits until its run has ended.
pub(crate) async fn run(sessions: &Sessions, session: &str, input: UserInput) {
    send(sessions, session, input).await;
    let mut watcher = sessions.watch(&id(session), Seq::START).await;
    loop {
        if let SessionUpdate::Entry(entry) = watcher.next().await.unwrap()
            && let SessionEvent::Run { event: RunEvent::Ended { .. }, .. } = &entry.event
        {
            return;
        }
    }
}

/// Creates a session with these events in the log. No process has it open afterwards.
pub(crate) async fn append(
    log: &dyn EventLog,
    clock: &ManualClock,
    session: &str,
    events: impl IntoIterator<Item = SessionEvent>,
) {
    let ids = ids();
    let created = std::iter::once(SessionEvent::Created(new_session()));
    let entries: Vec<NewEntry> = created
        .chain(events)
        .map(|event| NewEntry { id: EventId::generate(ids.next()), at: clock.now(), event })
        .collect();
    let lease = log.acquire(&id(session)).await.unwrap();
    log.append(&lease, Seq::START, &entries).await.unwrap();
    log.release(lease).await.unwrap();
}

/// A message of a user that no run answers.
pub(crate) fn user_message(text: String) -> SessionEvent {
    let id = MessageId::generate(ids().next());
    SessionEvent::MessageAdded(Message { id, role: Role::User, text, media: Vec::new() })
}

fn id(session: &str) -> SessionId {
    SessionId::parse(session).unwrap()
}

fn ids() -> TimeOrderedIds {
    TimeOrderedIds::new(ManualClock::new())
}

fn new_session() -> NewSession {
    NewSession {
        title: None,
        door: "supr".to_owned(),
        folder: "/".into(),
        choice: AgentChoice::default(),
        system: None,
        forked_from: None,
    }
}
