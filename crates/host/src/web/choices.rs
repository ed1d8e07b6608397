//! What can be chosen for a message: an agent, a model, how much to think.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Serialize;
use serde_json::json;

use super::answer::json as answer;
use super::site::Shared;

/// An agent that can be talked to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentLine {
    /// Its id.
    pub id: String,
    /// What people call it.
    pub name: String,
    /// What it is: `local`, `script` or `model`.
    pub kind: &'static str,
    /// The model that answers, if it is one.
    pub model: Option<String>,
    /// Whether it answers where nobody is asked for.
    pub is_default: bool,
}

/// A model that agents can be told to use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ModelLine {
    /// What it is chosen by.
    pub name: String,
    /// Who runs it.
    pub provider: String,
    /// What it is called there.
    pub model: String,
}

/// What there is to choose from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choices {
    /// The agents.
    pub agents: Vec<AgentLine>,
    /// The models that can be asked.
    pub models: Vec<ModelLine>,
    /// The levels of reasoning.
    pub reasoning: Vec<&'static str>,
}

impl Choices {
    /// The agent that answers where nobody is asked for.
    pub(super) fn default_agent(&self) -> &str {
        self.agents.iter().find(|agent| agent.is_default).map_or("", |agent| &agent.id)
    }
}

pub(super) async fn choices(State(site): State<Shared>) -> Response {
    let choices = &site.web.settings.choices;
    let agents: Vec<_> = choices
        .agents
        .iter()
        .map(|agent| json!({"id": agent.id, "name": agent.name, "kind": agent.kind, "model": agent.model}))
        .collect();
    let value = json!({
        "agents": agents,
        "default_agent": choices.default_agent(),
        "models": choices.models,
        "reasoning": choices.reasoning,
    });
    answer(StatusCode::OK, &value)
}
