//! The MCP servers whose tools agents may call, and how they are now.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use parlor_engine::{ToolServerState, ToolServerStatus};
use serde::Serialize;

use crate::response_memory::ResponseMemory;
use crate::site::Site;

/// The longest reason that is shown, in characters. Servers write it.
const REASON_CHARS: usize = 500;

/// A server, as the list shows it.
#[derive(Debug, Serialize)]
struct ServerLine {
    name: String,
    /// The file that names it; absent for the settings.
    #[serde(skip_serializing_if = "Option::is_none")]
    origin: Option<String>,
    /// `idle`, `starting`, `running` or `failed`.
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tools: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

impl From<ToolServerStatus> for ServerLine {
    fn from(status: ToolServerStatus) -> Self {
        let origin = status.origin.map(|path| path.display().to_string());
        let line =
            |state| Self { name: status.name, origin, state, description: None, tools: None, reason: None };
        match status.state {
            ToolServerState::NotStarted => line("idle"),
            ToolServerState::Starting => line("starting"),
            ToolServerState::Running { description, tools } => {
                Self { description: Some(description), tools: Some(tools), ..line("running") }
            }
            ToolServerState::Failed(reason) => {
                Self { reason: Some(reason.chars().take(REASON_CHARS).collect()), ..line("failed") }
            }
        }
    }
}

#[derive(Debug, Serialize)]
struct ServerList {
    servers: Vec<ServerLine>,
}

pub(crate) async fn tool_servers(
    State(site): State<Arc<Site>>,
    Extension(memory): Extension<Arc<ResponseMemory>>,
) -> Response {
    let servers = site.deps.sessions.tool_servers().into_iter().map(ServerLine::from).collect();
    memory.json(&ServerList { servers }, site.deps.settings.limits.answer_wait).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_what_is_known_of_the_state() {
        let line = |state| {
            let status = ToolServerStatus { name: "n".to_owned(), origin: None, state };
            serde_json::to_value(ServerLine::from(status)).unwrap()
        };
        assert_eq!(line(ToolServerState::NotStarted), serde_json::json!({"name": "n", "state": "idle"}));
        let running = ToolServerState::Running { description: "d".to_owned(), tools: 3 };
        assert_eq!(
            line(running),
            serde_json::json!({"name": "n", "state": "running", "description": "d", "tools": 3})
        );
        let failed = line(ToolServerState::Failed("x".repeat(10_000)));
        assert_eq!(failed["reason"].as_str().unwrap().len(), REASON_CHARS);
    }
}
