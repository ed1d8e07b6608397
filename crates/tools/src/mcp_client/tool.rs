//! A tool of a server, as agents call it.

use std::sync::Arc;

use async_trait::async_trait;
use parlor_vocab::{Failure, FailureCode, ToolAnnotations, ToolOutput};
use serde_json::{Value, json};

use super::content::output;
use super::listing::ServerTool;
use super::naming::tool_name;
use super::server::McpServer;
use crate::failure::{failure, invalid};
use crate::input::INPUT_BYTES;
use crate::tool::{FileChanges, Tool, ToolContext};

/// A tool of a server.
pub(super) struct McpTool {
    server: Arc<McpServer>,
    name: String,
    tool: Arc<ServerTool>,
}

impl McpTool {
    pub(super) fn new(server: &Arc<McpServer>, tool: &Arc<ServerTool>) -> Self {
        let name = tool_name(&server.config().name, &tool.name);
        Self { server: Arc::clone(server), name, tool: Arc::clone(tool) }
    }
}

#[async_trait]
impl Tool for McpTool {
    fn name(&self) -> &str {
        &self.name
    }

    fn title(&self) -> Option<&str> {
        self.tool.title.as_deref()
    }

    fn description(&self) -> &str {
        &self.tool.description
    }

    fn schema(&self) -> Value {
        serde_json::from_str(&self.tool.schema).unwrap_or_else(|_| json!({"type": "object"}))
    }

    fn annotations(&self) -> ToolAnnotations {
        self.tool.annotations
    }

    /// A server's word that a tool changes nothing does not switch off undo.
    fn file_changes(&self) -> FileChanges {
        FileChanges::Searched
    }

    async fn call(&self, input: &str, context: &ToolContext) -> Result<ToolOutput, Failure> {
        if input.len() > INPUT_BYTES {
            let message =
                format!("an input of {} bytes is longer than the limit of {INPUT_BYTES}", input.len());
            return Err(failure(FailureCode::TooLarge, message));
        }
        let input = if input.trim().is_empty() { "{}" } else { input };
        let Ok(Value::Object(arguments)) = serde_json::from_str(input) else {
            return Err(invalid(format!("the input of {} must be a JSON object", self.name)));
        };
        let result = self.server.call(&self.tool.name, arguments, context).await?;
        let output = output(&result);
        match result.is_error {
            Some(true) => Err(failure(FailureCode::ToolError, output.text)),
            _ => Ok(output),
        }
    }
}
