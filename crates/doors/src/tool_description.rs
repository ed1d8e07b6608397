//! A tool, as the doors list it for their clients.

use serde_json::Value;

/// A tool that agents can call.
#[derive(Clone, Debug)]
pub struct ToolDescription {
    /// The name in tool calls.
    pub name: String,
    /// What the tool does, for models and people.
    pub description: String,
    /// The JSON schema of the tool's input.
    pub schema: Value,
}
