//! The wire types, for servers and clients.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A typed frame, in either direction. Empty members are left out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Typed {
    /// The type of the frame, such as `message.send`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The sender's id for the frame. A pong repeats that of the ping.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The session that the frame is about, if it is not the connection's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// When the frame was sent, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<i64>,
    /// Its members depend on the type.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub payload: Map<String, Value>,
}

/// An event of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Activity {
    /// [`VERSION`].
    pub v: String,
    /// Unique across sessions and servers.
    pub event_id: String,
    /// The type of the event, such as `run.started`.
    pub event_type: String,
    /// When the event happened, in RFC 3339 with milliseconds.
    pub timestamp: String,
    /// Counts the run's events from 1 without gaps.
    pub sequence: u64,
    /// The session of the run.
    pub session_id: String,
    /// The run that the event belongs to.
    pub run_id: String,
    /// The run that started this one, if a subagent runs.
    pub parent_run_id: Option<String>,
    /// The agent that runs; a client may have asked for another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// The trace that the run belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<String>,
    /// The span of the client that started the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub span_id: Option<String>,
    /// `RUN_SEQUENCE`: the run id and the sequence number.
    pub idempotency_key: String,
    /// Whether the event happened before the connection began.
    pub replay: bool,
    /// Its members depend on the event type.
    pub data: Map<String, Value>,
}

/// The version of [`Activity`].
pub const VERSION: &str = "1.0";

/// A frame that a server sends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ServerFrame {
    /// An event of a run.
    Activity(Box<Activity>),
    /// Any other frame.
    Typed(Typed),
}
