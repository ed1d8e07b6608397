//! The wire types, for both sides.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A typed frame, in either direction. Empty members are left out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Typed {
    /// What it is.
    #[serde(rename = "type")]
    pub kind: String,
    /// The sender's name for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The session it is about, if it is not the connection's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// When it was sent, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<i64>,
    /// What it says.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub payload: Map<String, Value>,
}

/// An event: something that happened in a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Activity {
    /// The version of this form.
    pub v: String,
    /// Unique everywhere.
    pub event_id: String,
    /// What happened.
    pub event_type: String,
    /// When, as RFC 3339 has it.
    pub timestamp: String,
    /// Counts the run's events from 1 without gaps.
    pub sequence: u64,
    /// The session of the run.
    pub session_id: String,
    /// The run.
    pub run_id: String,
    /// The run that this one works for.
    pub parent_run_id: Option<String>,
    /// The agent that really answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// The trace that the run belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<String>,
    /// The span of whoever started the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub span_id: Option<String>,
    /// The run and the sequence in one.
    pub idempotency_key: String,
    /// Whether it happened before the connection began.
    pub replay: bool,
    /// What there is to say about it.
    pub data: Map<String, Value>,
}

/// The version of [`Activity`].
pub const VERSION: &str = "1.0";

/// A frame that a server sends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ServerFrame {
    /// Something that happened.
    Activity(Box<Activity>),
    /// Something else.
    Typed(Typed),
}
