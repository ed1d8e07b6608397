//! The search for tools that a model is not shown, and the call of a tool that it found.

use std::sync::Arc;

use async_trait::async_trait;
use parlor_vocab::{Failure, ToolAnnotations, ToolOutput, truncate_chars};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{MCP_FOUND_TOOLS, MCP_SHOWN_TOOLS};
use crate::failure::invalid;
use crate::input::decode;
use crate::tool::{PassedCall, Tool, ToolContext};

/// The tools that a model is shown of those that are not parlor's own. If there are too many, the others are found by a search.
pub fn shown_tools(mut tools: Vec<Arc<dyn Tool>>) -> Vec<Arc<dyn Tool>> {
    if tools.len() > MCP_SHOWN_TOOLS {
        let hidden: HiddenTools = tools.split_off(MCP_SHOWN_TOOLS - 2).into();
        tools.push(Arc::new(SearchTool::new(Arc::clone(&hidden))));
        tools.push(Arc::new(CallFoundTool::new(hidden)));
    }
    tools
}

/// The tools that can be found.
pub(super) type HiddenTools = Arc<[Arc<dyn Tool>]>;

/// Finds tools by words in their names and descriptions.
pub(super) struct SearchTool {
    hidden: HiddenTools,
    description: String,
}

impl SearchTool {
    pub(super) fn new(hidden: HiddenTools) -> Self {
        let description = format!(
            "Finds tools of MCP servers by words in their names and descriptions. There are {} tools beside those that you \
             see. Call what you find with mcp_call.",
            hidden.len()
        );
        Self { hidden, description }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SearchInput {
    query: String,
}

#[async_trait]
impl Tool for SearchTool {
    fn name(&self) -> &str {
        "mcp_search"
    }

    fn description(&self) -> &str {
        &self.description
    }

    fn schema(&self) -> Value {
        json!({
            "type": "object",
            "properties": {"query": {"type": "string", "description": "Words to look for; tools with more of them come first."}},
            "required": ["query"],
            "additionalProperties": false,
        })
    }

    fn annotations(&self) -> ToolAnnotations {
        ToolAnnotations::READ_ONLY
    }

    fn is_parallel(&self) -> bool {
        true
    }

    async fn call(&self, input: &str, _: &ToolContext) -> Result<ToolOutput, Failure> {
        let SearchInput { query } = decode(self, input)?;
        let query = query.to_lowercase();
        let words: Vec<&str> = query.split_whitespace().collect();
        let score = |tool: &Arc<dyn Tool>| {
            let (name, text) = (tool.name().to_lowercase(), tool.description().to_lowercase());
            let points =
                |word: &&str| 2 * usize::from(name.contains(*word)) + usize::from(text.contains(*word));
            words.iter().map(points).sum::<usize>()
        };
        let mut found: Vec<(usize, &Arc<dyn Tool>)> =
            self.hidden.iter().map(|tool| (score(tool), tool)).filter(|(score, _)| *score > 0).collect();
        found.sort_by_key(|(score, _)| std::cmp::Reverse(*score));
        let shown: Vec<Value> = found
            .iter()
            .take(MCP_FOUND_TOOLS)
            .map(|(_, tool)| {
                let description = truncate_chars(tool.description(), 500);
                json!({"tool": tool.name(), "description": description, "input": tool.schema()})
            })
            .collect();
        let result = json!({"found": found.len(), "tools": shown});
        Ok(ToolOutput::text(result.to_string()))
    }
}

/// Calls a tool that the search found.
pub(super) struct CallFoundTool {
    hidden: HiddenTools,
}

impl CallFoundTool {
    pub(super) fn new(hidden: HiddenTools) -> Self {
        Self { hidden }
    }

    fn found(&self, input: &str) -> Result<PassedCall, Failure> {
        let CallInput { tool, arguments } = decode(self, input)?;
        let Some(found) = self.hidden.iter().find(|hidden| hidden.name() == tool) else {
            return Err(invalid(format!("there is no tool `{tool}`; mcp_search finds names")));
        };
        Ok(PassedCall { tool: Arc::clone(found), input: Value::Object(arguments).to_string() })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CallInput {
    tool: String,
    #[serde(default)]
    arguments: serde_json::Map<String, Value>,
}

#[async_trait]
impl Tool for CallFoundTool {
    fn name(&self) -> &str {
        "mcp_call"
    }

    fn description(&self) -> &str {
        "Calls a tool that mcp_search found."
    }

    fn schema(&self) -> Value {
        json!({
            "type": "object",
            "properties": {
                "tool": {"type": "string", "description": "The tool's name."},
                "arguments": {"type": "object", "description": "The tool's input."},
            },
            "required": ["tool"],
            "additionalProperties": false,
        })
    }

    fn passes_on(&self, input: &str) -> Result<Option<PassedCall>, Failure> {
        self.found(input).map(Some)
    }

    async fn call(&self, input: &str, context: &ToolContext) -> Result<ToolOutput, Failure> {
        let PassedCall { tool, input } = self.found(input)?;
        tool.call(&input, context).await
    }
}
