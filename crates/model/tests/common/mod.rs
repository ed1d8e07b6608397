//! An [`AgentContext`] that records all actions. Sleeps return immediately.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use parlor_model::provider::{Picture, ToolSpec};
use parlor_model::{
    Agent, AgentContext, AvailableTools, SpentSoFar, SubagentResult, ToolCall, ToolCallOutput, ToolResult,
    Turn, TurnError,
};
use parlor_vocab::{Failure, Media, MessageId, RunId, Usage, UserInput};
use serde_json::Value;
use tokio::sync::Notify;

/// An action of an agent.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Action {
    Text(String),
    Reasoning(String),
    /// The id and tool of the call, and a piece of its input.
    CallInput(String, String),
    ToolCall(String, Value),
    EndInterruptedStep,
    Delegate {
        name: String,
        agent: String,
        task: String,
    },
    Sleep(Duration),
    Usage(Usage, Option<String>),
    Progress(String),
    FinishStep,
    ReplaceHistory(String),
}

#[derive(Default)]
pub(crate) struct RecordingContext {
    /// All actions, including those of subagents.
    pub(crate) actions: Vec<Action>,
    /// The result of each subagent, in the order in which they ended.
    pub(crate) returned: Vec<Result<String, Failure>>,
    /// The results of tool calls, in order; further calls return an empty text.
    pub(crate) results: VecDeque<ToolResult>,
    /// Messages for the running turn, each with the number of actions after which it arrives.
    pub(crate) steering: VecDeque<(usize, String)>,
    /// After this many actions, the next one fails with `Stopped`.
    pub(crate) stop_after: Option<usize>,
    pub(crate) stopped: bool,
    /// After this many actions, the future of `stopped` completes.
    pub(crate) notify_stop_after: Option<usize>,
    /// The available tools.
    pub(crate) tools: Vec<ToolSpec>,
    /// The images of tool results, one for each call.
    pub(crate) pictures: VecDeque<Picture>,
    /// The cost so far.
    pub(crate) spent: SpentSoFar,
    /// The content of every attachment.
    pub(crate) file: Option<Vec<u8>>,
    /// The text that `redact` removes.
    pub(crate) secret: Option<String>,
    pub(crate) stop: Arc<Notify>,
    /// The number of bytes that `end_interrupted_step` reports as dropped.
    pub(crate) dropped: usize,
    /// Whether the user does not trust the project.
    pub(crate) distrusts_project: bool,
    /// The files of the project that the agent asked about.
    pub(crate) asked_trust_for: Vec<PathBuf>,
}

impl RecordingContext {
    fn record(&mut self, action: Action) -> Result<(), TurnError> {
        assert!(!self.stopped, "action after the stop: {action:?}");
        if self.stop_after == Some(self.actions.len()) {
            self.stopped = true;
            return Err(TurnError::Stopped);
        }
        self.actions.push(action);
        if self.notify_stop_after.is_some_and(|count| count <= self.actions.len()) {
            self.stop.notify_waiters();
            self.stop.notify_one();
        }
        Ok(())
    }

    /// The current message: the text at the end of the actions.
    fn last_message(&self, since: usize) -> String {
        let text = self.actions.iter().skip(since).rev().map_while(|action| match action {
            Action::Text(text) => Some(text.as_str()),
            Action::Reasoning(_)
            | Action::CallInput(..)
            | Action::ToolCall(..)
            | Action::EndInterruptedStep
            | Action::Delegate { .. }
            | Action::Sleep(_)
            | Action::Usage(..)
            | Action::Progress(_)
            | Action::FinishStep
            | Action::ReplaceHistory(_) => None,
        });
        text.collect::<Vec<_>>().into_iter().rev().collect()
    }

    /// All text, concatenated.
    pub(crate) fn text(&self) -> String {
        self.text_pieces().concat()
    }

    /// All text, piece by piece.
    pub(crate) fn text_pieces(&self) -> Vec<&str> {
        let pieces = self.actions.iter().filter_map(|action| match action {
            Action::Text(text) => Some(text.as_str()),
            Action::Reasoning(_)
            | Action::CallInput(..)
            | Action::ToolCall(..)
            | Action::EndInterruptedStep
            | Action::Delegate { .. }
            | Action::Sleep(_)
            | Action::Usage(..)
            | Action::Progress(_)
            | Action::FinishStep
            | Action::ReplaceHistory(_) => None,
        });
        pieces.collect()
    }
}

#[async_trait]
impl AgentContext for RecordingContext {
    async fn write_text(&mut self, text: &str) -> Result<(), TurnError> {
        self.record(Action::Text(text.to_owned()))
    }

    async fn write_reasoning(&mut self, text: &str) -> Result<(), TurnError> {
        self.record(Action::Reasoning(text.to_owned()))
    }

    async fn write_call_input(&mut self, streamed_id: &str, tool: &str, text: &str) -> Result<(), TurnError> {
        self.record(Action::CallInput(format!("{streamed_id} {tool}"), text.to_owned()))
    }

    async fn call_tool(&mut self, tool: &str, input: &str) -> Result<ToolResult, TurnError> {
        let input = serde_json::from_str(input).expect("the input of a tool is JSON");
        self.record(Action::ToolCall(tool.to_owned(), input))?;
        Ok(self.results.pop_front().unwrap_or(Ok(String::new())))
    }

    async fn call_tools(
        &mut self,
        calls: Vec<ToolCall>,
        _until: Option<tokio::time::Instant>,
    ) -> Result<Vec<Result<ToolCallOutput, Failure>>, TurnError> {
        let mut outputs = Vec::new();
        for call in calls {
            let input = serde_json::from_str(&call.input).unwrap_or(Value::String(call.input));
            self.record(Action::ToolCall(call.tool, input))?;
            outputs.push(match call.refusal {
                Some(failure) => Err(failure),
                None => self.results.pop_front().unwrap_or(Ok(String::new())).map(|text| ToolCallOutput {
                    text,
                    pictures: self.pictures.pop_front().into_iter().collect(),
                }),
            });
        }
        Ok(outputs)
    }

    async fn tools(&mut self) -> Result<AvailableTools, TurnError> {
        Ok(AvailableTools { tools: self.tools.clone(), notices: Vec::new() })
    }

    async fn trusts_project(&mut self, files: &[PathBuf]) -> Result<bool, TurnError> {
        self.asked_trust_for.extend_from_slice(files);
        Ok(!self.distrusts_project)
    }

    async fn delegate(
        &mut self,
        name: &str,
        task: &str,
        agent: &dyn Agent,
    ) -> Result<SubagentResult, TurnError> {
        let (name, agent_name) = (name.to_owned(), agent.name().to_owned());
        self.record(Action::Delegate { name, agent: agent_name, task: task.to_owned() })?;
        let since = self.actions.len();
        let result = match agent.answer(&turn(task), self).await {
            Ok(()) => Ok(self.last_message(since)),
            Err(TurnError::Failed(failure)) => Err(failure),
            Err(TurnError::Stopped) => return Err(TurnError::Stopped),
        };
        self.returned.push(result.clone());
        Ok(result)
    }

    async fn record_usage(&mut self, usage: Usage, model: Option<&str>) -> Result<(), TurnError> {
        self.record(Action::Usage(usage, model.map(str::to_owned)))
    }

    async fn spent(&mut self) -> Result<SpentSoFar, TurnError> {
        Ok(self.spent)
    }

    fn redact(&self, text: &str) -> String {
        match &self.secret {
            Some(secret) => text.replace(secret, "[redacted]"),
            None => text.to_owned(),
        }
    }

    async fn report_progress(&mut self, headline: &str) -> Result<(), TurnError> {
        self.record(Action::Progress(headline.to_owned()))
    }

    async fn finish_step(&mut self) -> Result<(), TurnError> {
        self.record(Action::FinishStep)
    }

    async fn end_interrupted_step(&mut self) -> Result<usize, TurnError> {
        self.record(Action::EndInterruptedStep)?;
        Ok(self.dropped)
    }

    async fn replace_history_before(
        &mut self,
        kept_from: &MessageId,
        _summary: &str,
    ) -> Result<(), TurnError> {
        self.record(Action::ReplaceHistory(kept_from.to_string()))
    }

    async fn read_media(&mut self, _media: &Media, max_bytes: u64) -> Result<Option<Vec<u8>>, TurnError> {
        Ok(self.file.clone().filter(|bytes| bytes.len() as u64 <= max_bytes))
    }

    async fn media_path(&mut self, media: &Media) -> Result<Option<PathBuf>, TurnError> {
        Ok(Some(Path::new("/media").join(media.id.as_str())))
    }

    fn stopped(&self) -> BoxFuture<'static, ()> {
        let stop = Arc::clone(&self.stop);
        Box::pin(async move { stop.notified().await })
    }

    async fn sleep(&mut self, duration: Duration) -> Result<(), TurnError> {
        self.record(Action::Sleep(duration))
    }

    fn take_steering(&mut self) -> Vec<String> {
        let mut messages = Vec::new();
        while let Some((_, text)) = self.steering.pop_front_if(|(after, _)| *after <= self.actions.len()) {
            messages.push(text);
        }
        messages
    }
}

pub(crate) fn turn(text: &str) -> Turn {
    Turn {
        run: RunId::parse("run_1").expect("a short id"),
        input: UserInput { text: text.to_owned(), ..UserInput::default() },
        history: Vec::new(),
        resumed: Vec::new(),
        system: None,
        model: Some("m1".to_owned()),
        reasoning: None,
        folder: "/".into(),
        message: None,
    }
}
