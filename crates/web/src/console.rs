//! What a console wants to know of the server: answers that hardly ever change.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Serialize;
use serde_json::json;

use crate::answer::{json as answer, typed};
use crate::choices::default_of;
use crate::site::Shared;

/// What `GET /api/openapi.json` gives.
const OPENAPI: &str = include_str!("../../../docs/openapi.json");

pub(crate) async fn status(State(site): State<Shared>) -> Response {
    let status = if site.is_running() { "running" } else { "stopped" };
    let value = json!({
        "gateway_status": status,
        "gateway_start_allowed": true,
        "gateway_restart_required": false,
        "pid": std::process::id(),
    });
    answer(StatusCode::OK, &value)
}

/// Agents are what can be chosen here; a console calls that models.
pub(crate) async fn models(State(site): State<Shared>) -> Response {
    #[derive(Serialize)]
    struct Model<'a> {
        index: usize,
        model_name: &'a str,
        model: String,
        api_key: &'static str,
        configured: bool,
        is_default: bool,
    }
    let agents = site.web.menu.agents().await;
    let models: Vec<Model<'_>> = agents
        .iter()
        .enumerate()
        .map(|(index, agent)| Model {
            index,
            model_name: &agent.id,
            model: format!("parlor/{}", agent.id),
            api_key: "",
            configured: true,
            is_default: agent.is_default,
        })
        .collect();
    let default = default_of(&agents);
    answer(StatusCode::OK, &json!({ "models": models, "total": agents.len(), "default_model": default }))
}

/// What is set, without secrets.
pub(crate) async fn config(State(site): State<Shared>) -> Response {
    let settings = &site.web.settings;
    let agents: Vec<_> = site
        .web
        .menu
        .agents()
        .await
        .iter()
        .map(|agent| json!({ "id": agent.id, "name": agent.name, "default": agent.is_default }))
        .collect();
    let supr = json!({
        "enabled": settings.is_enabled,
        "allow_token_query": settings.allow_token_query,
        "allow_origins": site.web.tokens.now().allow_origins,
        "max_connections": settings.max_connections,
    });
    answer(StatusCode::OK, &json!({ "agents": { "list": agents }, "channels": { "supr": supr } }))
}

pub(crate) async fn catalog() -> Response {
    answer(StatusCode::OK, &json!({ "channels": [{ "name": "supr", "config_key": "supr" }] }))
}

pub(crate) async fn openapi() -> Response {
    typed(StatusCode::OK, "application/json", OPENAPI)
}
