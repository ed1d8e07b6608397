//! Conversations that are longer than what an open session keeps at hand.

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

/// Remembers what it could look back on. Says a long text, and forgets what came before if it is told to.
#[derive(Default)]
struct Witness {
    looked_back: Mutex<Vec<Vec<String>>>,
}

#[async_trait]
impl Agent for Witness {
    fn name(&self) -> &str {
        "Witness"
    }

    async fn answer(&self, turn: &Turn, stage: &mut dyn AgentContext) -> Result<(), TurnError> {
        self.looked_back.lock().expect("nobody panicked").push(told(&turn.history));
        if turn.input.text == "forget"
            && let Some(message) = &turn.message
        {
            stage.replace_history_before(message, "summary").await?;
        }
        stage.write_text(&long(&turn.input.text)).await
    }
}

/// A text of which two are too much.
fn long(text: &str) -> String {
    format!("{text} {}", "x".repeat(CACHED_HISTORY_BYTES / 2))
}

/// The first word of each message.
fn told(items: &[HistoryItem]) -> Vec<String> {
    let word = |item: &HistoryItem| match item {
        HistoryItem::Message(message) => message.text.split(' ').next().unwrap_or_default().to_owned(),
        HistoryItem::ToolUse(_) | HistoryItem::UnfinishedRun(_) => "-".to_owned(),
    };
    items.iter().map(word).collect()
}

struct Play {
    sessions: Sessions,
    session: SessionId,
    witness: Arc<Witness>,
    _folder: tempfile::TempDir,
}

impl Play {
    async fn begin() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let (witness, clock) = (Arc::new(Witness::default()), Arc::new(SystemClock));
        let sessions = Sessions::new(SessionDeps {
            log: Arc::new(MemoryLog::new(Arc::clone(&clock) as _)),
            agents: Agents::new(AgentId::parse("witness").expect("short"), Arc::clone(&witness) as _),
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
        Self { sessions, session, witness, _folder: folder }
    }

    /// Says something, and gives what the agent could look back on.
    async fn say(&self, text: &str) -> Vec<String> {
        let head = self.sessions.record(&self.session).await.expect("it is there").head;
        let mut watcher = self.sessions.watch(&self.session, head).await;
        let input = UserInput { text: text.to_owned(), ..UserInput::default() };
        let send = SessionCommand::Send { input, when_busy: WhenBusy::Refuse };
        self.sessions.execute(&self.session, send).await.expect("nothing runs");
        loop {
            let SessionUpdate::Entry(entry) = watcher.next().await.expect("memory can be read") else {
                continue;
            };
            if matches!(entry.event, SessionEvent::Run { event: RunEvent::Ended { .. }, .. }) {
                let mut looked_back = self.witness.looked_back.lock().expect("nobody panicked");
                return looked_back.pop().expect("it was asked");
            }
        }
    }

    /// What is told of the session, which is what its log tells.
    async fn look(&self) -> Vec<String> {
        let now = self.sessions.view(&self.session).await.expect("it is there");
        assert_eq!(now, self.sessions.read(&self.session).await.expect("it is there"));
        told(now.history())
    }
}

#[tokio::test]
async fn an_agent_looks_back_on_all_of_it_however_long_it_is() {
    let play = Play::begin().await;
    let mut all = Vec::new();
    for text in ["a", "b", "c", "d"] {
        assert_eq!(play.say(text).await, all);
        all.extend([text.to_owned(), text.to_owned()]);
        assert_eq!(play.look().await, all);
    }
    play.sessions.release(&play.session).await.unwrap();
    assert_eq!(play.say("e").await, all, "also when it was opened again");
}

#[tokio::test]
async fn what_is_forgotten_on_the_way_stays_forgotten() {
    let play = Play::begin().await;
    for text in ["a", "b", "c"] {
        play.say(text).await;
    }
    assert_eq!(play.say("forget").await.len(), 6);
    assert_eq!(play.look().await, ["summary", "forget", "forget"]);
    assert_eq!(play.say("d").await, ["summary", "forget", "forget"]);
    assert_eq!(play.say("forget").await.len(), 5);
    assert_eq!(play.say("e").await, ["summary", "forget", "forget"]);
    play.say("f").await;
    let cleared = play.sessions.execute(&play.session, SessionCommand::ClearHistory).await;
    assert_eq!(cleared, Ok(SessionReply::Done));
    assert!(play.say("g").await.is_empty());
}

#[tokio::test]
async fn a_summary_is_of_all_of_it() {
    let play = Play::begin().await;
    for text in ["a", "b", "c"] {
        play.say(text).await;
    }
    let reply = play.sessions.execute(&play.session, SessionCommand::Compact { keep: 3 }).await.unwrap();
    let SessionReply::Compacted(summary) = reply else { panic!("{reply:?}") };
    assert!(summary.text.contains("User: a") && !summary.text.contains("User: c"), "{}", summary.text);
    let (look, first) = (play.look().await, summary.text.split(' ').next().unwrap());
    assert_eq!(look, [first, "b", "c", "c"]);
    assert_eq!(play.say("d").await, look);
}
