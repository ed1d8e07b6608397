//! An agent that is a model with tools.
//!
//! `run.rs` is the loop: the model answers, its tools are called, it answers again. `history.rs` makes
//! a conversation of what a session remembers, `context.rs` keeps it within the window, `retry.rs`
//! says when to ask again, `limits.rs` when to stop. `prompt.rs` is what the model is told first, with
//! `instructions.rs` and `skills.rs` from the working folder, whose files `project.rs` opens.
//!
//! Deliberately absent: how a provider is spoken to (`provider/`), and who may call which tool beyond
//! the list of the agent.

mod attempt;
mod context;
mod history;
mod instructions;
mod limits;
mod model;
mod project;
mod prompt;
mod retry;
mod run;
mod skill_search;
mod skills;
mod summary;

use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use parlor_vocab::{AgentChoice, Failure, FailureCode, HistoryItem};

use self::history::told;
use self::run::Run;
use crate::provider::ToolSpec;
use crate::{Agent, AgentContext, Turn, TurnError};

pub use context::{
    BYTES_PER_TOKEN, COMPACT_AT_PERCENT, KEEP_PERCENT, PART_TOKENS, PICTURE_TOKENS, RESULT_PERCENT,
};
pub use instructions::{INSTRUCTIONS_BYTES, INSTRUCTIONS_FILE, MAX_PARENTS};
pub use limits::{
    DEFAULT_COST_MICROS, DEFAULT_STEPS, DEFAULT_TIME, DEFAULT_TOKENS, LIMIT_BYTES_PER_TOKEN, Limits,
};
pub use model::{DEFAULT_CONTEXT_WINDOW, MIN_CONTEXT_WINDOW, Model, Price};
pub use project::{InstructionPath, Project};
pub use prompt::MAX_WARNINGS;
pub use retry::{FIRST_RETRY_WAIT, MAX_RETRY_AFTER, MAX_RETRY_WAIT, MAX_TRIES};
pub use skill_search::{
    MAX_SKILL_DEPTH, MAX_SKILL_FOLDERS, MAX_SKILL_NAMES, SKILL_BYTES, SKILL_FILE, Skill, SkillSearchResult,
    search_skills,
};
pub use skills::{MAX_MENTIONS, MAX_SKILLS};
pub use summary::{MAX_SUMMARY_CHARS, MAX_TASK_CHARS, TRANSCRIPT_PERCENT};

/// The most calls of one answer that are carried out.
pub const MAX_CALLS: usize = 64;

/// The most images that a model is shown in one call.
pub const MAX_PICTURES: usize = 16;

/// The most bytes that the images of messages may have together in one call.
pub const MAX_PICTURE_BYTES: u64 = 16 << 20;

/// How long a summary that somebody asked for may take.
pub const SUMMARY_WAIT: Duration = Duration::from_secs(300);

/// A model with tools.
#[derive(Debug)]
pub struct ModelAgent {
    /// What people call it.
    pub name: String,
    /// The model that answers, then those that take its place when it cannot.
    pub models: Vec<Model>,
    /// All models that can be chosen by name, for a turn or a session.
    pub known: Vec<Model>,
    /// The tools that it may use, in this order; none are all there are.
    pub tools: Option<Vec<String>>,
    /// What it is told first, in the place of what every model is told.
    pub system: Option<String>,
    /// How far a run may go.
    pub limits: Limits,
    /// Where its user keeps instructions and skills for all folders.
    pub user_folders: UserFolders,
}

/// What a user keeps for all working folders.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserFolders {
    /// A file of instructions.
    pub instructions: Option<PathBuf>,
    /// Folders of skills.
    pub skills: Vec<PathBuf>,
    /// The home folder.
    pub home: Option<PathBuf>,
    /// Parlor's state folder: a project's files are none of it, even if it lies there.
    pub state: Option<PathBuf>,
}

impl ModelAgent {
    /// An agent with one model, all tools and the usual limits.
    pub fn new(name: impl Into<String>, model: Model) -> Self {
        Self {
            name: name.into(),
            models: vec![model],
            known: Vec::new(),
            tools: None,
            system: None,
            limits: Limits::default(),
            user_folders: UserFolders::default(),
        }
    }

    /// The models for a turn: the one that was chosen, else the agent's own; then those in reserve.
    /// A name that is not configured is taken for one that the provider of the first model knows.
    fn models_for(&self, chosen: Option<&str>) -> Result<Vec<Model>, Failure> {
        let Some(own) = self.models.first() else {
            let message = format!("{} has no model; give it one in parlor.toml", self.name);
            return Err(Failure { code: FailureCode::UnknownModel, message, retryable: false });
        };
        let Some(chosen) = chosen else { return Ok(self.models.clone()) };
        let all = || self.models.iter().chain(&self.known);
        let found =
            all().find(|model| model.name == chosen).or_else(|| all().find(|model| model.id == chosen));
        let first = found.cloned().unwrap_or_else(|| Model {
            // What it costs and can read is not known; of a window it is safer to expect little.
            price: None,
            context_window: own.context_window.min(model::DEFAULT_CONTEXT_WINDOW),
            ..Model { name: chosen.to_owned(), id: chosen.to_owned(), ..own.clone() }
        });
        let reserve = self.models.iter().skip(1).filter(|model| model.name != first.name).cloned();
        Ok(std::iter::once(first.clone()).chain(reserve).collect())
    }

    /// Those of the tools there are that this agent may use, in its order.
    fn offered(&self, all: Vec<ToolSpec>) -> Vec<ToolSpec> {
        match &self.tools {
            None => all,
            Some(names) => {
                names.iter().filter_map(|name| all.iter().find(|tool| tool.name == *name).cloned()).collect()
            }
        }
    }
}

#[async_trait]
impl Agent for ModelAgent {
    fn name(&self) -> &str {
        &self.name
    }

    async fn answer(&self, turn: &Turn, stage: &mut dyn AgentContext) -> Result<(), TurnError> {
        Run::prepare(self, turn, stage).await?.work().await
    }

    async fn summarize(&self, history: &[HistoryItem], choice: &AgentChoice) -> Result<String, Failure> {
        let models = self.models_for(choice.model.as_deref())?;
        let said: Vec<_> = told(history).into_iter().map(|told| told.said).collect();
        let mut failure = None;
        for model in models {
            match tokio::time::timeout(SUMMARY_WAIT, summary::summarize(&model, &said)).await {
                Ok(Ok(summary)) => return Ok(summary::in_place(&summary.text, None)),
                Ok(Err(error)) => failure = Some(error.failure(&model.name)),
                Err(_) => {
                    let message = format!("{}: no summary came within {SUMMARY_WAIT:?}", model.name);
                    failure = Some(Failure { code: FailureCode::TimeLimit, message, retryable: true });
                }
            }
        }
        Err(failure.expect("there is at least one model"))
    }
}
