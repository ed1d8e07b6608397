//! What can be chosen for a message: an agent, a model, how much to think.

use async_trait::async_trait;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Serialize;
use serde_json::json;

use crate::answer::json as answer;
use crate::site::Shared;

/// An agent that can be talked to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentInfo {
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
pub struct ModelInfo {
    /// What it is chosen by.
    pub name: String,
    /// Who runs it.
    pub provider: String,
    /// What it is called there.
    pub model: String,
}

/// What there is to choose from. It is asked every time: keys come and go while the server runs.
#[async_trait]
pub trait ModelMenu: Send + Sync {
    /// The agents that can be talked to now.
    async fn agents(&self) -> Vec<AgentInfo>;

    /// The models that can be asked now.
    async fn models(&self) -> Vec<ModelInfo>;

    /// The levels of reasoning.
    fn reasoning(&self) -> Vec<&'static str>;

    /// The file of settings, as people write its path.
    fn settings_file(&self) -> &str;
}

/// The agent that answers where nobody is asked for.
pub(crate) fn default_of(agents: &[AgentInfo]) -> &str {
    agents.iter().find(|agent| agent.is_default).map_or("", |agent| &agent.id)
}

pub(crate) async fn choices(State(site): State<Shared>) -> Response {
    let menu = &site.web.menu;
    let (agents, models) = (menu.agents().await, menu.models().await);
    let lines: Vec<_> = agents
        .iter()
        .map(|agent| json!({"id": agent.id, "name": agent.name, "kind": agent.kind, "model": agent.model}))
        .collect();
    let value = json!({
        "agents": lines,
        "default_agent": default_of(&agents),
        "models": models,
        "reasoning": menu.reasoning(),
        "settings_file": menu.settings_file(),
    });
    answer(StatusCode::OK, &value)
}
