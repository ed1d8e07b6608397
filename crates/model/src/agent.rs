//! The two sides of a performance.

use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use parlor_vocab::{AgentChoice, Failure, HistoryItem, Media, MessageId, Reasoning, RunId, Usage, UserInput};
use tokio::time::Instant;

use crate::digest::digest;
use crate::provider::{Picture, ToolSpec};

/// Something that answers. It is shared by all sessions, so it keeps nothing between turns.
#[async_trait]
pub trait Agent: Send + Sync {
    /// What people call it.
    fn name(&self) -> &str;

    /// Whether it looks at [`Turn::history`]. One that does not is spared the reading, and gets none.
    fn needs_history(&self) -> bool {
        true
    }

    /// Performs one turn. Returning `Ok` completes the run with what was said last;
    /// [`TurnError::Failed`] fails it; [`TurnError::Stopped`] is passed on from the stage.
    async fn answer(&self, turn: &Turn, stage: &mut dyn AgentContext) -> Result<(), TurnError>;

    /// Says in few words what has happened, to stand in the place of `history`, with what the session
    /// has chosen. Given up by being dropped. An agent that cannot write one itself gets a list of what
    /// was said.
    async fn summarize(&self, history: &[HistoryItem], _choice: &AgentChoice) -> Result<String, Failure> {
        Ok(digest(history))
    }
}

/// What a turn is about.
#[derive(Clone, Debug)]
pub struct Turn {
    /// The run that this turn is.
    pub run: RunId,
    /// What was said.
    pub input: UserInput,
    /// The message that holds `input`, if the session has one: a subagent's task is none.
    pub message: Option<MessageId>,
    /// What was said before, oldest first, without `input`.
    pub history: Vec<HistoryItem>,
    /// Instructions that come before everything else.
    pub system: Option<String>,
    /// The model that was chosen, if any was.
    pub model: Option<String>,
    /// How hard it is to think, if anybody chose.
    pub reasoning: Option<Reasoning>,
    /// The working folder.
    pub folder: PathBuf,
}

/// Why a performance ends early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TurnError {
    /// Somebody stopped the run. Nothing more can be done on this stage.
    Stopped,
    /// The agent cannot go on.
    Failed(Failure),
}

/// What a tool call gives back: text for the agent to read, or what went wrong. A failed tool does
/// not end the turn.
pub type ToolResult = Result<String, Failure>;

/// A tool call among several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolCall {
    /// The agent's name for it, under which its input may have been shown before; may be empty.
    pub name: String,
    /// The tool.
    pub tool: String,
    /// Its input, which should be JSON text.
    pub input: String,
    /// Why it is not carried out, if that is so. It is recorded and fails with this.
    pub refusal: Option<Failure>,
}

/// What a call among several brought.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolCallOutput {
    /// For the agent to read.
    pub text: String,
    /// For the agent to see. Not recorded.
    pub pictures: Vec<Picture>,
}

/// What was spent before this moment, in millionths of a dollar.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpentSoFar {
    /// By this session, ever.
    pub session_micros: u64,
    /// By all sessions since midnight, UTC.
    pub today_micros: u64,
}

/// Where an agent performs. Everything done here is seen by whoever watches, in this order, and is
/// recorded. Every method fails with [`TurnError::Stopped`] once the run was stopped, and only then; an
/// agent passes that on with `?`.
#[async_trait]
pub trait AgentContext: Send {
    /// Speaks: `text` joins the message that is being spoken. Neighbouring calls are one message.
    async fn write_text(&mut self, text: &str) -> Result<(), TurnError>;

    /// Thinks: `text` joins the thought of this step. Neighbouring calls are one thought.
    async fn write_reasoning(&mut self, text: &str) -> Result<(), TurnError>;

    /// Shows a piece of the input of a call that is going to be made, by [`call_all`](Self::call_all) with the same
    /// name and tool. It is not recorded.
    async fn write_call_input(&mut self, name: &str, tool: &str, text: &str) -> Result<(), TurnError>;

    /// Calls a tool with `input`, which is JSON text, and waits for what it gives back.
    async fn call_tool(&mut self, tool: &str, input: &str) -> Result<ToolResult, TurnError>;

    /// Calls several tools and waits for all of them; what they bring is in the order of the calls.
    /// Neighbours that change nothing run side by side, all others one after another. What is not done by the
    /// moment `until` is ended and fails.
    async fn call_tools(
        &mut self,
        calls: Vec<ToolCall>,
        until: Option<Instant>,
    ) -> Result<Vec<Result<ToolCallOutput, Failure>>, TurnError>;

    /// The tools there are.
    fn tools(&self) -> Vec<ToolSpec>;

    /// Lets another agent answer `task` as a subagent named `name`, as a part of this run. Gives
    /// back what it said last.
    async fn delegate(
        &mut self,
        name: &str,
        task: &str,
        agent: &dyn Agent,
    ) -> Result<Result<String, Failure>, TurnError>;

    /// Notes what a model call consumed, and of which model.
    async fn record_usage(&mut self, usage: Usage, model: Option<&str>) -> Result<(), TurnError>;

    /// What was spent so far.
    async fn spent(&mut self) -> Result<SpentSoFar, TurnError>;

    /// `text` without secrets. For what is sent to a provider and was written by nobody on this stage: files.
    fn redact(&self, text: &str) -> String;

    /// Says in a few words how it goes, beside what is spoken.
    async fn report_progress(&mut self, headline: &str) -> Result<(), TurnError>;

    /// Ends the message and the step: what is spoken next is another message.
    async fn next_step(&mut self) -> Result<(), TurnError>;

    /// Ends the message and the step where an answer broke off. The calls whose inputs were shown are not made. What may
    /// have been the beginning of a secret is not said: gives back how many bytes of the message that is.
    async fn end_interrupted_step(&mut self) -> Result<usize, TurnError>;

    /// Puts `summary` in the place of what was said before the message `kept_from`, for the turns to
    /// come.
    async fn replace_history_before(&mut self, kept_from: &MessageId, summary: &str)
    -> Result<(), TurnError>;

    /// The content of a file that came along, if it is there and not larger than `max_bytes`.
    async fn read_media(&mut self, media: &Media, max_bytes: u64) -> Result<Option<Vec<u8>>, TurnError>;

    /// Is done once the run was stopped. For waiting on something that is not the stage.
    fn stopped(&self) -> BoxFuture<'static, ()>;

    /// Waits.
    async fn sleep(&mut self, duration: Duration) -> Result<(), TurnError>;

    /// What was said to the run since the last look, in order: text that joins the running turn.
    fn take_steering(&mut self) -> Vec<String>;
}
