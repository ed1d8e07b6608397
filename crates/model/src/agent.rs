//! The two sides of a performance.

use std::time::Duration;

use async_trait::async_trait;
use parlor_vocab::{Failure, Input, Passage, RunId, Usage};

use crate::digest::digest;

/// Something that answers. It is shared by all sessions, so it keeps nothing between turns.
#[async_trait]
pub trait Agent: Send + Sync {
    /// What people call it.
    fn name(&self) -> &str;

    /// Performs one turn. Returning `Ok` completes the run with what was said last;
    /// [`Halt::Failed`] fails it; [`Halt::Stopped`] is passed on from the stage.
    async fn answer(&self, turn: &Turn, stage: &mut dyn Stage) -> Result<(), Halt>;

    /// Says in few words what has happened, to stand in the place of `history`. Given up by being
    /// dropped. An agent that cannot write one itself gets a list of what was said.
    async fn summarize(&self, history: &[Passage]) -> Result<String, Failure> {
        Ok(digest(history))
    }
}

/// What a turn is about.
#[derive(Clone, Debug)]
pub struct Turn {
    /// The run that this turn is.
    pub run: RunId,
    /// What was said.
    pub input: Input,
    /// What was said before, oldest first, without `input`.
    pub history: Vec<Passage>,
    /// Instructions that come before everything else.
    pub system: Option<String>,
    /// The model that was chosen, if any was.
    pub model: Option<String>,
}

/// Why a performance ends early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Halt {
    /// Somebody stopped the run. Nothing more can be done on this stage.
    Stopped,
    /// The agent cannot go on.
    Failed(Failure),
}

/// What a tool call gives back: text for the agent to read, or what went wrong. A failed tool does
/// not end the turn.
pub type ToolResult = Result<String, Failure>;

/// Where an agent performs. Everything done here is seen by whoever watches, in this order, and is
/// recorded. Every method fails with [`Halt::Stopped`] once the run was stopped, and only then; an
/// agent passes that on with `?`.
#[async_trait]
pub trait Stage: Send {
    /// Speaks: `text` joins the message that is being spoken. Neighbouring calls are one message.
    async fn say(&mut self, text: &str) -> Result<(), Halt>;

    /// Thinks: `text` joins the thought of this step. Neighbouring calls are one thought.
    async fn think(&mut self, text: &str) -> Result<(), Halt>;

    /// Calls a tool with `input`, which is JSON text, and waits for what it gives back.
    async fn call(&mut self, tool: &str, input: &str) -> Result<ToolResult, Halt>;

    /// Lets another agent answer `task` as a subagent named `name`, as a part of this run. Gives
    /// back what it said last.
    async fn delegate(
        &mut self,
        name: &str,
        task: &str,
        agent: &dyn Agent,
    ) -> Result<Result<String, Failure>, Halt>;

    /// Notes what a model call consumed, and of which model.
    async fn consume(&mut self, usage: Usage, model: Option<&str>) -> Result<(), Halt>;

    /// Waits.
    async fn pause(&mut self, duration: Duration) -> Result<(), Halt>;

    /// What was said to the run since the last look, in order: text that joins the running turn.
    fn heard(&mut self) -> Vec<String>;
}
