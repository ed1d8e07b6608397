//! A tool whose blocking thread never returns: whatever cancels the call ends it, and the run does not wait for the
//! thread. The thread keeps a [`ToolContext`], as the threads of parlor's own tools do.

use std::sync::{Arc, Mutex, mpsc};

use async_trait::async_trait;
use parlor_engine::{SessionDeps, Sessions, StreamKind};
use parlor_log::{MemoryLog, SystemClock};
use parlor_model::{Agent, AgentContext, ToolCall, Turn, TurnError};
use parlor_tools::{Tool, ToolContext, Toolbox};
use parlor_vocab::{
    Failure, FailureCode, RunEnding, RunEvent, Seq, SessionCommand, SessionUpdate, ToolEvent, ToolOutput,
};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::common::{TIMEOUT, TestSession, deps, new_session, run_event};

/// A tool whose thread waits until the test drops its sender.
struct HangingTool {
    release: Mutex<Option<mpsc::Receiver<()>>>,
}

#[async_trait]
impl Tool for HangingTool {
    fn name(&self) -> &'static str {
        "hang"
    }

    fn description(&self) -> &'static str {
        "Hangs."
    }

    fn schema(&self) -> Value {
        json!({"type": "object"})
    }

    async fn call(&self, _: &str, context: &ToolContext) -> Result<ToolOutput, Failure> {
        let release = self.release.lock().unwrap().take().expect("one call");
        let held = context.clone();
        let thread = tokio::task::spawn_blocking(move || {
            held.progress.push("at work");
            let _ = release.recv();
            drop(held);
        });
        let message = "cancelled".to_owned();
        tokio::select! {
            () = context.cancel.cancelled() => {
                context.progress.push(", at the end");
                Err(Failure { code: FailureCode::Cancelled, message, retryable: true })
            }
            _ = thread => Ok(ToolOutput::text("released")),
        }
    }
}

/// An agent that calls the tool. If the input is `limited`, the time of the call is over at once.
struct CallingAgent;

#[async_trait]
impl Agent for CallingAgent {
    fn name(&self) -> &str {
        "Caller"
    }

    async fn answer(&self, turn: &Turn, context: &mut dyn AgentContext) -> Result<(), TurnError> {
        let call = ToolCall {
            streamed_id: String::new(),
            tool: "hang".to_owned(),
            input: "{}".to_owned(),
            refusal: None,
        };
        let until = (turn.input.text == "limited").then(Instant::now);
        let results = context.call_tools(vec![call], until).await?;
        let failure = results[0].as_ref().expect_err("it never returns by itself");
        context.write_text(failure.code.as_str()).await
    }
}

/// A session with the agent and the tool. The thread of the tool returns when the sender is dropped.
async fn start() -> (TestSession, mpsc::SyncSender<()>) {
    let (sender, release) = mpsc::sync_channel(0);
    let tools = Toolbox::new().with(HangingTool { release: Mutex::new(Some(release)) });
    let clock = Arc::new(SystemClock);
    let log = Arc::new(MemoryLog::new(Arc::clone(&clock) as _));
    let sessions = Sessions::new(SessionDeps { tools, ..deps(&log, Arc::new(CallingAgent), clock) });
    let session = sessions.create(None, new_session()).await.unwrap();
    let watcher = sessions.watch(&session, Seq::START).await;
    (TestSession { sessions, session, watcher }, sender)
}

fn is_tool_output(update: &SessionUpdate) -> bool {
    matches!(update, SessionUpdate::Delta { stream: StreamKind::ToolOutput(_), .. })
}

#[tokio::test]
async fn a_stop_does_not_wait_for_the_thread_of_a_tool() {
    let (mut test, release) = start().await;
    let run = test.send("call").await;
    test.until(is_tool_output).await;
    let stop = SessionCommand::Stop { run: None, reason: None };
    test.sessions.execute(&test.session, stop).await.unwrap();
    let (updates, ending) = test.end_of(&run).await;
    assert!(matches!(ending, RunEnding::Stopped { .. }), "{ending:?}");
    let rest: Vec<&SessionUpdate> = updates.iter().filter(|update| is_tool_output(update)).collect();
    assert!(
        matches!(rest[..], [SessionUpdate::Delta { text, .. }] if text == ", at the end"),
        "the last output of the tool is shown: {rest:?}"
    );
    drop(release);
}

#[tokio::test]
async fn a_time_limit_does_not_wait_for_the_thread_of_a_tool() {
    let (mut test, release) = start().await;
    let run = test.send("limited").await;
    let (updates, ending) = test.end_of(&run).await;
    assert!(matches!(ending, RunEnding::Completed { .. }), "{ending:?}");
    let failed = |update: &SessionUpdate| {
        run_event(update, &run).is_some_and(|(_, _, event)| {
            matches!(event, RunEvent::Tool(ToolEvent::Failed { failure, .. })
                if failure.code == FailureCode::Cancelled)
        })
    };
    assert!(updates.iter().any(failed), "{updates:?}");
    drop(release);
}

#[tokio::test]
async fn closing_the_registry_does_not_wait_for_the_thread_of_a_tool() {
    let (mut test, release) = start().await;
    test.send("call").await;
    test.until(is_tool_output).await;
    tokio::time::timeout(TIMEOUT, test.sessions.close()).await.expect("closing ends");
    drop(release);
}
