//! The answers of a child as types.

use serde::Deserialize;
use serde_json::Value;

/// The state of the conversation, from `get_state`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct SynapsState {
    /// Whether a turn is running.
    pub streaming: bool,
    /// The id of the model in use.
    pub model: String,
    /// The session of the conversation; [`SynapsLaunch::resume`](super::SynapsLaunch::resume) takes it.
    pub session_id: String,
    /// How many messages the history has.
    pub message_count: u64,
}

/// The usage of the whole conversation, from `get_session_stats`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct SynapsStats {
    /// Input tokens, without those that came from the provider's cache.
    pub input_tokens: u64,
    /// Tokens that the model wrote.
    pub output_tokens: u64,
    /// The cost in the provider's currency.
    pub cost: f64,
    /// How many messages the history has.
    pub message_count: u64,
    /// The id of the model in use.
    pub model: String,
    /// The session of the conversation.
    pub session_id: String,
}

/// A model that [`SynapsClient::set_model`](super::SynapsClient::set_model) accepts.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct SynapsModel {
    /// The provider that serves the model.
    pub provider: String,
    /// The id of the model in commands.
    pub model_id: String,
    /// The name of the model for people.
    pub model_name: String,
}

/// A tool that the agent can use.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct SynapsTool {
    /// The name by which the agent calls the tool.
    pub name: String,
    /// The description that the model gets.
    pub description: String,
    /// The JSON schema of the tool's input.
    pub input_schema: Value,
}
