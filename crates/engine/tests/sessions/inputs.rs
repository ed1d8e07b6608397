//! The inputs of calls while they are written, and what breaks off.

use std::borrow::Cow;
use std::sync::Arc;

use async_trait::async_trait;
use parlor_engine::{LIVE_INPUT_BYTES, Redact, SessionUpdate, StreamKind};
use parlor_log::{MemoryLog, SystemClock};
use parlor_model::{Agent, AgentContext, ToolCall, Turn, TurnError};
use parlor_vocab::{Failure, MessageEvent, RunEvent, RunId, SessionEvent, StepEvent, ToolCallId, ToolEvent};
use tokio::sync::Semaphore;

use crate::common::{Talk, house_with, new_session, run_event};

const SECRET: &str = "sk-12345";

/// What the agent does.
#[derive(Clone)]
enum Act {
    Write(&'static str, &'static str, String),
    Say(&'static str),
    BreakOff,
    Fail,
    /// Waits until the test has seen enough.
    Wait,
    Call(Vec<(&'static str, String)>),
}

struct Player {
    acts: Vec<Act>,
    go_on: Arc<Semaphore>,
}

#[async_trait]
impl Agent for Player {
    fn name(&self) -> &str {
        "Player"
    }

    async fn answer(&self, _: &Turn, stage: &mut dyn AgentContext) -> Result<(), TurnError> {
        for act in &self.acts {
            match act {
                Act::Write(name, tool, text) => stage.write_call_input(name, tool, text).await?,
                Act::Say(text) => stage.write_text(text).await?,
                Act::BreakOff => {
                    let unsaid = stage.end_interrupted_step().await?;
                    stage.report_progress(&format!("{unsaid} bytes are not said")).await?;
                }
                Act::Fail => {
                    let (code, message) = ("BROKEN".into(), "it broke".to_owned());
                    return Err(TurnError::Failed(Failure { code, message, retryable: false }));
                }
                Act::Wait => self.go_on.acquire().await.unwrap().forget(),
                Act::Call(calls) => {
                    let call = |(name, input): &(&str, String)| ToolCall {
                        name: (*name).to_owned(),
                        tool: "nothing".to_owned(),
                        input: input.clone(),
                        refusal: None,
                    };
                    stage.call_tools(calls.iter().map(call).collect(), None).await?;
                }
            }
        }
        Ok(())
    }
}

/// Knows one secret.
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

async fn play(acts: Vec<Act>) -> (Talk, RunId, Arc<Semaphore>) {
    let go_on = Arc::new(Semaphore::new(0));
    let player = Player { acts, go_on: Arc::clone(&go_on) };
    let sessions = house_with(&Arc::new(MemoryLog::new(Arc::new(SystemClock))), Arc::new(player));
    let sessions = sessions.with_redaction(Arc::new(OneSecret));
    let session = sessions.create(None, new_session()).await.unwrap();
    let watcher = sessions.watch(&session, parlor_vocab::Seq::START).await;
    let talk = Talk { sessions, session, watcher };
    let run = talk.say("go").await;
    (talk, run, go_on)
}

/// What was seen of inputs and calls, in order: `+` is a piece, `=` the call.
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

/// Checks the order of what was seen, and that pieces are the input that they are pieces of. Gives back those calls.
fn written_and_called(seen: &[SessionUpdate]) -> Vec<String> {
    let calls = seen_calls(seen);
    let mut inputs = Vec::new();
    for (place, (sign, call, input)) in calls.iter().enumerate() {
        let mine = |(_, other, _): &&(char, ToolCallId, String)| other == call;
        if *sign == '=' {
            let pieces: String =
                calls[..place].iter().filter(mine).map(|(_, _, text)| text.as_str()).collect();
            assert!(pieces.is_empty() || pieces == *input, "{pieces} is not {input}");
            assert_eq!(calls[place + 1..].iter().filter(mine).count(), 0, "after the call: {calls:?}");
            inputs.push(if pieces.is_empty() { format!("unwritten {input}") } else { pieces });
        }
    }
    inputs
}

fn write(name: &'static str, text: &str) -> Act {
    Act::Write(name, "nothing", text.to_owned())
}

fn call(calls: &[(&'static str, &str)]) -> Act {
    Act::Call(calls.iter().map(|(name, input)| (*name, (*input).to_owned())).collect())
}

#[tokio::test]
async fn an_input_is_seen_while_it_is_written_and_under_the_name_of_its_call() {
    let acts = vec![
        write("a", "{\"n\""),
        write("b", "{"),
        Act::Wait,
        write("a", ":1}"),
        call(&[("a", "{\"n\":1}"), ("b", "{}"), ("c", "[]"), ("", "{}")]),
    ];
    let (mut talk, run, go_on) = play(acts).await;
    let is_piece =
        |seen: &SessionUpdate| matches!(seen, SessionUpdate::Delta { stream: StreamKind::ToolInput { .. }, .. });
    let mut seen = talk.until(is_piece).await;
    seen.extend(talk.until(is_piece).await);
    assert_eq!(seen_calls(&seen).len(), 2, "before any call is made");
    go_on.add_permits(1);
    seen.extend(talk.end_of(&run).await.0);
    assert_eq!(written_and_called(&seen), ["{\"n\":1}", "{}", "unwritten []", "unwritten {}"]);
    // Nothing of it was recorded: who comes later sees the calls alone.
    talk.watcher = talk.sessions.watch(&talk.session, parlor_vocab::Seq::START).await;
    let (late, _) = talk.end_of(&run).await;
    assert_eq!(seen_calls(&late).len(), 4);
}

#[tokio::test]
async fn what_breaks_off_is_never_called_and_what_follows_has_another_id() {
    let acts = vec![
        write("a", "{\"n\""),
        Act::Wait,
        Act::BreakOff,
        write("a", "{}"),
        Act::Wait,
        call(&[("a", "{}")]),
    ];
    let (mut talk, run, go_on) = play(acts).await;
    let is_piece =
        |seen: &SessionUpdate| matches!(seen, SessionUpdate::Delta { stream: StreamKind::ToolInput { .. }, .. });
    let is_step = |seen: &SessionUpdate| match seen {
        SessionUpdate::Entry(entry) => {
            matches!(entry.event, SessionEvent::Run { event: RunEvent::Step(StepEvent::Started { .. }), .. })
        }
        SessionUpdate::Delta { .. } => false,
    };
    let mut seen = talk.until(is_piece).await;
    go_on.add_permits(1);
    let between = talk.until(is_piece).await;
    assert!(between.iter().any(is_step), "a step begins before the next input does");
    seen.extend(between);
    go_on.add_permits(1);
    seen.extend(talk.end_of(&run).await.0);
    assert_eq!(written_and_called(&seen), ["{}"]);
    let calls = seen_calls(&seen);
    assert_ne!(calls[0].1, calls[1].1);
    assert_eq!(calls[1].1, calls[2].1);
}

#[tokio::test]
async fn a_call_that_is_not_what_was_written_has_another_id() {
    let (mut talk, run, go_on) = play(vec![write("a", "{\"n\""), Act::Wait, call(&[("a", "{}")])]).await;
    let mut seen = talk.until(|seen| matches!(seen, SessionUpdate::Delta { .. })).await;
    go_on.add_permits(1);
    seen.extend(talk.end_of(&run).await.0);
    assert_eq!(written_and_called(&seen), ["unwritten {}"]);
    assert_eq!(seen_calls(&seen).len(), 2);
}

#[tokio::test]
async fn a_long_input_is_shown_up_to_a_limit_and_whole_with_its_call() {
    let piece = "x".repeat(LIVE_INPUT_BYTES);
    let acts = vec![write("a", &piece), write("a", &piece), Act::Wait, call(&[("a", &piece.repeat(2))])];
    let (mut talk, run, go_on) = play(acts).await;
    let mut seen = talk.until(|seen| matches!(seen, SessionUpdate::Delta { .. })).await;
    let shown: usize = seen_calls(&seen).iter().map(|(_, _, text)| text.len()).sum();
    assert_eq!(shown, LIVE_INPUT_BYTES);
    go_on.add_permits(1);
    seen.extend(talk.end_of(&run).await.0);
    assert_eq!(written_and_called(&seen), [piece.repeat(2)]);
}

#[tokio::test]
async fn a_secret_in_an_input_is_shown_nowhere() {
    let acts = vec![
        write("a", "{\"k\":\"sk-1"),
        Act::Wait,
        write("a", "2345\"}"),
        Act::Wait,
        call(&[("a", "{\"k\":\"sk-12345\"}")]),
    ];
    let (mut talk, run, go_on) = play(acts).await;
    let is_piece = |seen: &SessionUpdate| matches!(seen, SessionUpdate::Delta { .. });
    let mut seen = talk.until(is_piece).await;
    assert_eq!(seen_calls(&seen)[0].2, "{\"k\":\"");
    go_on.add_permits(1);
    seen.extend(talk.until(is_piece).await);
    go_on.add_permits(1);
    seen.extend(talk.end_of(&run).await.0);
    assert_eq!(written_and_called(&seen), ["{\"k\":\"[secret]\"}"]);
}

#[tokio::test]
async fn what_breaks_off_in_the_middle_of_a_secret_does_not_show_its_beginning() {
    let acts = vec![Act::Say("the key is sk-123"), Act::BreakOff, Act::Say("sk-12345 sk-"), call(&[])];
    // What ends of itself is whole: the last of it begins no secret.
    assert_eq!(said(acts).await, ["the key is ", "6 bytes are not said", "[secret] sk-"]);
    assert_eq!(said(vec![Act::Say("the key is sk-123"), Act::Fail]).await, ["the key is "]);
    assert_eq!(said(vec![Act::Say("the key is sk-123")]).await, ["the key is sk-123"]);
}

/// The messages and notes of a run that does this.
async fn said(acts: Vec<Act>) -> Vec<String> {
    let (mut talk, run, _) = play(acts).await;
    let (seen, _) = talk.end_of(&run).await;
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
