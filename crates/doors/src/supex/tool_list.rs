//! Writes the result of `tools/list` from the table in `tool.rs`, in the form that MCP uses.

use std::borrow::Cow;

use parlor_vocab::ToolInfo;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::tool::{ArgumentType, TOOLS, Tool};

/// Result of `tools/list`.
#[derive(Serialize)]
pub(super) struct ToolList<'a> {
    tools: Vec<ToolEntry<'a>>,
    success: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ToolEntry<'a> {
    name: Cow<'a, str>,
    description: Cow<'a, str>,
    input_schema: Box<RawValue>,
}

impl<'a> ToolList<'a> {
    /// The tools of the bridge, then parlor's own.
    pub(super) fn new(own: &'a [ToolInfo]) -> Self {
        let from_bridge_hello = TOOLS.iter().map(|tool| ToolEntry {
            name: tool.name.into(),
            description: tool.description.into(),
            input_schema: raw(schema(tool).to_string()),
        });
        let own = own.iter().map(|tool| ToolEntry {
            name: tool.name.as_str().into(),
            description: tool.description.as_str().into(),
            input_schema: raw(tool.schema.clone()),
        });
        Self { tools: from_bridge_hello.chain(own).collect(), success: true }
    }
}

fn raw(json: String) -> Box<RawValue> {
    RawValue::from_string(json).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

fn schema(tool: &Tool) -> Value {
    let kind = |argument_type: ArgumentType| match argument_type {
        ArgumentType::Text | ArgumentType::Path | ArgumentType::Name => "string",
        ArgumentType::Number => "integer",
        ArgumentType::Flag => "boolean",
        ArgumentType::List => "array",
    };
    let properties: Map<String, Value> = tool
        .arguments
        .iter()
        .map(|argument| (argument.name.to_owned(), json!({"type": kind(argument.argument_type)})))
        .collect();
    let required: Vec<&str> =
        tool.arguments.iter().filter(|argument| argument.is_required).map(|argument| argument.name).collect();
    json!({"type": "object", "properties": properties, "required": required})
}

#[cfg(test)]
mod tests {
    use parlor_vocab::ToolAnnotations;

    use super::*;

    #[test]
    fn every_tool_is_listed_with_a_schema() {
        let own = [ToolInfo {
            name: "shell".to_owned(),
            title: None,
            description: "Runs.".to_owned(),
            schema: r#"{"type":"object"}"#.to_owned(),
            output_schema: None,
            annotations: ToolAnnotations::default(),
        }];
        let list = serde_json::to_value(ToolList::new(&own)).unwrap();
        let tools = list["tools"].as_array().unwrap();
        assert_eq!(tools.len(), TOOLS.len() + 1);
        assert!(tools.iter().all(|tool| tool["inputSchema"]["type"] == "object"));
        assert!(tools.iter().all(|tool| tool["description"].as_str().unwrap().ends_with('.')));
        assert_eq!(tools[1]["inputSchema"]["required"], json!(["code"]));
    }
}
