//! The agent that uses a model with tools.
//!
//! `run.rs` is the main loop: the model answers, the agent calls the requested tools, and the model answers again.
//! `history.rs` converts the history of the session to model messages, without what a provider refused (`unanswered.rs`)
//! and with files (`attachments.rs`), `conversation.rs` keeps them within the context
//! window, `retry.rs` decides when to repeat a request, and `limits.rs` when to stop. `prompt.rs` writes the system prompt
//! with the instructions (`instructions.rs`) and skills (`skills.rs`) of the working folder; `project.rs` opens their files.
//!
//! Deliberately absent: the protocols of providers (`provider/`), and permissions for tools beyond the agent's tool list.

mod attachments;
mod attempt;
mod conversation;
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
mod unanswered;

use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use parlor_vocab::{AgentChoice, Failure, FailureCode, HistoryItem};

use self::history::{HistoryForm, summary_messages};
use self::run::ModelRun;
use self::unanswered::has_unanswered;
use crate::provider::ToolSpec;
use crate::{Agent, AgentContext, Turn, TurnError};

pub use attachments::ATTACHED_TEXT_PERCENT;
pub use conversation::{
    BYTES_PER_TOKEN, COMPACT_AT_PERCENT, DOCUMENT_TOKENS, KEEP_PERCENT, PART_TOKENS, PICTURE_TOKENS,
    RESULT_PERCENT,
};
pub use instructions::{INSTRUCTIONS_BYTES, INSTRUCTIONS_FILE, MAX_PARENTS};
pub use limits::{
    DEFAULT_COST_MICROS, DEFAULT_STEPS, DEFAULT_TIME, DEFAULT_TOKENS, LIMIT_BYTES_PER_TOKEN, Limits,
};
pub use model::{DEFAULT_CONTEXT_WINDOW, MIN_CONTEXT_WINDOW, Model, Price};
pub use project::{InstructionPath, Project, project_root};
pub use prompt::MAX_WARNINGS;
pub use retry::{FIRST_RETRY_WAIT, MAX_RETRY_AFTER, MAX_RETRY_WAIT, MAX_TRIES};
pub use skill_search::{
    MAX_SKILL_DEPTH, MAX_SKILL_FOLDERS, MAX_SKILL_NAMES, SKILL_BYTES, SKILL_FILE, Skill, SkillSearchResult,
    search_skills,
};
pub use skills::{MAX_MENTIONS, MAX_SKILLS, SkillText, read_skills};
pub use summary::{MAX_SUMMARY_CHARS, MAX_TASK_CHARS, TRANSCRIPT_PERCENT};
pub use unanswered::refused_messages;

/// The most tool calls of one answer that are executed.
pub const MAX_CALLS: usize = 64;

/// The most images and documents in one request to a model.
pub const MAX_PICTURES: usize = 16;

/// The total size of the images and documents in one request, in bytes.
pub const MAX_PICTURE_BYTES: u64 = 16 << 20;

/// How long a model may take for a summary that a client requested.
pub const SUMMARY_WAIT: Duration = Duration::from_secs(300);

/// An agent that uses a model with tools.
#[derive(Debug)]
pub struct ModelAgent {
    /// The name that people see in lists of agents.
    pub name: String,
    /// The model, followed by the fallbacks in their order.
    pub models: Vec<Model>,
    /// All configured models. A turn or a session can choose one by name.
    pub known: Vec<Model>,
    /// The names of the tools that the agent may use, in this order; `None` means all tools.
    pub tools: Option<Vec<String>>,
    /// Replaces the default system prompt.
    pub system: Option<String>,
    /// The limits of a run.
    pub limits: Limits,
    /// The user's own instructions and skills.
    pub user_folders: UserFolders,
}

/// The files of a user that apply to all working folders.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserFolders {
    /// The path of an instructions file.
    pub instructions: Option<PathBuf>,
    /// Folders that contain skills.
    pub skills: Vec<PathBuf>,
    /// The home folder, which never counts as a project.
    pub home: Option<PathBuf>,
    /// Parlor's state folder. Project files inside of it are not read.
    pub state: Option<PathBuf>,
}

impl ModelAgent {
    /// An agent with one model, all tools and the default limits.
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

    /// The models for a turn: the chosen one, or the agent's own, then the fallbacks. A name that is not configured
    /// is used as a model id of the first model's provider, or, in the form `ID@NAME`, of the provider of the
    /// configured model `NAME`.
    fn models_for(&self, chosen: Option<&str>) -> Result<Vec<Model>, Failure> {
        let Some(own) = self.models.first() else {
            let message = format!("{} has no model; give it one in parlor.toml", self.name);
            return Err(Failure { code: FailureCode::UnknownModel, message, retryable: false });
        };
        let Some(chosen) = chosen else { return Ok(self.models.clone()) };
        let all = || self.models.iter().chain(&self.known);
        let found =
            all().find(|model| model.name == chosen).or_else(|| all().find(|model| model.id == chosen));
        let first = found.cloned().unwrap_or_else(|| {
            let at_server = chosen.rsplit_once('@').filter(|(id, _)| !id.is_empty());
            let at_server =
                at_server.and_then(|(id, name)| Some((id, all().find(|model| model.name == name)?)));
            let (id, base) = at_server.unwrap_or((chosen, own));
            Model {
                name: chosen.to_owned(),
                id: id.to_owned(),
                // The price and the context window are unknown. A small window is the safe assumption.
                price: None,
                context_window: base.context_window.min(model::DEFAULT_CONTEXT_WINDOW),
                ..base.clone()
            }
        });
        let fallbacks = self.models.iter().skip(1).filter(|model| model.name != first.name).cloned();
        Ok(std::iter::once(first.clone()).chain(fallbacks).collect())
    }

    /// Those of the available tools that this agent may use, in its order.
    fn allowed_tools(&self, all: Vec<ToolSpec>) -> Vec<ToolSpec> {
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

    fn has_model_named(&self, name: &str) -> bool {
        self.models.iter().chain(&self.known).any(|model| model.name == name)
    }

    fn model_id(&self, chosen: Option<&str>) -> Option<String> {
        self.models_for(chosen).ok()?.into_iter().next().map(|model| model.id)
    }

    async fn answer(&self, turn: &Turn, context: &mut dyn AgentContext) -> Result<(), TurnError> {
        ModelRun::prepare(self, turn, context).await?.run().await
    }

    async fn summarize(&self, history: &[HistoryItem], choice: &AgentChoice) -> Result<String, Failure> {
        let models = self.models_for(choice.model.as_deref())?;
        let mut forms = vec![summary_messages(history, HistoryForm::Full)];
        if has_unanswered(history) {
            forms.push(summary_messages(history, HistoryForm::Plain));
        }
        let mut failure = None;
        for model in models {
            for messages in &forms {
                match tokio::time::timeout(SUMMARY_WAIT, summary::summarize(&model, messages)).await {
                    Ok(Ok(summary)) => return Ok(summary::as_message(&summary.text, None)),
                    Ok(Err(error)) => failure = Some(error.failure(&model.name)),
                    Err(_) => {
                        let message = format!("{}: no summary came within {SUMMARY_WAIT:?}", model.name);
                        failure = Some(Failure { code: FailureCode::TimeLimit, message, retryable: true });
                        break;
                    }
                }
            }
        }
        Err(failure.expect("models_for returns at least one model"))
    }
}
