//! What a child answers, as types.

use serde::Deserialize;
use serde_json::Value;

/// How things are.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct SynapsState {
    /// Whether a turn is running.
    pub streaming: bool,
    /// The model in use.
    pub model: String,
    /// The session.
    pub session_id: String,
    /// How many messages its history has.
    pub message_count: u64,
}

/// What the conversation has consumed.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct SynapsStats {
    /// Tokens read, without those from caches.
    pub input_tokens: u64,
    /// Tokens written.
    pub output_tokens: u64,
    /// What it cost, in the provider's currency.
    pub cost: f64,
    /// How many messages its history has.
    pub message_count: u64,
    /// The model in use.
    pub model: String,
    /// The session.
    pub session_id: String,
}

/// A model that can be chosen.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct SynapsModel {
    /// Who serves it.
    pub provider: String,
    /// What it is called in commands.
    pub model_id: String,
    /// What people call it.
    pub model_name: String,
}

/// A tool that the agent can use.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct SynapsTool {
    /// The name by which it is called.
    pub name: String,
    /// What it does.
    pub description: String,
    /// The schema of its input.
    pub input_schema: Value,
}
