//! A panic in one part ends that part, says so, and takes nothing else along.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use parlor_engine::{Agents, MediaStore, OnDisconnect, SessionClient, SessionDeps, Sessions};
use parlor_log::{MemoryLog, SystemClock, TimeOrderedIds};
use parlor_model::{Agent, AgentContext, ToolCall, Turn, TurnError};
use parlor_tools::{Tool, ToolContext, Toolbox};
use parlor_vocab::ToolOutput;
use parlor_vocab::{
    AgentChoice, AgentId, Backend, Failure, HistoryItem, IdSource, MessageEvent, NewSession, RegistryReply,
    RegistryRequest, RunEnding, RunEvent, RunId, Seq, SessionCommand, SessionEvent, SessionId,
    SessionRefusal, SessionReply, SessionUpdate, Ticket, UniqueNumber, Update, UserInput, WhenBusy,
};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

/// How long a test waits for what must come.
const PATIENCE: Duration = Duration::from_secs(20);

/// What the panics here say: nobody but the server's own log may see it.
const INTERNALS: &str = "index 7 of /home/secret/path.rs";

/// Does what the input says.
struct Fragile {
    /// Gets a permit for each run that waited and was stopped.
    stopped: Arc<Semaphore>,
}

#[async_trait]
impl Agent for Fragile {
    fn name(&self) -> &str {
        "Fragile"
    }

    async fn answer(&self, turn: &Turn, stage: &mut dyn AgentContext) -> Result<(), TurnError> {
        match turn.input.text.as_str() {
            "panic" => {
                stage.write_text("so far ").await?;
                panic!("{INTERNALS}");
            }
            "tools" => {
                let call = |tool: &str| ToolCall {
                    name: String::new(),
                    tool: tool.to_owned(),
                    input: "{}".to_owned(),
                    refusal: None,
                };
                let brought = stage.call_tools(vec![call("break"), call("work"), call("break")], None).await?;
                let told = brought.into_iter().map(|one| match one {
                    Ok(given) => given.text,
                    Err(failure) => format!("{} {}", failure.code, failure.message),
                });
                stage.write_text(&told.collect::<Vec<_>>().join(" | ")).await
            }
            "delegate" => {
                let child = stage.delegate("child", "panic", self).await?;
                stage.write_text(&child.unwrap_or_else(|failure| failure.code.to_string())).await
            }
            "wait" => {
                stage.write_text("waiting").await?;
                stage.stopped().await;
                self.stopped.add_permits(1);
                Err(TurnError::Stopped)
            }
            other => stage.write_text(other).await,
        }
    }

    async fn summarize(&self, _: &[HistoryItem], _: &AgentChoice) -> Result<String, Failure> {
        panic!("{INTERNALS}")
    }
}

/// A tool that panics, if it is to.
struct Breaking {
    name: &'static str,
    breaks: bool,
}

#[async_trait]
impl Tool for Breaking {
    fn name(&self) -> &'static str {
        self.name
    }

    fn description(&self) -> &'static str {
        "Breaks."
    }

    fn schema(&self) -> Value {
        json!({"type": "object"})
    }

    fn is_parallel(&self) -> bool {
        true
    }

    async fn call(&self, _: &str, _: &ToolContext) -> Result<ToolOutput, Failure> {
        assert!(!self.breaks, "{INTERNALS}");
        Ok(ToolOutput::text("worked"))
    }
}

/// Panics instead of giving a number, when it is told to, once.
struct BreakingIds {
    ids: TimeOrderedIds,
    breaks: Arc<AtomicBool>,
}

impl IdSource for BreakingIds {
    fn next(&self) -> UniqueNumber {
        assert!(!self.breaks.swap(false, Ordering::SeqCst), "{INTERNALS}");
        self.ids.next()
    }
}

struct Stand {
    sessions: Arc<Sessions>,
    /// Whether the next id is a panic.
    breaks: Arc<AtomicBool>,
    stopped: Arc<Semaphore>,
}

fn new_session() -> NewSession {
    NewSession {
        title: None,
        door: "test".to_owned(),
        folder: "/tmp".into(),
        choice: AgentChoice::default(),
        system: None,
        forked_from: None,
    }
}

impl Stand {
    fn new() -> Self {
        let (clock, breaks) = (Arc::new(SystemClock), Arc::new(AtomicBool::new(false)));
        let ids = TimeOrderedIds::new(Arc::clone(&clock) as _);
        let tool = |name, breaks| Breaking { name, breaks };
        let stopped = Arc::new(Semaphore::new(0));
        let agent = Fragile { stopped: Arc::clone(&stopped) };
        let sessions = Sessions::new(SessionDeps {
            log: Arc::new(MemoryLog::new(Arc::clone(&clock) as _)),
            agents: Agents::new(AgentId::parse("fragile").expect("short"), Arc::new(agent)),
            tools: Toolbox::new().with(tool("break", true)).with(tool("work", false)),
            media: MediaStore::open(&std::env::temp_dir().join("parlor-none")).expect("a store"),
            env: Arc::new([]),
            clock,
            ids: Arc::new(BreakingIds { ids, breaks: Arc::clone(&breaks) }),
        });
        Self { sessions: Arc::new(sessions), breaks, stopped }
    }

    async fn session(&self) -> SessionId {
        self.sessions.create(None, new_session()).await.expect("memory has room")
    }

    async fn say(&self, session: &SessionId, text: &str) -> RunId {
        match self.sessions.execute(session, says(text)).await {
            Ok(SessionReply::Started(run)) => run,
            other => panic!("{text}: {other:?}"),
        }
    }

    /// Waits for the end of a run: how it ended, and what its session said last.
    async fn end_of(&self, session: &SessionId, run: &RunId) -> (RunEnding, String) {
        let mut watcher = self.sessions.watch(session, Seq::START).await;
        let mut said = String::new();
        loop {
            let seen = tokio::time::timeout(PATIENCE, watcher.next()).await.expect("the run ends");
            let SessionUpdate::Entry(entry) = seen.expect("memory can be read") else { continue };
            let SessionEvent::Run { run: of, event, .. } = &entry.event else { continue };
            if let RunEvent::Message(MessageEvent::Completed { text, .. }) = event {
                said.clone_from(text);
            }
            if let RunEvent::Ended { ending, .. } = event
                && of == run
            {
                return (ending.clone(), said);
            }
        }
    }

    /// Has the session say something, and what it said.
    async fn echo(&self, session: &SessionId, text: &str) {
        let run = self.say(session, text).await;
        let (ending, said) = self.end_of(session, &run).await;
        assert!(matches!(ending, RunEnding::Completed { .. }), "{ending:?}");
        assert_eq!(said, text);
    }
}

fn says(text: &str) -> SessionCommand {
    let input = UserInput { text: text.to_owned(), ..UserInput::default() };
    SessionCommand::Send { input, when_busy: WhenBusy::Refuse }
}

fn assert_internal(failure: &Failure) {
    assert_eq!(failure.code.as_str(), "INTERNAL_ERROR");
    assert!(!failure.message.contains(INTERNALS), "{}", failure.message);
}

#[tokio::test]
async fn a_panic_of_an_agent_fails_its_run_and_the_session_goes_on() {
    let stand = Stand::new();
    let (session, other) = (stand.session().await, stand.session().await);
    let waiting = stand.say(&other, "wait").await;
    let run = stand.say(&session, "panic").await;
    let (ending, said) = stand.end_of(&session, &run).await;
    let RunEnding::Failed(failure) = ending else { panic!("{ending:?}") };
    assert_internal(&failure);
    assert_eq!(said, "so far ", "what was said before stays said");
    stand.echo(&session, "still here").await;
    assert_eq!(stand.sessions.view(&other).await.expect("it is there").active(), Some(&waiting));
}

#[tokio::test]
async fn a_panic_of_a_tool_fails_the_call_and_the_run_goes_on() {
    let stand = Stand::new();
    let session = stand.session().await;
    let run = stand.say(&session, "tools").await;
    let (ending, said) = stand.end_of(&session, &run).await;
    assert!(matches!(ending, RunEnding::Completed { .. }), "{ending:?}");
    let told: Vec<&str> = said.split(" | ").collect();
    assert_eq!((told.len(), told[1]), (3, "worked"), "{said}");
    assert!(told[0].starts_with("INTERNAL_ERROR") && told[2].starts_with("INTERNAL_ERROR"), "{said}");
    assert!(!said.contains(INTERNALS), "{said}");
}

#[tokio::test]
async fn a_panic_of_a_subagent_fails_its_run_alone() {
    let stand = Stand::new();
    let session = stand.session().await;
    let run = stand.say(&session, "delegate").await;
    let (ending, said) = stand.end_of(&session, &run).await;
    assert!(matches!(ending, RunEnding::Completed { .. }), "{ending:?}");
    assert_eq!(said, "INTERNAL_ERROR");
}

#[tokio::test]
async fn a_panic_while_summing_up_leaves_the_session_as_it_was() {
    let stand = Stand::new();
    let session = stand.session().await;
    for text in ["one", "two", "three"] {
        stand.echo(&session, text).await;
    }
    let compact = stand.sessions.execute(&session, SessionCommand::Compact { keep: 1 });
    let refused = tokio::time::timeout(PATIENCE, compact).await.expect("an answer").unwrap_err();
    assert!(
        matches!(&refused, SessionRefusal::NotCompacted { reason } if !reason.contains(INTERNALS)),
        "{refused}"
    );
    stand.echo(&session, "four").await;
}

#[tokio::test]
async fn a_panic_of_a_sessions_task_closes_it_and_the_next_use_opens_it_again() {
    let stand = Stand::new();
    let (session, other) = (stand.session().await, stand.session().await);
    let elsewhere = stand.say(&other, "wait").await;
    let run = stand.say(&session, "wait").await;
    // The queue's number is drawn by the session's own task.
    stand.breaks.store(true, Ordering::SeqCst);
    let input = UserInput { text: "next".to_owned(), ..UserInput::default() };
    let enqueue = SessionCommand::Send { input, when_busy: WhenBusy::Enqueue };
    let lost =
        tokio::time::timeout(PATIENCE, stand.sessions.execute(&session, enqueue)).await.expect("an answer");
    assert!(lost.is_err(), "{lost:?}");
    assert!(!stand.breaks.load(Ordering::SeqCst), "the panic happened");
    let stopped = tokio::time::timeout(PATIENCE, stand.stopped.acquire()).await;
    stopped.expect("nobody performs for a session that is gone").expect("it is never closed").forget();
    stand.echo(&session, "again").await;
    let (ending, _) = stand.end_of(&session, &run).await;
    assert!(
        matches!(&ending, RunEnding::Failed(failure) if failure.code.as_str() == "RUN_INTERRUPTED"),
        "{ending:?}"
    );
    assert_eq!(stand.sessions.view(&other).await.expect("it is there").active(), Some(&elsewhere));
    let closed = tokio::time::timeout(PATIENCE, stand.sessions.close()).await;
    closed.expect("nothing of the session that panicked is in the way");
}

#[tokio::test]
async fn a_panic_over_one_question_is_its_answer_and_the_next_is_answered_too() {
    let stand = Stand::new();
    let mut client = SessionClient::new(Arc::clone(&stand.sessions), OnDisconnect::Keep);
    stand.breaks.store(true, Ordering::SeqCst);
    for question in 0..2 {
        let create = RegistryRequest::Create { id: None, new_session: Box::new(new_session()) };
        assert!(client.submit(Ticket(question), create).is_none());
    }
    let mut answers = Vec::new();
    while answers.len() < 2 {
        let word = tokio::time::timeout(PATIENCE, client.next()).await.expect("an answer");
        if let Some(Update::Answer(question, answer)) = word {
            answers.push((question, answer));
        }
    }
    let (question, refused) = &answers[0];
    let refused = refused.as_ref().expect_err("its task panicked");
    assert!(*question == Ticket(0) && *refused == SessionRefusal::Internal, "{refused}");
    assert!(matches!(&answers[1], (Ticket(1), Ok(RegistryReply::Created(_)))), "{:?}", answers[1]);
}
