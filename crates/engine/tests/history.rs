//! Tests with histories that are larger than an open session keeps in memory.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use parlor_engine::{Agents, CACHED_HISTORY_BYTES, MediaStore, SessionDeps, Sessions};
use parlor_log::{MemoryLog, SystemClock, TimeOrderedIds};
use parlor_model::{Agent, AgentContext, Turn, TurnError};
use parlor_tools::Toolbox;
use parlor_vocab::{
    AgentChoice, AgentId, HistoryItem, NewSession, RunEvent, SessionCommand, SessionEvent, SessionId,
    SessionReply, SessionUpdate, UserInput, WhenBusy,
};

/// An agent that records the history of each turn and answers with a long text. On the input `forget` it first
/// replaces the history with a summary.
#[derive(Default)]
struct RecordingAgent {
    histories: Mutex<Vec<Vec<String>>>,
}

#[async_trait]
impl Agent for RecordingAgent {
    fn name(&self) -> &str {
        "Recording agent"
    }

    async fn answer(&self, turn: &Turn, context: &mut dyn AgentContext) -> Result<(), TurnError> {
        self.histories.lock().expect("no test thread panicked").push(first_words(&turn.history));
        if turn.input.text == "forget"
            && let Some(message) = &turn.message
        {
            context.replace_history_before(message, "summary").await?;
        }
        context.write_text(&long(&turn.input.text)).await
    }
}

/// A text so long that two of them exceed the cache.
fn long(text: &str) -> String {
    format!("{text} {}", "x".repeat(CACHED_HISTORY_BYTES / 2))
}

/// The first word of each message, and `-` for other items.
fn first_words(items: &[HistoryItem]) -> Vec<String> {
    let word = |item: &HistoryItem| match item {
        HistoryItem::Message(message) => message.text.split(' ').next().unwrap_or_default().to_owned(),
        HistoryItem::ToolUse(_) | HistoryItem::UnfinishedRun { .. } => "-".to_owned(),
    };
    items.iter().map(word).collect()
}

struct TestSession {
    sessions: Sessions,
    session: SessionId,
    agent: Arc<RecordingAgent>,
    _folder: tempfile::TempDir,
}

impl TestSession {
    async fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let (agent, clock) = (Arc::new(RecordingAgent::default()), Arc::new(SystemClock));
        let sessions = Sessions::new(SessionDeps {
            log: Arc::new(MemoryLog::new(Arc::clone(&clock) as _)),
            agents: Agents::new(AgentId::parse("recording").expect("short"), Arc::clone(&agent) as _),
            tools: Toolbox::new(),
            media: MediaStore::open(folder.path()).expect("a store"),
            env: Arc::new([]),
            clock: Arc::clone(&clock) as _,
            ids: Arc::new(TimeOrderedIds::new(clock)),
        });
        let new_session = NewSession {
            title: None,
            door: "test".to_owned(),
            folder: folder.path().to_owned(),
            choice: AgentChoice::default(),
            system: None,
            forked_from: None,
        };
        let session = sessions.create(None, new_session).await.expect("memory has room");
        Self { sessions, session, agent, _folder: folder }
    }

    /// Sends an input, and returns the history that the agent got.
    async fn send(&self, text: &str) -> Vec<String> {
        let head = self.sessions.record(&self.session).await.expect("the session exists").head;
        let mut watcher = self.sessions.watch(&self.session, head).await;
        let input = UserInput { text: text.to_owned(), ..UserInput::default() };
        let send = SessionCommand::Send { input, when_busy: WhenBusy::Refuse };
        self.sessions.execute(&self.session, send).await.expect("nothing runs");
        loop {
            let SessionUpdate::Entry(entry) = watcher.next().await.expect("memory can be read") else {
                continue;
            };
            if matches!(entry.event, SessionEvent::Run { event: RunEvent::Ended { .. }, .. }) {
                let mut histories = self.agent.histories.lock().expect("no test thread panicked");
                return histories.pop().expect("the agent had a turn");
            }
        }
    }

    /// The history of the open session, which must equal the one in the log.
    async fn history(&self) -> Vec<String> {
        let now = self.sessions.view(&self.session).await.expect("the session exists");
        assert_eq!(now, self.sessions.read(&self.session).await.expect("the session exists"));
        first_words(now.history())
    }
}

#[tokio::test]
async fn an_agent_gets_the_whole_history_however_long_it_is() {
    let test = TestSession::start().await;
    let mut all = Vec::new();
    for text in ["a", "b", "c", "d"] {
        assert_eq!(test.send(text).await, all);
        all.extend([text.to_owned(), text.to_owned()]);
        assert_eq!(test.history().await, all);
    }
    test.sessions.release(&test.session).await.unwrap();
    assert_eq!(test.send("e").await, all, "also after the session was closed and opened again");
}

#[tokio::test]
async fn a_history_that_a_run_replaced_stays_replaced() {
    let test = TestSession::start().await;
    for text in ["a", "b", "c"] {
        test.send(text).await;
    }
    assert_eq!(test.send("forget").await.len(), 6);
    assert_eq!(test.history().await, ["summary", "forget", "forget"]);
    assert_eq!(test.send("d").await, ["summary", "forget", "forget"]);
    assert_eq!(test.send("forget").await.len(), 5);
    assert_eq!(test.send("e").await, ["summary", "forget", "forget"]);
    test.send("f").await;
    let cleared = test.sessions.execute(&test.session, SessionCommand::ClearHistory).await;
    assert_eq!(cleared, Ok(SessionReply::Done));
    assert!(test.send("g").await.is_empty());
}

#[tokio::test]
async fn a_summary_covers_the_whole_history() {
    let test = TestSession::start().await;
    for text in ["a", "b", "c"] {
        test.send(text).await;
    }
    let reply = test.sessions.execute(&test.session, SessionCommand::Compact { keep: 3 }).await.unwrap();
    let SessionReply::Compacted(summary) = reply else { panic!("{reply:?}") };
    assert!(summary.text.contains("User: a") && !summary.text.contains("User: c"), "{}", summary.text);
    let (history, first) = (test.history().await, summary.text.split(' ').next().unwrap());
    assert_eq!(history, [first, "b", "c", "c"]);
    assert_eq!(test.send("d").await, history);
}
