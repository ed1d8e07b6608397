//! The [`Agent`] trait, and the [`AgentContext`] through which an agent acts.

use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use parlor_vocab::{AgentChoice, Failure, HistoryItem, Media, MessageId, Reasoning, RunId, Usage, UserInput};
use tokio::time::Instant;

use crate::digest::digest;
use crate::provider::{Picture, ToolSpec};

/// Answers the messages of sessions. All sessions share one instance, so it keeps no state between turns.
#[async_trait]
pub trait Agent: Send + Sync {
    /// The name that people see in lists of agents.
    fn name(&self) -> &str;

    /// Whether the agent reads [`Turn::history`]. If not, the history is not loaded and is empty.
    fn needs_history(&self) -> bool {
        true
    }

    /// Whether the settings have a model of this name for the agent.
    fn has_model_named(&self, _name: &str) -> bool {
        false
    }

    /// The provider's id of the model that answers first if a client chooses `chosen`, a name or an id; `None` is the
    /// agent's own model. Returns `None` if the agent uses no model.
    fn model_id(&self, _chosen: Option<&str>) -> Option<String> {
        None
    }

    /// Whether the agent can answer with a model that a client chose. If not, a run for which a model was chosen fails:
    /// nobody should take the agent's answer for that of the model.
    fn takes_models(&self) -> bool {
        true
    }

    /// Whether the agent is under the policy even if the settings do not say so. Agents without a model do only what their
    /// user or their script says.
    fn follows_policy(&self) -> bool {
        true
    }

    /// Performs one turn. With [`Turn::resumed`], goes on with a turn that was interrupted. `Ok` completes the run with the last message. [`TurnError::Failed`] fails the run.
    /// [`TurnError::Stopped`] is passed on from the context.
    async fn answer(&self, turn: &Turn, context: &mut dyn AgentContext) -> Result<(), TurnError>;

    /// Summarizes `history`, which the summary then replaces, with the model of `choice`. Dropping the future cancels
    /// it. The default is a list of the last messages.
    async fn summarize(&self, history: &[HistoryItem], _choice: &AgentChoice) -> Result<String, Failure> {
        Ok(digest(history))
    }
}

/// The input of one turn.
#[derive(Clone, Debug)]
pub struct Turn {
    /// The run of this turn.
    pub run: RunId,
    /// The user's message, or the task of a subagent.
    pub input: UserInput,
    /// The id of the message with `input`. `None` for the task of a subagent, which is not a message.
    pub message: Option<MessageId>,
    /// The conversation before `input`, oldest first.
    pub history: Vec<HistoryItem>,
    /// What the agent did in this turn before the process ended while a person was asked about its last tool call: texts
    /// and calls, oldest first, all with results. Empty if the turn begins.
    pub resumed: Vec<HistoryItem>,
    /// The session's instructions, which come first in the system prompt.
    pub system: Option<String>,
    /// The model that the client chose, by name or by the provider's id.
    pub model: Option<String>,
    /// The reasoning effort that the client chose.
    pub reasoning: Option<Reasoning>,
    /// The absolute path of the working folder.
    pub folder: PathBuf,
}

/// Why a turn ends early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TurnError {
    /// The run was stopped. All further calls of the context fail with this error.
    Stopped,
    /// The agent cannot continue.
    Failed(Failure),
}

/// The result of a tool call: text for the agent, or a failure. A failed tool does not end the turn.
pub type ToolResult = Result<String, Failure>;

/// The last message of a subagent, or the failure of its run. A failed subagent does not end the turn.
pub type SubagentResult = Result<String, Failure>;

/// A tool call of [`AgentContext::call_tools`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolCall {
    /// The id under which [`AgentContext::write_call_input`] streamed the input; empty if it was not streamed.
    pub streamed_id: String,
    /// The name of the tool.
    pub tool: String,
    /// The input, which should be JSON text.
    pub input: String,
    /// If set, the call is recorded and fails with this instead of being executed.
    pub refusal: Option<Failure>,
}

/// The result of a [`ToolCall`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolCallOutput {
    /// Text for the agent.
    pub text: String,
    /// Images for the agent, which are not recorded.
    pub pictures: Vec<Picture>,
}

/// The tools that an agent may call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AvailableTools {
    /// Their descriptions for a model.
    pub tools: Vec<ToolSpec>,
    /// Which tools are missing and why, each one sentence.
    pub notices: Vec<String>,
}

/// The cost so far, in millionths of a dollar.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpentSoFar {
    /// The cost of this session since its creation.
    pub session_micros: u64,
    /// The cost of all sessions since midnight UTC.
    pub today_micros: u64,
}

/// The interface through which an agent acts in a run. Clients see all actions in their order, and the log records
/// them. After the run was stopped every method fails with [`TurnError::Stopped`], which the agent passes on with
/// `?`; no method fails otherwise.
#[async_trait]
pub trait AgentContext: Send {
    /// Appends `text` to the current message. Consecutive calls write one message.
    async fn write_text(&mut self, text: &str) -> Result<(), TurnError>;

    /// Appends `text` to the reasoning of the current step.
    async fn write_reasoning(&mut self, text: &str) -> Result<(), TurnError>;

    /// Streams a piece of the input of a call that [`call_tools`](Self::call_tools) will make with the same
    /// [`streamed_id`](ToolCall::streamed_id) and tool. Clients see the piece; the log does not record it.
    async fn write_call_input(&mut self, streamed_id: &str, tool: &str, text: &str) -> Result<(), TurnError>;

    /// Calls a tool with `input`, which is JSON text, and waits for its result.
    async fn call_tool(&mut self, tool: &str, input: &str) -> Result<ToolResult, TurnError>;

    /// Calls several tools and waits for all of them. The results are in the order of the calls. Consecutive calls of
    /// tools that change nothing run in parallel, all others one after another. A call that has not ended at `until`
    /// is cancelled and fails.
    async fn call_tools(
        &mut self,
        calls: Vec<ToolCall>,
        until: Option<Instant>,
    ) -> Result<Vec<Result<ToolCallOutput, Failure>>, TurnError>;

    /// The available tools. The first call waits for the servers that have tools, within limits.
    async fn tools(&mut self) -> Result<AvailableTools, TurnError>;

    /// Whether the user trusts the project. A person may be asked, once a run: `files` are those that the agent wants to
    /// obey. If not, the context has told the user so.
    async fn trusts_project(&mut self, files: &[PathBuf]) -> Result<bool, TurnError>;

    /// Runs `agent` as a subagent named `name` with this `task`, as a part of this run.
    async fn delegate(
        &mut self,
        name: &str,
        task: &str,
        agent: &dyn Agent,
    ) -> Result<SubagentResult, TurnError>;

    /// Records the usage of a model call. `model` is the provider's id of the model.
    async fn record_usage(&mut self, usage: Usage, model: Option<&str>) -> Result<(), TurnError>;

    /// The cost so far, for the spending limits.
    async fn spent(&mut self) -> Result<SpentSoFar, TurnError>;

    /// `text` without secrets. For text from files, which has not passed through this context, before it is sent to a
    /// provider.
    fn redact(&self, text: &str) -> String;

    /// Reports in a few words what the agent is doing, outside of the message.
    async fn report_progress(&mut self, headline: &str) -> Result<(), TurnError>;

    /// Ends the current message and step. The next text starts another message.
    async fn finish_step(&mut self) -> Result<(), TurnError>;

    /// Ends the current message and step after the model's answer was interrupted. Calls whose inputs were streamed
    /// are withdrawn. Text that may be the beginning of a secret is dropped from the message; returns its length in
    /// bytes.
    async fn end_interrupted_step(&mut self) -> Result<usize, TurnError>;

    /// Replaces the history before the message `kept_from` by `summary`, for later turns.
    async fn replace_history_before(&mut self, kept_from: &MessageId, summary: &str)
    -> Result<(), TurnError>;

    /// The content of an attachment. `None` if it is missing or larger than `max_bytes`.
    async fn read_media(&mut self, media: &Media, max_bytes: u64) -> Result<Option<Vec<u8>>, TurnError>;

    /// The path of an attachment, which tools may read from now on. `None` if it is missing.
    async fn media_path(&mut self, media: &Media) -> Result<Option<PathBuf>, TurnError>;

    /// How long tool calls have waited for answers of people since the last call. It does not count as time of the run.
    fn take_waited(&mut self) -> Duration {
        Duration::ZERO
    }

    /// Completes when the run is stopped. For use in `select!` while the agent awaits something else.
    fn stopped(&self) -> BoxFuture<'static, ()>;

    /// Waits for `duration`, or until the run is stopped.
    async fn sleep(&mut self, duration: Duration) -> Result<(), TurnError>;

    /// The messages that clients sent to the running turn since the last call, in order.
    fn take_steering(&mut self) -> Vec<String>;
}
