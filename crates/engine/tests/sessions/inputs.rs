//! Tests of call inputs that are shown while the agent writes them, and of answers that break off.

use std::borrow::Cow;
use std::sync::Arc;

use async_trait::async_trait;
use parlor_engine::{LIVE_INPUT_BYTES, Redact, SessionUpdate, StreamKind};
use parlor_log::{MemoryLog, SystemClock};
use parlor_model::{Agent, AgentContext, ToolCall, Turn, TurnError};
use parlor_vocab::{Failure, MessageEvent, RunEvent, RunId, SessionEvent, StepEvent, ToolCallId, ToolEvent};
use tokio::sync::Semaphore;

use crate::common::{TestSession, new_session, run_event, sessions_with_agent};

const SECRET: &str = "sk-12345";

/// One action of the agent.
#[derive(Clone)]
enum Action {
    /// Writes a piece of a call's input: the call's name, the tool, the text.
    Write(&'static str, &'static str, String),
    Say(&'static str),
    BreakOff,
    Fail,
    /// Waits until the test has seen enough.
    Wait,
    Call(Vec<(&'static str, String)>),
}

/// An agent that performs the given actions.
struct ScriptedAgent {
    actions: Vec<Action>,
    go_on: Arc<Semaphore>,
}

#[async_trait]
impl Agent for ScriptedAgent {
    fn name(&self) -> &str {
        "Scripted agent"
    }

    async fn answer(&self, _: &Turn, context: &mut dyn AgentContext) -> Result<(), TurnError> {
        for action in &self.actions {
            match action {
                Action::Write(streamed_id, tool, text) => {
                    context.write_call_input(streamed_id, tool, text).await?
                }
                Action::Say(text) => context.write_text(text).await?,
                Action::BreakOff => {
                    let dropped_bytes = context.end_interrupted_step().await?;
                    context.report_progress(&format!("{dropped_bytes} bytes are not said")).await?;
                }
                Action::Fail => {
                    let (code, message) = ("BROKEN".into(), "it broke".to_owned());
                    return Err(TurnError::Failed(Failure { code, message, retryable: false }));
                }
                Action::Wait => self.go_on.acquire().await.unwrap().forget(),
                Action::Call(calls) => {
                    let call = |(streamed_id, input): &(&str, String)| ToolCall {
                        streamed_id: (*streamed_id).to_owned(),
                        tool: "nothing".to_owned(),
                        input: input.clone(),
                        refusal: None,
                    };
                    context.call_tools(calls.iter().map(call).collect(), None).await?;
                }
            }
        }
        Ok(())
    }
}

/// A redactor that knows one secret.
struct OneSecret;

impl Redact for OneSecret {
    fn redact<'t>(&self, text: &'t str) -> Cow<'t, str> {
        if text.contains(SECRET) { text.replace(SECRET, "[secret]").into() } else { text.into() }
    }

    fn redact_prefix<'t>(&self, text: &'t str) -> (Cow<'t, str>, usize) {
        let mut lengths = (1..SECRET.len()).rev();
        let held = lengths.find(|length| text.ends_with(SECRET.split_at(*length).0)).unwrap_or(0);
        (self.redact(text.split_at(text.len() - held).0), held)
    }

    fn contains_secret(&self, bytes: &[u8]) -> bool {
        bytes.windows(SECRET.len()).any(|part| part == SECRET.as_bytes())
    }
}

/// Starts a session whose agent performs `actions` in its first run.
async fn start(actions: Vec<Action>) -> (TestSession, RunId, Arc<Semaphore>) {
    let go_on = Arc::new(Semaphore::new(0));
    let agent = ScriptedAgent { actions, go_on: Arc::clone(&go_on) };
    let sessions = sessions_with_agent(&Arc::new(MemoryLog::new(Arc::new(SystemClock))), Arc::new(agent));
    let sessions = sessions.with_redaction(Arc::new(OneSecret));
    let session = sessions.create(None, new_session()).await.unwrap();
    let watcher = sessions.watch(&session, parlor_vocab::Seq::START).await;
    let test = TestSession { sessions, session, watcher };
    let run = test.send("go").await;
    (test, run, go_on)
}

/// The updates about call inputs and calls, in order: `+` is a piece of an input, `=` the call.
fn seen_calls(seen: &[SessionUpdate]) -> Vec<(char, ToolCallId, String)> {
    let one = |seen: &SessionUpdate| match seen {
        SessionUpdate::Delta { stream: StreamKind::ToolInput { call, tool }, text, .. } => {
            assert_eq!(tool, "nothing");
            Some(('+', call.clone(), text.clone()))
        }
        SessionUpdate::Delta { .. } => None,
        SessionUpdate::Entry(entry) => {
            let SessionEvent::Run { event: RunEvent::Tool(ToolEvent::Called { call, input, .. }), .. } =
                &entry.event
            else {
                return None;
            };
            Some(('=', call.clone(), input.clone()))
        }
    };
    seen.iter().filter_map(one).collect()
}

/// Checks that the pieces of each input come before its call and add up to its input. Returns the inputs of all
/// calls, with `unwritten` before those that had no pieces.
fn written_and_called(seen: &[SessionUpdate]) -> Vec<String> {
    let calls = seen_calls(seen);
    let mut inputs = Vec::new();
    for (index, (sign, call, input)) in calls.iter().enumerate() {
        let same_call = |(_, other, _): &&(char, ToolCallId, String)| other == call;
        if *sign == '=' {
            let pieces: String =
                calls[..index].iter().filter(same_call).map(|(_, _, text)| text.as_str()).collect();
            assert!(pieces.is_empty() || pieces == *input, "{pieces} is not {input}");
            assert_eq!(calls[index + 1..].iter().filter(same_call).count(), 0, "after the call: {calls:?}");
            inputs.push(if pieces.is_empty() { format!("unwritten {input}") } else { pieces });
        }
    }
    inputs
}

fn write(name: &'static str, text: &str) -> Action {
    Action::Write(name, "nothing", text.to_owned())
}

fn call(calls: &[(&'static str, &str)]) -> Action {
    Action::Call(calls.iter().map(|(name, input)| (*name, (*input).to_owned())).collect())
}

#[tokio::test]
async fn an_input_is_shown_while_it_is_written_with_the_id_of_its_call() {
    let actions = vec![
        write("a", "{\"n\""),
        write("b", "{"),
        Action::Wait,
        write("a", ":1}"),
        call(&[("a", "{\"n\":1}"), ("b", "{}"), ("c", "[]"), ("", "{}")]),
    ];
    let (mut test, run, go_on) = start(actions).await;
    let is_piece = |seen: &SessionUpdate| {
        matches!(seen, SessionUpdate::Delta { stream: StreamKind::ToolInput { .. }, .. })
    };
    let mut seen = test.until(is_piece).await;
    seen.extend(test.until(is_piece).await);
    assert_eq!(seen_calls(&seen).len(), 2, "before any call is made");
    go_on.add_permits(1);
    seen.extend(test.end_of(&run).await.0);
    assert_eq!(written_and_called(&seen), ["{\"n\":1}", "{}", "unwritten []", "unwritten {}"]);
    // The pieces are not recorded: a later watcher gets only the calls.
    test.watcher = test.sessions.watch(&test.session, parlor_vocab::Seq::START).await;
    let (late, _) = test.end_of(&run).await;
    assert_eq!(seen_calls(&late).len(), 4);
}

#[tokio::test]
async fn an_input_that_breaks_off_is_never_called_and_the_next_has_another_id() {
    let actions = vec![
        write("a", "{\"n\""),
        Action::Wait,
        Action::BreakOff,
        write("a", "{}"),
        Action::Wait,
        call(&[("a", "{}")]),
    ];
    let (mut test, run, go_on) = start(actions).await;
    let is_piece = |seen: &SessionUpdate| {
        matches!(seen, SessionUpdate::Delta { stream: StreamKind::ToolInput { .. }, .. })
    };
    let is_step = |seen: &SessionUpdate| match seen {
        SessionUpdate::Entry(entry) => {
            matches!(entry.event, SessionEvent::Run { event: RunEvent::Step(StepEvent::Started { .. }), .. })
        }
        SessionUpdate::Delta { .. } => false,
    };
    let mut seen = test.until(is_piece).await;
    go_on.add_permits(1);
    let between = test.until(is_piece).await;
    assert!(between.iter().any(is_step), "a step begins before the next input does");
    seen.extend(between);
    go_on.add_permits(1);
    seen.extend(test.end_of(&run).await.0);
    assert_eq!(written_and_called(&seen), ["{}"]);
    let calls = seen_calls(&seen);
    assert_ne!(calls[0].1, calls[1].1);
    assert_eq!(calls[1].1, calls[2].1);
}

#[tokio::test]
async fn a_call_whose_input_differs_from_the_shown_text_has_another_id() {
    let (mut test, run, go_on) = start(vec![write("a", "{\"n\""), Action::Wait, call(&[("a", "{}")])]).await;
    let mut seen = test.until(|seen| matches!(seen, SessionUpdate::Delta { .. })).await;
    go_on.add_permits(1);
    seen.extend(test.end_of(&run).await.0);
    assert_eq!(written_and_called(&seen), ["unwritten {}"]);
    assert_eq!(seen_calls(&seen).len(), 2);
}

#[tokio::test]
async fn a_long_input_is_shown_up_to_a_limit_and_whole_with_its_call() {
    let piece = "x".repeat(LIVE_INPUT_BYTES);
    let actions =
        vec![write("a", &piece), write("a", &piece), Action::Wait, call(&[("a", &piece.repeat(2))])];
    let (mut test, run, go_on) = start(actions).await;
    let mut seen = Vec::new();
    let shown =
        |seen: &[SessionUpdate]| seen_calls(seen).iter().map(|(_, _, text)| text.len()).sum::<usize>();
    while shown(&seen) < LIVE_INPUT_BYTES {
        seen.extend(test.until(|seen| matches!(seen, SessionUpdate::Delta { .. })).await);
    }
    assert_eq!(shown(&seen), LIVE_INPUT_BYTES);
    go_on.add_permits(1);
    seen.extend(test.end_of(&run).await.0);
    assert_eq!(written_and_called(&seen), [piece.repeat(2)]);
}

#[tokio::test]
async fn a_secret_in_an_input_is_never_shown() {
    let actions = vec![
        write("a", "{\"k\":\"sk-1"),
        Action::Wait,
        write("a", "2345\"}"),
        Action::Wait,
        call(&[("a", "{\"k\":\"sk-12345\"}")]),
    ];
    let (mut test, run, go_on) = start(actions).await;
    let is_piece = |seen: &SessionUpdate| matches!(seen, SessionUpdate::Delta { .. });
    let mut seen = test.until(is_piece).await;
    assert_eq!(seen_calls(&seen)[0].2, "{\"k\":\"");
    go_on.add_permits(1);
    seen.extend(test.until(is_piece).await);
    go_on.add_permits(1);
    seen.extend(test.end_of(&run).await.0);
    assert_eq!(written_and_called(&seen), ["{\"k\":\"[secret]\"}"]);
}

#[tokio::test]
async fn a_message_that_breaks_off_within_a_secret_does_not_show_its_first_part() {
    let actions =
        vec![Action::Say("the key is sk-123"), Action::BreakOff, Action::Say("sk-12345 sk-"), call(&[])];
    // A message that ends regularly is complete, so its last characters are not the start of a secret.
    assert_eq!(run_texts(actions).await, ["the key is ", "6 bytes are not said", "[secret] sk-"]);
    assert_eq!(run_texts(vec![Action::Say("the key is sk-123"), Action::Fail]).await, ["the key is "]);
    assert_eq!(run_texts(vec![Action::Say("the key is sk-123")]).await, ["the key is sk-123"]);
}

/// The messages and progress headlines of a run with these actions.
async fn run_texts(actions: Vec<Action>) -> Vec<String> {
    let (mut test, run, _) = start(actions).await;
    let (seen, _) = test.end_of(&run).await;
    let one = |seen: &SessionUpdate| {
        let (_, _, event) = run_event(seen, &run)?;
        if let RunEvent::Message(MessageEvent::Completed { text, .. })
        | RunEvent::Step(StepEvent::Updated { headline: text, .. }) = event
        {
            return Some(text.clone());
        }
        None
    };
    seen.iter().filter_map(one).collect()
}
