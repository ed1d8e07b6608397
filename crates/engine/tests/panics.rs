//! A panic in an agent, a tool or an actor is reported and does not affect other runs and sessions.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use parlor_engine::{Agents, MediaStore, OnDisconnect, SessionClient, SessionDeps, Sessions};
use parlor_log::{MemoryLog, SystemClock, TimeOrderedIds};
use parlor_model::{Agent, AgentContext, ToolCall, Turn, TurnError};
use parlor_tools::{Tool, ToolContext, Toolbox};
use parlor_vocab::{
    AgentChoice, AgentId, Backend, Failure, HistoryItem, IdSource, MessageEvent, NewSession, RegistryReply,
    RegistryRequest, RunEnding, RunEvent, RunId, Seq, SessionCommand, SessionEvent, SessionId,
    SessionRefusal, SessionReply, SessionUpdate, Ticket, ToolOutput, UniqueNumber, Update, UserInput,
    WhenBusy,
};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

/// How long a test waits for an expected event before it fails.
const TIMEOUT: Duration = Duration::from_secs(20);

/// The panic message. Only the server's own log may show it, never a client.
const PANIC_MESSAGE: &str = "index 7 of /home/secret/path.rs";

/// An agent that panics, delegates or waits, as the input says.
struct FragileAgent {
    /// Gets a permit for each run that was stopped while it waited.
    stopped: Arc<Semaphore>,
}

#[async_trait]
impl Agent for FragileAgent {
    fn name(&self) -> &str {
        "Fragile"
    }

    async fn answer(&self, turn: &Turn, context: &mut dyn AgentContext) -> Result<(), TurnError> {
        match turn.input.text.as_str() {
            "panic" => {
                context.write_text("so far ").await?;
                panic!("{PANIC_MESSAGE}");
            }
            "tools" => {
                let call = |tool: &str| ToolCall {
                    streamed_id: String::new(),
                    tool: tool.to_owned(),
                    input: "{}".to_owned(),
                    refusal: None,
                };
                let results =
                    context.call_tools(vec![call("break"), call("work"), call("break")], None).await?;
                let texts = results.into_iter().map(|one| match one {
                    Ok(given) => given.text,
                    Err(failure) => format!("{} {}", failure.code, failure.message),
                });
                context.write_text(&texts.collect::<Vec<_>>().join(" | ")).await
            }
            "delegate" => {
                let child = context.delegate("child", "panic", self).await?;
                context.write_text(&child.unwrap_or_else(|failure| failure.code.to_string())).await
            }
            "wait" => {
                context.write_text("waiting").await?;
                context.stopped().await;
                self.stopped.add_permits(1);
                Err(TurnError::Stopped)
            }
            other => context.write_text(other).await,
        }
    }

    async fn summarize(&self, _: &[HistoryItem], _: &AgentChoice) -> Result<String, Failure> {
        panic!("{PANIC_MESSAGE}")
    }
}

/// A tool that panics if `panics` is set.
struct PanickingTool {
    name: &'static str,
    panics: bool,
}

#[async_trait]
impl Tool for PanickingTool {
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
        assert!(!self.panics, "{PANIC_MESSAGE}");
        Ok(ToolOutput::text("worked"))
    }
}

/// An id source that panics once when `panic_next` is set.
struct PanickingIds {
    ids: TimeOrderedIds,
    panic_next: Arc<AtomicBool>,
}

impl IdSource for PanickingIds {
    fn next(&self) -> UniqueNumber {
        assert!(!self.panic_next.swap(false, Ordering::SeqCst), "{PANIC_MESSAGE}");
        self.ids.next()
    }
}

struct TestSessions {
    sessions: Arc<Sessions>,
    /// Whether the next request for an id panics.
    panic_next: Arc<AtomicBool>,
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

impl TestSessions {
    fn new() -> Self {
        let (clock, panic_next) = (Arc::new(SystemClock), Arc::new(AtomicBool::new(false)));
        let ids = TimeOrderedIds::new(Arc::clone(&clock) as _);
        let tool = |name, panics| PanickingTool { name, panics };
        let stopped = Arc::new(Semaphore::new(0));
        let agent = FragileAgent { stopped: Arc::clone(&stopped) };
        let sessions = Sessions::new(SessionDeps {
            log: Arc::new(MemoryLog::new(Arc::clone(&clock) as _)),
            agents: Agents::new(AgentId::parse("fragile").expect("short"), Arc::new(agent)),
            tools: Toolbox::new().with(tool("break", true)).with(tool("work", false)),
            media: MediaStore::open(Path::new("/no/such/folder")).expect("a store"),
            env: Arc::new([]),
            clock,
            ids: Arc::new(PanickingIds { ids, panic_next: Arc::clone(&panic_next) }),
        });
        Self { sessions: Arc::new(sessions), panic_next, stopped }
    }

    async fn create(&self) -> SessionId {
        self.sessions.create(None, new_session()).await.expect("memory has room")
    }

    async fn send(&self, session: &SessionId, text: &str) -> RunId {
        match self.sessions.execute(session, send_command(text)).await {
            Ok(SessionReply::Started(run)) => run,
            other => panic!("{text}: {other:?}"),
        }
    }

    /// Waits for the end of a run. Returns how it ended, and the session's last message.
    async fn end_of(&self, session: &SessionId, run: &RunId) -> (RunEnding, String) {
        let mut watcher = self.sessions.watch(session, Seq::START).await;
        let mut last_text = String::new();
        loop {
            let seen = tokio::time::timeout(TIMEOUT, watcher.next()).await.expect("the run ends");
            let SessionUpdate::Entry(entry) = seen.expect("memory can be read") else { continue };
            let SessionEvent::Run { run: of, event, .. } = &entry.event else { continue };
            if let RunEvent::Message(MessageEvent::Completed { text, .. }) = event {
                last_text.clone_from(text);
            }
            if let RunEvent::Ended { ending, .. } = event
                && of == run
            {
                return (ending.clone(), last_text);
            }
        }
    }

    /// Sends an input that the agent echoes, and checks the answer.
    async fn echo(&self, session: &SessionId, text: &str) {
        let run = self.send(session, text).await;
        let (ending, last_text) = self.end_of(session, &run).await;
        assert!(matches!(ending, RunEnding::Completed { .. }), "{ending:?}");
        assert_eq!(last_text, text);
    }
}

fn send_command(text: &str) -> SessionCommand {
    let input = UserInput { text: text.to_owned(), ..UserInput::default() };
    SessionCommand::Send { input, when_busy: WhenBusy::Refuse }
}

fn assert_internal(failure: &Failure) {
    assert_eq!(failure.code.as_str(), "INTERNAL_ERROR");
    assert!(!failure.message.contains(PANIC_MESSAGE), "{}", failure.message);
}

#[tokio::test]
async fn a_panic_of_an_agent_fails_its_run_and_the_session_stays_usable() {
    let test = TestSessions::new();
    let (session, other) = (test.create().await, test.create().await);
    let waiting = test.send(&other, "wait").await;
    let run = test.send(&session, "panic").await;
    let (ending, last_text) = test.end_of(&session, &run).await;
    let RunEnding::Failed(failure) = ending else { panic!("{ending:?}") };
    assert_internal(&failure);
    assert_eq!(last_text, "so far ", "the text before the panic is kept");
    test.echo(&session, "still here").await;
    assert_eq!(test.sessions.view(&other).await.expect("the session exists").active(), Some(&waiting));
}

#[tokio::test]
async fn a_panic_of_a_tool_fails_the_call_and_the_run_goes_on() {
    let test = TestSessions::new();
    let session = test.create().await;
    let run = test.send(&session, "tools").await;
    let (ending, last_text) = test.end_of(&session, &run).await;
    assert!(matches!(ending, RunEnding::Completed { .. }), "{ending:?}");
    let texts: Vec<&str> = last_text.split(" | ").collect();
    assert_eq!((texts.len(), texts[1]), (3, "worked"), "{last_text}");
    assert!(texts[0].starts_with("INTERNAL_ERROR") && texts[2].starts_with("INTERNAL_ERROR"), "{last_text}");
    assert!(!last_text.contains(PANIC_MESSAGE), "{last_text}");
}

#[tokio::test]
async fn a_panic_of_a_subagent_fails_its_run_alone() {
    let test = TestSessions::new();
    let session = test.create().await;
    let run = test.send(&session, "delegate").await;
    let (ending, last_text) = test.end_of(&session, &run).await;
    assert!(matches!(ending, RunEnding::Completed { .. }), "{ending:?}");
    assert_eq!(last_text, "INTERNAL_ERROR");
}

#[tokio::test]
async fn a_panic_during_compaction_leaves_the_session_as_it_was() {
    let test = TestSessions::new();
    let session = test.create().await;
    for text in ["one", "two", "three"] {
        test.echo(&session, text).await;
    }
    let compact = test.sessions.execute(&session, SessionCommand::Compact { keep: 1 });
    let refused = tokio::time::timeout(TIMEOUT, compact).await.expect("an answer").unwrap_err();
    assert!(
        matches!(&refused, SessionRefusal::NotCompacted { reason } if !reason.contains(PANIC_MESSAGE)),
        "{refused}"
    );
    test.echo(&session, "four").await;
}

#[tokio::test]
async fn a_panic_of_an_actor_closes_its_session_and_the_next_use_opens_it_again() {
    let test = TestSessions::new();
    let (session, other) = (test.create().await, test.create().await);
    let elsewhere = test.send(&other, "wait").await;
    let run = test.send(&session, "wait").await;
    // The actor generates the id of a queued input.
    test.panic_next.store(true, Ordering::SeqCst);
    let input = UserInput { text: "next".to_owned(), ..UserInput::default() };
    let enqueue = SessionCommand::Send { input, when_busy: WhenBusy::Enqueue };
    let lost =
        tokio::time::timeout(TIMEOUT, test.sessions.execute(&session, enqueue)).await.expect("an answer");
    assert!(lost.is_err(), "{lost:?}");
    assert!(!test.panic_next.load(Ordering::SeqCst), "the panic happened");
    let stopped = tokio::time::timeout(TIMEOUT, test.stopped.acquire()).await;
    stopped.expect("the run of the panicked session is stopped").expect("it is never closed").forget();
    test.echo(&session, "again").await;
    let (ending, _) = test.end_of(&session, &run).await;
    assert!(
        matches!(&ending, RunEnding::Failed(failure) if failure.code.as_str() == "RUN_INTERRUPTED"),
        "{ending:?}"
    );
    assert_eq!(test.sessions.view(&other).await.expect("the session exists").active(), Some(&elsewhere));
    let closed = tokio::time::timeout(TIMEOUT, test.sessions.close()).await;
    closed.expect("the panicked session does not block closing");
}

#[tokio::test]
async fn a_panic_during_a_request_is_answered_and_so_is_the_next_request() {
    let test = TestSessions::new();
    let mut client = SessionClient::new(Arc::clone(&test.sessions), OnDisconnect::Keep);
    test.panic_next.store(true, Ordering::SeqCst);
    for number in 0..2 {
        let create = RegistryRequest::Create { id: None, new_session: Box::new(new_session()) };
        assert!(client.submit(Ticket(number), create).is_none());
    }
    let mut answers = Vec::new();
    while answers.len() < 2 {
        let update = tokio::time::timeout(TIMEOUT, client.next()).await.expect("an answer");
        if let Some(Update::Answer(number, answer)) = update {
            answers.push((number, answer));
        }
    }
    let (number, refused) = &answers[0];
    let refused = refused.as_ref().expect_err("its task panicked");
    assert!(*number == Ticket(0) && *refused == SessionRefusal::Internal, "{refused}");
    assert!(matches!(&answers[1], (Ticket(1), Ok(RegistryReply::Created(_)))), "{:?}", answers[1]);
}
