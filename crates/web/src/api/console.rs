//! What a console of this protocol asks about the server: its status, models, settings and API description.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Serialize;
use serde_json::json;

use super::models::default_agent;
use crate::response::{json as json_response, typed};
use crate::site::Site;

/// The answer to `GET /api/openapi.json`.
const OPENAPI: &str = include_str!("../../../../docs/openapi.json");

pub(crate) async fn status(State(site): State<Arc<Site>>) -> Response {
    let status = if site.is_running() { "running" } else { "stopped" };
    let value = json!({
        "gateway_status": status,
        "gateway_start_allowed": true,
        "gateway_restart_required": false,
        "pid": std::process::id(),
    });
    json_response(StatusCode::OK, &value)
}

/// The agents, which are what a client can choose here. A console calls them models.
pub(crate) async fn models(State(site): State<Arc<Site>>) -> Response {
    #[derive(Serialize)]
    struct Model<'a> {
        index: usize,
        model_name: &'a str,
        model: String,
        api_key: &'static str,
        configured: bool,
        is_default: bool,
    }
    let agents = site.deps.catalog.now().available_agents().await;
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
    let default = default_agent(&agents);
    json_response(
        StatusCode::OK,
        &json!({ "models": models, "total": agents.len(), "default_model": default }),
    )
}

/// The settings, without secrets.
pub(crate) async fn config(State(site): State<Arc<Site>>) -> Response {
    let settings = &site.deps.settings;
    let agents = site.deps.catalog.now().available_agents().await;
    let agents: Vec<_> = agents
        .iter()
        .map(|agent| json!({ "id": agent.id, "name": agent.name, "default": agent.is_default }))
        .collect();
    let supr = json!({
        "enabled": site.is_enabled(),
        "allow_token_query": settings.allow_token_query,
        "allow_origins": site.deps.tokens.now().allow_origins,
        "max_connections": settings.max_connections,
    });
    json_response(StatusCode::OK, &json!({ "agents": { "list": agents }, "channels": { "supr": supr } }))
}

pub(crate) async fn catalog() -> Response {
    json_response(StatusCode::OK, &json!({ "channels": [{ "name": "supr", "config_key": "supr" }] }))
}

pub(crate) async fn openapi() -> Response {
    typed(StatusCode::OK, "application/json", OPENAPI)
}
