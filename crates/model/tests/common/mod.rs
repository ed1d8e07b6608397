//! A stage that takes down what is done on it. Nothing waits: a pause is over at once.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use parlor_model::provider::{Picture, ToolSpec};
use parlor_model::{Agent, AgentContext, SpentSoFar, ToolCall, ToolCallOutput, ToolResult, Turn, TurnError};
use parlor_vocab::{Failure, Media, MessageId, RunId, Usage, UserInput};
use serde_json::Value;
use tokio::sync::Notify;

/// What was done on the stage.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Act {
    Say(String),
    Think(String),
    Write(String, String),
    Call(String, Value),
    BreakOff,
    Delegate { name: String, agent: String, task: String },
    Pause(Duration),
    Consume(Usage, Option<String>),
    Note(String),
    NextStep,
    Forget(String),
}

#[derive(Default)]
pub(crate) struct Recorder {
    /// All acts, those of subagents among them.
    pub(crate) acts: Vec<Act>,
    /// What each subagent gave back, in the order in which they ended.
    pub(crate) returned: Vec<Result<String, Failure>>,
    /// What the tools give back, in turn; then an empty text.
    pub(crate) results: VecDeque<ToolResult>,
    /// What is said to the run once so many acts are done.
    pub(crate) steering: VecDeque<(usize, String)>,
    /// The run is stopped when so many acts are done.
    pub(crate) stop_after: Option<usize>,
    pub(crate) stopped: bool,
    /// Whoever waits for a stop sees one, which happens once so many acts are done.
    pub(crate) stopped_after: Option<usize>,
    /// The tools that a model is told of.
    pub(crate) tools: Vec<ToolSpec>,
    /// What the tools show, one after another; then nothing.
    pub(crate) pictures: VecDeque<Picture>,
    /// What was spent before.
    pub(crate) spent: SpentSoFar,
    /// What every file holds.
    pub(crate) file: Option<Vec<u8>>,
    pub(crate) stop: Arc<Notify>,
    /// How much is never said of what breaks off.
    pub(crate) unsaid: usize,
}

impl Recorder {
    fn act(&mut self, act: Act) -> Result<(), TurnError> {
        assert!(!self.stopped, "after the stop: {act:?}");
        if self.stop_after == Some(self.acts.len()) {
            self.stopped = true;
            return Err(TurnError::Stopped);
        }
        self.acts.push(act);
        if self.stopped_after.is_some_and(|acts| acts <= self.acts.len()) {
            self.stop.notify_waiters();
            self.stop.notify_one();
        }
        Ok(())
    }

    /// The message that is being spoken, if speaking was the last thing done.
    fn last_message(&self, since: usize) -> String {
        let spoken = self.acts.iter().skip(since).rev().map_while(|act| match act {
            Act::Say(text) => Some(text.as_str()),
            Act::Think(_)
            | Act::Write(..)
            | Act::Call(..)
            | Act::BreakOff
            | Act::Delegate { .. }
            | Act::Pause(_)
            | Act::Consume(..)
            | Act::Note(_)
            | Act::NextStep
            | Act::Forget(_) => None,
        });
        spoken.collect::<Vec<_>>().into_iter().rev().collect()
    }

    /// Everything said, put together.
    pub(crate) fn said(&self) -> String {
        self.says().concat()
    }

    /// Everything said, piece by piece.
    pub(crate) fn says(&self) -> Vec<&str> {
        let says = self.acts.iter().filter_map(|act| match act {
            Act::Say(text) => Some(text.as_str()),
            Act::Think(_)
            | Act::Write(..)
            | Act::Call(..)
            | Act::BreakOff
            | Act::Delegate { .. }
            | Act::Pause(_)
            | Act::Consume(..)
            | Act::Note(_)
            | Act::NextStep
            | Act::Forget(_) => None,
        });
        says.collect()
    }
}

#[async_trait]
impl AgentContext for Recorder {
    async fn write_text(&mut self, text: &str) -> Result<(), TurnError> {
        self.act(Act::Say(text.to_owned()))
    }

    async fn write_reasoning(&mut self, text: &str) -> Result<(), TurnError> {
        self.act(Act::Think(text.to_owned()))
    }

    async fn write_call_input(&mut self, name: &str, tool: &str, text: &str) -> Result<(), TurnError> {
        self.act(Act::Write(format!("{name} {tool}"), text.to_owned()))
    }

    async fn call_tool(&mut self, tool: &str, input: &str) -> Result<ToolResult, TurnError> {
        let input = serde_json::from_str(input).expect("a tool's input is JSON");
        self.act(Act::Call(tool.to_owned(), input))?;
        Ok(self.results.pop_front().unwrap_or(Ok(String::new())))
    }

    async fn call_tools(
        &mut self,
        calls: Vec<ToolCall>,
        _until: Option<tokio::time::Instant>,
    ) -> Result<Vec<Result<ToolCallOutput, Failure>>, TurnError> {
        let mut given = Vec::new();
        for call in calls {
            let input = serde_json::from_str(&call.input).unwrap_or(Value::String(call.input));
            self.act(Act::Call(call.tool, input))?;
            given.push(match call.refusal {
                Some(failure) => Err(failure),
                None => self.results.pop_front().unwrap_or(Ok(String::new())).map(|text| ToolCallOutput {
                    text,
                    pictures: self.pictures.pop_front().into_iter().collect(),
                }),
            });
        }
        Ok(given)
    }

    fn tools(&self) -> Vec<ToolSpec> {
        self.tools.clone()
    }

    async fn delegate(&mut self, name: &str, task: &str, agent: &dyn Agent) -> Result<ToolResult, TurnError> {
        let (name, agent_name) = (name.to_owned(), agent.name().to_owned());
        self.act(Act::Delegate { name, agent: agent_name, task: task.to_owned() })?;
        let since = self.acts.len();
        let result = match agent.answer(&turn(task), self).await {
            Ok(()) => Ok(self.last_message(since)),
            Err(TurnError::Failed(failure)) => Err(failure),
            Err(TurnError::Stopped) => return Err(TurnError::Stopped),
        };
        self.returned.push(result.clone());
        Ok(result)
    }

    async fn record_usage(&mut self, usage: Usage, model: Option<&str>) -> Result<(), TurnError> {
        self.act(Act::Consume(usage, model.map(str::to_owned)))
    }

    async fn spent(&mut self) -> Result<SpentSoFar, TurnError> {
        Ok(self.spent)
    }

    fn redact(&self, text: &str) -> String {
        text.to_owned()
    }

    async fn report_progress(&mut self, headline: &str) -> Result<(), TurnError> {
        self.act(Act::Note(headline.to_owned()))
    }

    async fn next_step(&mut self) -> Result<(), TurnError> {
        self.act(Act::NextStep)
    }

    async fn end_interrupted_step(&mut self) -> Result<usize, TurnError> {
        self.act(Act::BreakOff)?;
        Ok(self.unsaid)
    }

    async fn replace_history_before(
        &mut self,
        kept_from: &MessageId,
        _summary: &str,
    ) -> Result<(), TurnError> {
        self.act(Act::Forget(kept_from.to_string()))
    }

    async fn read_media(&mut self, _media: &Media, max_bytes: u64) -> Result<Option<Vec<u8>>, TurnError> {
        Ok(self.file.clone().filter(|bytes| bytes.len() as u64 <= max_bytes))
    }

    fn stopped(&self) -> BoxFuture<'static, ()> {
        let stop = Arc::clone(&self.stop);
        Box::pin(async move { stop.notified().await })
    }

    async fn sleep(&mut self, duration: Duration) -> Result<(), TurnError> {
        self.act(Act::Pause(duration))
    }

    fn take_steering(&mut self) -> Vec<String> {
        let mut heard = Vec::new();
        while let Some((_, text)) = self.steering.pop_front_if(|(after, _)| *after <= self.acts.len()) {
            heard.push(text);
        }
        heard
    }
}

pub(crate) fn turn(text: &str) -> Turn {
    Turn {
        run: RunId::parse("run_1").expect("a short id"),
        input: UserInput { text: text.to_owned(), ..UserInput::default() },
        history: Vec::new(),
        system: None,
        model: Some("m1".to_owned()),
        reasoning: None,
        folder: "/".into(),
        message: None,
    }
}
