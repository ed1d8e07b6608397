//! The agents, models and reasoning levels that a client can choose for a message.

use std::pin::Pin;
use std::sync::{Arc, PoisonError, RwLock};

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Serialize;
use serde_json::json;

use crate::response::json as json_response;
use crate::site::Site;

/// An agent that clients can choose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentInfo {
    /// The id with which clients choose the agent.
    pub id: String,
    /// The name that people see.
    pub name: String,
    /// `local`, `script` or `model`.
    pub kind: &'static str,
    /// The name of its model, if its kind is `model`.
    pub model: Option<String>,
    /// Whether it answers messages for which no agent is chosen.
    pub is_default: bool,
    /// Whether clients see it only while [`ModelCatalog::agent_has_key`] finds a key for it.
    pub needs_key: bool,
}

/// A model that agents can use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ModelInfo {
    /// The name with which clients choose the model: its name in the settings.
    pub name: String,
    /// The name of the provider that runs the model.
    pub provider: String,
    /// The provider's name for the model.
    pub model: String,
}

/// A function that finds out whether parlor has a key now. It takes the id of an agent or the name of a model, and returns
/// a `bool` or a [`HasKey`].
pub type KeyCheck<Output> = Arc<dyn Fn(&str) -> Output + Send + Sync>;

/// The result of an asynchronous [`KeyCheck`].
pub type HasKey = Pin<Box<dyn Future<Output = bool> + Send>>;

/// The agents, models and reasoning levels that clients can choose. Keys can be added and removed while the server runs,
/// so each request checks for them again.
pub struct ModelCatalog {
    /// The configured agents.
    pub agents: Vec<AgentInfo>,
    /// The configured models.
    pub models: Vec<ModelInfo>,
    /// The names of the reasoning levels.
    pub reasoning: Vec<&'static str>,
    /// The path of `parlor.toml`, with `~` for the home folder of the user.
    pub settings_file: String,
    /// Whether parlor has a key for the model of this agent. May block.
    pub agent_has_key: KeyCheck<bool>,
    /// Whether parlor has a key for this model, or the model needs none.
    pub model_has_key: KeyCheck<HasKey>,
}

/// The catalog of now. A reload of the settings replaces it.
pub struct CurrentCatalog(RwLock<Arc<ModelCatalog>>);

impl CurrentCatalog {
    /// Starts with `catalog`.
    pub fn new(catalog: ModelCatalog) -> Self {
        Self(RwLock::new(Arc::new(catalog)))
    }

    /// Shows `catalog` to clients from now on.
    pub fn replace(&self, catalog: ModelCatalog) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(catalog);
    }

    pub(crate) fn now(&self) -> Arc<ModelCatalog> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl ModelCatalog {
    /// The agents that clients see now (see [`AgentInfo::needs_key`]).
    pub(crate) async fn available_agents(&self) -> Vec<AgentInfo> {
        if !self.agents.iter().any(|agent| agent.needs_key) {
            return self.agents.clone();
        }
        let (agents, has_key) = (self.agents.clone(), Arc::clone(&self.agent_has_key));
        let is_available = move |agent: &AgentInfo| !agent.needs_key || has_key(&agent.id);
        let available =
            tokio::task::spawn_blocking(move || agents.into_iter().filter(is_available).collect());
        // The task fails only if the runtime shuts down.
        available.await.unwrap_or_else(|_| self.agents.clone())
    }

    /// The models for which parlor has a key now, or that need none.
    async fn available_models(&self) -> Vec<&ModelInfo> {
        let mut available = Vec::new();
        for model in &self.models {
            if (self.model_has_key)(&model.name).await {
                available.push(model);
            }
        }
        available
    }
}

/// The id of the agent that answers messages for which no agent is chosen. Empty if it is not in `agents`.
pub(super) fn default_agent(agents: &[AgentInfo]) -> &str {
    agents.iter().find(|agent| agent.is_default).map_or("", |agent| &agent.id)
}

/// Handles the request for the agents, models and reasoning levels.
pub(crate) async fn choices(State(site): State<Arc<Site>>) -> Response {
    let catalog = site.deps.catalog.now();
    let (agents, models) = (catalog.available_agents().await, catalog.available_models().await);
    let agent_objects: Vec<_> = agents
        .iter()
        .map(|agent| json!({"id": agent.id, "name": agent.name, "kind": agent.kind, "model": agent.model}))
        .collect();
    let value = json!({
        "agents": agent_objects,
        "default_agent": default_agent(&agents),
        "models": models,
        "reasoning": catalog.reasoning,
        "settings_file": catalog.settings_file,
    });
    json_response(StatusCode::OK, &value)
}
