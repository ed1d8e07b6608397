//! Tests of the [`AgentContext`] that a run driver gives to its agent: parallel calls, progress, cost, compaction.

use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use parlor_engine::{Agents, MediaStore, SessionDeps, Sessions};
use parlor_log::{MemoryLog, SystemClock, TimeOrderedIds};
use parlor_model::{Agent, AgentContext, SpentSoFar, ToolCall, ToolCallOutput, Turn, TurnError};
use parlor_tools::{Tool, ToolContext, Toolbox};
use parlor_vocab::{
    AgentChoice, AgentId, Failure, HistoryItem, NewSession, RunEvent, Seq, SessionCommand, SessionEvent,
    SessionId, SessionUpdate, StepEvent, ToolEvent, ToolImage, ToolOutput, Usage, UserInput, WhenBusy,
};
use serde_json::{Value, json};

/// A tool that counts its concurrent calls. Each call waits until `wanted` calls have run at once, then returns its
/// input.
struct CountingTool {
    name: &'static str,
    parallel: bool,
    wanted: usize,
    running: AtomicUsize,
    max_running: Arc<AtomicUsize>,
    changed: tokio::sync::Notify,
}

#[async_trait]
impl Tool for CountingTool {
    fn name(&self) -> &'static str {
        self.name
    }

    fn description(&self) -> &'static str {
        "Counts."
    }

    fn schema(&self) -> Value {
        json!({"type": "object"})
    }

    fn is_parallel(&self) -> bool {
        self.parallel
    }

    async fn call(&self, input: &str, _: &ToolContext) -> Result<ToolOutput, Failure> {
        self.running.fetch_add(1, Ordering::SeqCst);
        self.max_running.fetch_max(self.running.load(Ordering::SeqCst), Ordering::SeqCst);
        self.changed.notify_waiters();
        loop {
            let changed = self.changed.notified();
            if self.max_running.load(Ordering::SeqCst) >= self.wanted {
                break;
            }
            changed.await;
        }
        tokio::task::yield_now().await;
        self.running.fetch_sub(1, Ordering::SeqCst);
        let image = ToolImage { mime: "image/png".to_owned(), bytes: b"png".to_vec() };
        Ok(ToolOutput { text: input.to_owned(), images: vec![image], ..ToolOutput::default() })
    }
}

/// An agent that makes the given calls, and keeps their results.
struct TestAgent {
    calls: Vec<ToolCall>,
    results: Arc<Mutex<Vec<Result<ToolCallOutput, Failure>>>>,
    spent: Arc<Mutex<Vec<SpentSoFar>>>,
}

#[async_trait]
impl Agent for TestAgent {
    fn name(&self) -> &str {
        "Test agent"
    }

    async fn answer(&self, turn: &Turn, context: &mut dyn AgentContext) -> Result<(), TurnError> {
        context.report_progress("Beginning").await?;
        assert_eq!(context.tools().await?.tools.len(), 2);
        let results = context.call_tools(self.calls.clone(), None).await?;
        *self.results.lock().expect("no test thread panicked") = results;
        context.record_usage(Usage { cost_micros: 7, ..Usage::default() }, Some("m")).await?;
        let spent = context.spent().await?;
        self.spent.lock().expect("no test thread panicked").push(spent);
        context.write_text("one").await?;
        context.finish_step().await?;
        context.write_text("two").await?;
        if let Some(message) = &turn.message {
            context.replace_history_before(message, "what was before").await?;
        }
        if turn.input.text == "hang" {
            tokio::select! {
                () = context.stopped() => return Err(TurnError::Stopped),
                () = pending() => {}
            }
        }
        Ok(())
    }
}

struct TestSession {
    sessions: Sessions,
    session: SessionId,
    results: Arc<Mutex<Vec<Result<ToolCallOutput, Failure>>>>,
    spent: Arc<Mutex<Vec<SpentSoFar>>>,
    /// The most concurrent calls of `look` and of `touch`.
    max_running: [Arc<AtomicUsize>; 2],
    _folder: tempfile::TempDir,
}

/// A session whose agent makes these calls. Calls of `look` may run in parallel, and wait until `together` of them
/// run; calls of `touch` may not.
async fn start(calls: Vec<ToolCall>, together: usize) -> TestSession {
    let folder = tempfile::tempdir().expect("a folder");
    let max_running: [Arc<AtomicUsize>; 2] = Default::default();
    let tool = |name, parallel, wanted, max_running: &Arc<AtomicUsize>| CountingTool {
        name,
        parallel,
        wanted,
        running: AtomicUsize::new(0),
        max_running: Arc::clone(max_running),
        changed: tokio::sync::Notify::new(),
    };
    let tools = Toolbox::new().with(tool("look", true, together, &max_running[0])).with(tool(
        "touch",
        false,
        1,
        &max_running[1],
    ));
    let (results, spent) = (Arc::default(), Arc::default());
    let agent = TestAgent { calls, results: Arc::clone(&results), spent: Arc::clone(&spent) };
    let clock = Arc::new(SystemClock);
    let sessions = Sessions::new(SessionDeps {
        log: Arc::new(MemoryLog::new(Arc::clone(&clock) as _)),
        agents: Agents::new(AgentId::parse("test").expect("short"), Arc::new(agent)),
        tools,
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
    TestSession { sessions, session, results, spent, max_running, _folder: folder }
}

impl TestSession {
    /// Sends an input, and returns the events up to the end of the run. For the input `hang`, up to the compaction.
    async fn send(&self, text: &str) -> Vec<SessionEvent> {
        let head = self.sessions.view(&self.session).await.expect("the session exists").head();
        let mut watcher = self.sessions.watch(&self.session, head).await;
        let input = UserInput { text: text.to_owned(), ..UserInput::default() };
        let send = SessionCommand::Send { input, when_busy: WhenBusy::Refuse };
        self.sessions.execute(&self.session, send).await.expect("nothing runs");
        let mut events = Vec::new();
        loop {
            let SessionUpdate::Entry(entry) = watcher.next().await.expect("memory can be read") else {
                continue;
            };
            events.push(entry.event.clone());
            let ended = matches!(entry.event, SessionEvent::Run { event: RunEvent::Ended { .. }, .. });
            let hangs = text == "hang" && matches!(entry.event, SessionEvent::Compacted { .. });
            if ended || hangs {
                return events;
            }
        }
    }

    fn max_running(&self) -> [usize; 2] {
        [0, 1].map(|tool: usize| self.max_running[tool].load(Ordering::SeqCst))
    }
}

fn call(tool: &str, input: &str) -> ToolCall {
    ToolCall { streamed_id: String::new(), tool: tool.to_owned(), input: input.to_owned(), refusal: None }
}

#[tokio::test]
async fn neighbouring_parallel_calls_run_at_once_up_to_a_limit() {
    let calls: Vec<ToolCall> = (0..20).map(|number| call("look", &number.to_string())).collect();
    let test = start(calls, 8).await;
    test.send("go").await;
    assert_eq!(test.max_running()[0], 8, "exactly the limit");
    let results = test.results.lock().unwrap();
    let texts: Vec<&str> = results.iter().map(|result| result.as_ref().unwrap().text.as_str()).collect();
    let wanted: Vec<String> = (0..20).map(|number: u32| number.to_string()).collect();
    assert_eq!(texts, wanted, "in the order of the calls");
    assert_eq!(results[0].as_ref().unwrap().pictures.len(), 1);
}

#[tokio::test]
async fn other_calls_run_alone_and_refused_calls_are_recorded() {
    let failure = Failure { code: "NO".into(), message: "not you".to_owned(), retryable: false };
    let refused = ToolCall { refusal: Some(failure.clone()), ..call("touch", "x") };
    let calls = vec![call("touch", "1"), call("touch", "2"), refused, call("gone", "3"), call("look", "4")];
    let test = start(calls, 1).await;
    let events = test.send("go").await;
    assert_eq!(test.max_running()[1], 1);
    let results = test.results.lock().unwrap().clone();
    assert_eq!(results[2], Err(failure));
    assert_eq!(results[3].as_ref().unwrap_err().code.as_str(), "UNKNOWN_TOOL");
    let called = events.iter().filter(|event| {
        matches!(event, SessionEvent::Run { event: RunEvent::Tool(ToolEvent::Called { .. }), .. })
    });
    assert_eq!(called.count(), 5, "the log has all calls");
    let noted = events.iter().any(|event| {
        matches!(event, SessionEvent::Run { event: RunEvent::Step(StepEvent::Updated { headline, .. }), .. } if headline == "Beginning")
    });
    assert!(noted);
}

#[tokio::test]
async fn the_context_reports_the_cost_and_compaction_survives_a_replay() {
    let test = start(Vec::new(), 1).await;
    test.send("first").await;
    test.send("second").await;
    let spent = test.spent.lock().unwrap().clone();
    assert_eq!(spent[0], SpentSoFar { session_micros: 7, today_micros: 7 });
    assert_eq!(spent[1], SpentSoFar { session_micros: 14, today_micros: 14 });
    let message_texts = |items: &[HistoryItem]| -> Vec<String> {
        let text = |item: &HistoryItem| match item {
            HistoryItem::Message(message) => message.text.clone(),
            HistoryItem::ToolUse(_) | HistoryItem::UnfinishedRun { .. } => String::new(),
        };
        items.iter().map(text).collect()
    };
    let now = test.sessions.view(&test.session).await.unwrap();
    assert_eq!(message_texts(now.history()), ["what was before", "second", "one", "two"]);
    let replayed = test.sessions.read(&test.session).await.unwrap();
    assert_eq!(
        message_texts(replayed.history()),
        message_texts(now.history()),
        "replaying the log gives the same"
    );
    assert_eq!(replayed.head(), now.head());
    assert_ne!(now.head(), Seq::START);
}

#[tokio::test]
async fn an_agent_that_waits_for_a_stop_is_woken() {
    let test = start(Vec::new(), 1).await;
    test.send("first").await;
    test.send("hang").await;
    let stop = SessionCommand::Stop { run: None, reason: None };
    test.sessions.execute(&test.session, stop).await.unwrap();
    test.sessions.close().await;
    let ended = test.sessions.read(&test.session).await.unwrap();
    assert!(
        matches!(ended.history().last(), Some(HistoryItem::UnfinishedRun { .. })),
        "{:?}",
        ended.history().last()
    );
}
