//! What an agent with a model needs of the stage: several calls at once, notes, what was spent, and forgetting.

use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use parlor_engine::{Agents, MediaStore, SessionDeps, Sessions};
use parlor_log::{MemoryLog, SystemClock, TimeOrderedIds};
use parlor_model::{Agent, AgentContext, ToolCall, ToolCallOutput, SpentSoFar, Turn, TurnError};
use parlor_tools::{Tool, ToolContext, Toolbox};
use parlor_vocab::{ToolImage, ToolOutput};
use parlor_vocab::{
    AgentChoice, AgentId, Failure, HistoryItem, NewSession, RunEvent, Seq, SessionCommand, SessionEvent,
    SessionId, SessionUpdate, StepEvent, ToolEvent, Usage, UserInput, WhenBusy,
};
use serde_json::{Value, json};

/// Counts how many are at work at once. Each waits until as many as `wanted` were, then brings its input.
struct Counting {
    name: &'static str,
    parallel: bool,
    wanted: usize,
    now: AtomicUsize,
    most: Arc<AtomicUsize>,
    changed: tokio::sync::Notify,
}

#[async_trait]
impl Tool for Counting {
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
        self.now.fetch_add(1, Ordering::SeqCst);
        self.most.fetch_max(self.now.load(Ordering::SeqCst), Ordering::SeqCst);
        self.changed.notify_waiters();
        loop {
            let changed = self.changed.notified();
            if self.most.load(Ordering::SeqCst) >= self.wanted {
                break;
            }
            changed.await;
        }
        tokio::task::yield_now().await;
        self.now.fetch_sub(1, Ordering::SeqCst);
        let image = ToolImage { mime: "image/png".to_owned(), bytes: b"png".to_vec() };
        Ok(ToolOutput { text: input.to_owned(), images: vec![image] })
    }
}

/// Does what a test says, and keeps what came of it.
struct Puppet {
    calls: Vec<ToolCall>,
    brought: Arc<Mutex<Vec<Result<ToolCallOutput, Failure>>>>,
    spent: Arc<Mutex<Vec<SpentSoFar>>>,
}

#[async_trait]
impl Agent for Puppet {
    fn name(&self) -> &str {
        "Puppet"
    }

    async fn answer(&self, turn: &Turn, stage: &mut dyn AgentContext) -> Result<(), TurnError> {
        stage.report_progress("Beginning").await?;
        assert_eq!(stage.tools().len(), 2);
        let brought = stage.call_tools(self.calls.clone(), None).await?;
        *self.brought.lock().expect("nobody panicked") = brought;
        stage.record_usage(Usage { cost_micros: 7, ..Usage::default() }, Some("m")).await?;
        let spent = stage.spent().await?;
        self.spent.lock().expect("nobody panicked").push(spent);
        stage.write_text("one").await?;
        stage.next_step().await?;
        stage.write_text("two").await?;
        if let Some(message) = &turn.message {
            stage.replace_history_before(message, "what was before").await?;
        }
        if turn.input.text == "hang" {
            tokio::select! {
                () = stage.stopped() => return Err(TurnError::Stopped),
                () = pending() => {}
            }
        }
        Ok(())
    }
}

struct Play {
    sessions: Sessions,
    session: SessionId,
    brought: Arc<Mutex<Vec<Result<ToolCallOutput, Failure>>>>,
    spent: Arc<Mutex<Vec<SpentSoFar>>>,
    most: [Arc<AtomicUsize>; 2],
    _folder: tempfile::TempDir,
}

/// A session whose agent makes these calls. `look` is safe side by side, and waits until `together` are at work;
/// `touch` is not.
async fn play(calls: Vec<ToolCall>, together: usize) -> Play {
    let folder = tempfile::tempdir().expect("a folder");
    let most: [Arc<AtomicUsize>; 2] = Default::default();
    let tool = |name, parallel, wanted, most: &Arc<AtomicUsize>| Counting {
        name,
        parallel,
        wanted,
        now: AtomicUsize::new(0),
        most: Arc::clone(most),
        changed: tokio::sync::Notify::new(),
    };
    let tools =
        Toolbox::new().with(tool("look", true, together, &most[0])).with(tool("touch", false, 1, &most[1]));
    let (brought, spent) = (Arc::default(), Arc::default());
    let puppet = Puppet { calls, brought: Arc::clone(&brought), spent: Arc::clone(&spent) };
    let clock = Arc::new(SystemClock);
    let sessions = Sessions::new(SessionDeps {
        log: Arc::new(MemoryLog::new(Arc::clone(&clock) as _)),
        agents: Agents::new(AgentId::parse("puppet").expect("short"), Arc::new(puppet)),
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
    Play { sessions, session, brought, spent, most, _folder: folder }
}

impl Play {
    /// Says something, and gives back what happened until the run ended or said its last words.
    async fn say(&self, text: &str) -> Vec<SessionEvent> {
        let head = self.sessions.view(&self.session).await.expect("it is there").head();
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

    fn most(&self) -> [usize; 2] {
        [0, 1].map(|tool: usize| self.most[tool].load(Ordering::SeqCst))
    }
}

fn call(tool: &str, input: &str) -> ToolCall {
    ToolCall { name: String::new(), tool: tool.to_owned(), input: input.to_owned(), refusal: None }
}

#[tokio::test]
async fn neighbours_that_change_nothing_run_side_by_side_up_to_a_limit() {
    let calls: Vec<ToolCall> = (0..20).map(|number| call("look", &number.to_string())).collect();
    let play = play(calls, 8).await;
    play.say("go").await;
    assert_eq!(play.most()[0], 8, "as many as may work at once, and no more");
    let brought = play.brought.lock().unwrap();
    let texts: Vec<&str> = brought.iter().map(|given| given.as_ref().unwrap().text.as_str()).collect();
    let wanted: Vec<String> = (0..20).map(|number: u32| number.to_string()).collect();
    assert_eq!(texts, wanted, "in the order of the calls");
    assert_eq!(brought[0].as_ref().unwrap().pictures.len(), 1);
}

#[tokio::test]
async fn what_changes_something_runs_alone_and_a_refusal_is_recorded() {
    let failure = Failure { code: "NO".into(), message: "not you".to_owned(), retryable: false };
    let refused = ToolCall { refusal: Some(failure.clone()), ..call("touch", "x") };
    let calls = vec![call("touch", "1"), call("touch", "2"), refused, call("gone", "3"), call("look", "4")];
    let play = play(calls, 1).await;
    let events = play.say("go").await;
    assert_eq!(play.most()[1], 1);
    let brought = play.brought.lock().unwrap().clone();
    assert_eq!(brought[2], Err(failure));
    assert_eq!(brought[3].as_ref().unwrap_err().code.as_str(), "UNKNOWN_TOOL");
    let called = events.iter().filter(|event| {
        matches!(event, SessionEvent::Run { event: RunEvent::Tool(ToolEvent::Called { .. }), .. })
    });
    assert_eq!(called.count(), 5, "all are in the log");
    let noted = events.iter().any(|event| {
        matches!(event, SessionEvent::Run { event: RunEvent::Step(StepEvent::Updated { headline, .. }), .. } if headline == "Beginning")
    });
    assert!(noted);
}

#[tokio::test]
async fn what_was_spent_is_known_and_what_is_forgotten_stays_forgotten() {
    let play = play(Vec::new(), 1).await;
    play.say("first").await;
    play.say("second").await;
    let spent = play.spent.lock().unwrap().clone();
    assert_eq!(spent[0], SpentSoFar { session_micros: 7, today_micros: 7 });
    assert_eq!(spent[1], SpentSoFar { session_micros: 14, today_micros: 14 });
    let told = |items: &[HistoryItem]| -> Vec<String> {
        let text = |item: &HistoryItem| match item {
            HistoryItem::Message(message) => message.text.clone(),
            HistoryItem::ToolUse(_) | HistoryItem::UnfinishedRun(_) => String::new(),
        };
        items.iter().map(text).collect()
    };
    let now = play.sessions.view(&play.session).await.unwrap();
    assert_eq!(told(now.history()), ["what was before", "second", "one", "two"]);
    let replayed = play.sessions.read(&play.session).await.unwrap();
    assert_eq!(told(replayed.history()), told(now.history()), "the log tells the same");
    assert_eq!(replayed.head(), now.head());
    assert_ne!(now.head(), Seq::START);
}

#[tokio::test]
async fn whoever_waits_for_a_stop_hears_of_it() {
    let play = play(Vec::new(), 1).await;
    play.say("first").await;
    play.say("hang").await;
    let stop = SessionCommand::Stop { run: None, reason: None };
    play.sessions.execute(&play.session, stop).await.unwrap();
    play.sessions.close().await;
    let ended = play.sessions.read(&play.session).await.unwrap();
    assert!(
        matches!(ended.history().last(), Some(HistoryItem::UnfinishedRun(_))),
        "{:?}",
        ended.history().last()
    );
}
