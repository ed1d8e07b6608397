//! The nodes that share the log of this server.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use parlor_log::NodeRecord;
use serde::Serialize;

use super::session_error::SessionApiError;
use crate::response_memory::ResponseMemory;
use crate::site::Site;

/// A node, as the list shows it.
#[derive(Debug, Serialize)]
struct NodeLine {
    node: String,
    pid: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    workspace: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    alive: bool,
    /// The age of its last heartbeat.
    heartbeat_age_ms: u64,
    /// How long ago it opened the log.
    up_ms: u64,
    /// How many sessions it has open.
    sessions: u64,
    /// How many of them have an active run.
    runs: u64,
}

impl From<NodeRecord> for NodeLine {
    fn from(record: NodeRecord) -> Self {
        Self {
            node: record.node,
            pid: record.pid,
            workspace: record.workspace,
            version: record.announcement.version,
            alive: record.is_alive,
            heartbeat_age_ms: record.heartbeat_age.as_millis() as u64,
            up_ms: record.up.as_millis() as u64,
            sessions: record.sessions,
            runs: record.runs,
        }
    }
}

#[derive(Debug, Serialize)]
struct NodeList {
    /// Empty if the log is on one machine.
    nodes: Vec<NodeLine>,
}

pub(crate) async fn nodes(
    State(site): State<Arc<Site>>,
    Extension(memory): Extension<Arc<ResponseMemory>>,
) -> Response {
    match site.deps.sessions.nodes().await {
        Ok(nodes) => {
            let list = NodeList { nodes: nodes.into_iter().map(NodeLine::from).collect() };
            memory.json(&list, site.deps.settings.limits.answer_wait).await
        }
        Err(refusal) => SessionApiError::from(refusal).response(),
    }
}
