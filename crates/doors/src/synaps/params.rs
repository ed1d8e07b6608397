//! The parameters of a child process, and which agent and model a parent chooses by a name.

use parlor_vocab::{AgentChoice, AgentId, NewSession, RunId, Seq, SessionId};

use crate::ToolDescription;

/// The parameters of a child process.
#[derive(Clone, Debug)]
pub struct ChildParams {
    /// The session of the conversation. It must exist.
    pub session: SessionId,
    /// The last entry in the session's log.
    pub head: Seq,
    /// Whether the session was created for this child, and is not continued.
    pub is_new: bool,
    /// The run of another client that was active in the session at `head`.
    pub active: Option<RunId>,
    /// The beginning of the keys of this child's prompts. No other process has the same one.
    pub key_prefix: String,
    /// The template of sessions that `new_session` creates. Its `choice` is the model in use.
    pub new_session: NewSession,
    /// The name of the model in use if none is chosen.
    pub default_model: String,
    /// The models that the parent can choose.
    pub models: Vec<AvailableModel>,
    /// Which agent answers with a model that `models` does not list: that of the first route that fits. If none fits, the
    /// agent stays the same.
    pub routes: Vec<ModelRoute>,
    /// The tools that agents can call.
    pub tools: Vec<ToolDescription>,
}

/// A model in the answer to `get_available_models`.
#[derive(Clone, Debug)]
pub struct AvailableModel {
    /// The provider of the model.
    pub provider: String,
    /// The id of the model in commands such as `set_model`.
    pub id: String,
    /// The name that people see in lists of models.
    pub name: String,
    /// The agent that answers when the parent chooses this model, if the model stands for an agent.
    pub agent: Option<AgentId>,
}

/// The agent that answers with some of the models.
#[derive(Clone, Debug)]
pub struct ModelRoute {
    /// The names of these models.
    pub names: ModelNames,
    /// The agent.
    pub agent: AgentId,
}

/// A set of model names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModelNames {
    /// This name.
    Equal(String),
    /// All names that begin so.
    StartWith(&'static str),
    /// All names that contain this.
    Contain(&'static str),
}

impl ModelNames {
    fn has(&self, name: &str) -> bool {
        match self {
            Self::Equal(only) => only == name,
            Self::StartWith(start) => name.starts_with(start),
            Self::Contain(part) => name.contains(part),
        }
    }
}

impl ChildParams {
    /// The choice that `set_model` makes: the agent with this id, or else the model with this id.
    pub fn choice(&self, model: &str) -> AgentChoice {
        let listed = self.models.iter().find(|known| known.id == model).and_then(|known| known.agent.clone());
        let route = || self.routes.iter().find(|route| route.names.has(model));
        let agent = listed.or_else(|| route().map(|route| route.agent.clone()));
        AgentChoice { agent, model: Some(model.to_owned()), reasoning: None }
    }

    /// The id of the model in use.
    pub(super) fn model(&self) -> &str {
        self.new_session.choice.model.as_deref().unwrap_or(&self.default_model)
    }
}
