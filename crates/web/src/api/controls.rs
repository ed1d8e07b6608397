//! What a console of this protocol lists and changes beside sessions: tools, skills, the default model, the log, and the
//! state of the server.
//!
//! Parlor does not write its settings: a request that changes nothing succeeds, any other gets a JSON object with `error`,
//! which such a console shows.

use std::path::PathBuf;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Value, json};

use super::path_id::PathId;
use crate::body::json_object;
use crate::query::number;
use crate::response::json as json_response;
use crate::site::Site;

/// A skill of the user or of the server's working folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkillInfo {
    /// The name by which users mention the skill.
    pub name: String,
    /// What the skill is for.
    pub description: String,
    /// The skill's file.
    pub file: PathBuf,
    /// The text of the file, as agents read it.
    pub text: String,
    /// Whether it belongs to the working folder and not to the user.
    pub is_of_project: bool,
}

/// Lists the skills that agents have in the server's working folder. Blocks while it reads their files.
pub type ListSkills = Arc<dyn Fn() -> Vec<SkillInfo> + Send + Sync>;

pub(crate) async fn tools(State(site): State<Arc<Site>>) -> Response {
    let tools: Vec<Value> = site
        .deps
        .sessions
        .tools()
        .iter()
        .map(|tool| {
            json!({ "name": tool.name(), "description": tool.description(), "category": "tools",
                    "config_key": "tools", "status": "enabled" })
        })
        .collect();
    json_response(StatusCode::OK, &json!({ "tools": tools }))
}

/// Answers the switch of a tool: all tools are enabled.
pub(crate) async fn set_tool(State(site): State<Arc<Site>>, PathId(name): PathId, body: Bytes) -> Response {
    #[derive(Deserialize)]
    struct ToolState {
        enabled: bool,
    }
    if site.deps.sessions.tools().find(&name).is_err() {
        return refused(StatusCode::NOT_FOUND, &format!("tool {name:?} not found"));
    }
    match json_object(&body) {
        Ok(ToolState { enabled: true }) => json_response(StatusCode::OK, &json!({ "status": "ok" })),
        Ok(ToolState { enabled: false }) => {
            let reason = format!(
                "parlor does not write its settings: list the tools of an agent, without {name}, as tools in [agents.NAME] of {}",
                site.deps.catalog.now().settings_file
            );
            refused(StatusCode::CONFLICT, &reason)
        }
        Err(_) => refused(StatusCode::BAD_REQUEST, "the body is {\"enabled\":true} or {\"enabled\":false}"),
    }
}

pub(crate) async fn skills(State(site): State<Arc<Site>>) -> Response {
    let skills: Vec<Value> = list_skills(&site).await.iter().map(skill_json).collect();
    json_response(StatusCode::OK, &json!({ "skills": skills }))
}

/// One skill with the text of its file.
pub(crate) async fn skill(State(site): State<Arc<Site>>, PathId(name): PathId) -> Response {
    let Some(skill) = list_skills(&site).await.into_iter().find(|skill| skill.name == name) else {
        return refused(StatusCode::NOT_FOUND, &format!("skill {name:?} not found"));
    };
    let mut answer = skill_json(&skill);
    answer["content"] = Value::from(skill.text);
    json_response(StatusCode::OK, &answer)
}

/// Answers the import and the deletion of a skill.
pub(crate) async fn change_skill() -> Response {
    let reason = "parlor does not write skills: a skill is a folder with a file SKILL.md in .agents/skills of your \
                  home folder or of the project; add it or remove it there";
    refused(StatusCode::CONFLICT, reason)
}

/// Answers the choice of another default model: `default_agent` in the settings decides.
pub(crate) async fn set_default_model(State(site): State<Arc<Site>>, body: Bytes) -> Response {
    #[derive(Deserialize)]
    struct Choice {
        model_name: String,
    }
    let Ok(Choice { model_name }) = json_object(&body) else {
        return refused(StatusCode::BAD_REQUEST, "the body is {\"model_name\":\"…\"}");
    };
    let catalog = site.deps.catalog.now();
    let agents = catalog.available_agents().await;
    let is_named = |agent: &super::models::AgentInfo| {
        agent.id == model_name || agent.model.as_deref() == Some(model_name.as_str())
    };
    let is_model = catalog.models.iter().any(|model| model.name == model_name);
    if agents.iter().any(|agent| agent.is_default && is_named(agent)) {
        return json_response(StatusCode::OK, &json!({ "status": "ok", "default_model": model_name }));
    }
    if !is_model && !agents.iter().any(is_named) {
        return refused(StatusCode::NOT_FOUND, &format!("model {model_name:?} not found"));
    }
    let reason = format!(
        "parlor does not write its settings: set default_agent, or the model of that agent, in {} and start parlor \
         again; a message can name an agent_id or a model for itself",
        catalog.settings_file
    );
    refused(StatusCode::CONFLICT, &reason)
}

/// Says where the log is. It is one line, so a client that has it, and asks for later ones, gets none.
pub(crate) async fn logs(parts: Parts) -> Response {
    let Ok(offset) = number(&parts, "log_offset") else {
        return refused(StatusCode::BAD_REQUEST, "log_offset is a whole number");
    };
    let line = "parlor writes its log to stderr of the process parlor serve and keeps no copy; PARLOR_LOG sets its level";
    let lines: Vec<&str> = std::iter::once(line).skip(offset.unwrap_or(0)).collect();
    json_response(StatusCode::OK, &json!({ "logs": lines, "log_total": 1, "log_run_id": 1 }))
}

/// Answers the button that starts the gateway: it runs, since it answers.
pub(crate) async fn start_gateway() -> Response {
    json_response(StatusCode::OK, &json!({ "status": "ok", "pid": std::process::id() }))
}

/// Answers the buttons that stop the gateway, and start it again: only the person who has started it can do that.
pub(crate) async fn stop_gateway() -> Response {
    let reason = format!(
        "parlor serve does not stop itself: end process {} where it was started, or with kill",
        std::process::id()
    );
    refused(StatusCode::CONFLICT, &reason)
}

pub(crate) async fn clear_logs() -> Response {
    refused(StatusCode::CONFLICT, "parlor keeps no log lines that could be cleared: it writes them to stderr")
}

async fn list_skills(site: &Site) -> Vec<SkillInfo> {
    let list = Arc::clone(&site.deps.skills);
    tokio::task::spawn_blocking(move || list()).await.unwrap_or_default()
}

fn skill_json(skill: &SkillInfo) -> Value {
    let source = if skill.is_of_project { "workspace" } else { "global" };
    json!({ "name": skill.name, "path": skill.file.display().to_string(), "source": source,
            "description": skill.description })
}

fn refused(status: StatusCode, reason: &str) -> Response {
    json_response(status, &json!({ "error": reason }))
}
