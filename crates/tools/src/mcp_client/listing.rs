//! What parlor keeps of a server's list of tools.

use std::sync::Arc;

use parlor_vocab::ToolAnnotations;
use rmcp::model::Tool as ListedTool;
use serde_json::{Value, json};

use super::naming::harmless;
use super::{MCP_DESCRIPTION_BYTES, MCP_LIST_BYTES, MCP_SCHEMA_BYTES, MCP_SERVER_TOOLS};

/// How deep a schema may be nested. Providers refuse deeper ones, with all other tools of the request.
const SCHEMA_DEPTH: usize = 32;

/// How many tools that are left out are named.
const NAMED_OMISSIONS: usize = 10;

/// How many characters of a title are kept.
const TITLE_BYTES: usize = 200;

/// A tool of a server with the fields that parlor uses.
pub(super) struct ServerTool {
    /// The server's own name of the tool.
    pub(super) name: String,
    pub(super) title: Option<String>,
    pub(super) description: String,
    /// The schema as text, which takes less memory than a tree of values.
    pub(super) schema: String,
    pub(super) annotations: ToolAnnotations,
}

/// The tools of one server, within the limits.
#[derive(Default)]
pub(super) struct ToolList {
    pub(super) tools: Vec<Arc<ServerTool>>,
    /// Sentences about tools that are left out.
    pub(super) omissions: Vec<String>,
    omitted: usize,
    bytes: usize,
}

impl ToolList {
    /// Adds a page of tools, of those that `chosen` allows. Returns whether there is room for more.
    pub(super) fn extend(&mut self, page: Vec<ListedTool>, chosen: Option<&[String]>) -> bool {
        let is_chosen =
            |tool: &ListedTool| chosen.is_none_or(|chosen| chosen.iter().any(|name| *name == tool.name));
        for listed in page.into_iter().filter(is_chosen) {
            let tool = match ServerTool::new(&listed) {
                Ok(tool) => tool,
                Err(reason) => {
                    self.omit(&listed.name, &reason);
                    continue;
                }
            };
            let bytes = tool.bytes();
            if self.bytes + bytes > MCP_LIST_BYTES || self.tools.len() == MCP_SERVER_TOOLS {
                let reason = format!(
                    "the list of the server has more than {MCP_LIST_BYTES} bytes or {MCP_SERVER_TOOLS} tools; `tools` in the \
                     settings chooses some of them"
                );
                self.omit(&tool.name, &reason);
                return false;
            }
            self.bytes += bytes;
            self.tools.push(Arc::new(tool));
        }
        true
    }

    fn omit(&mut self, name: &str, reason: &str) {
        self.omitted += 1;
        if self.omitted <= NAMED_OMISSIONS {
            self.omissions.push(format!("The tool {:?} is left out: {reason}.", harmless(name, 128)));
        } else if self.omitted == NAMED_OMISSIONS + 1 {
            self.omissions.push("More tools are left out.".to_owned());
        }
    }
}

impl ServerTool {
    /// The tool, or why models cannot be shown it.
    fn new(listed: &ListedTool) -> Result<Self, String> {
        let too_large =
            || format!("its schema has more than {MCP_SCHEMA_BYTES} bytes or {SCHEMA_DEPTH} levels");
        let mut schema = Value::Object((*listed.input_schema).clone());
        // Providers want an object with properties, whatever else the schema says.
        schema["type"] = "object".into();
        if !schema["properties"].is_object() {
            schema["properties"] = json!({});
        }
        let text = schema.to_string();
        if text.len() > MCP_SCHEMA_BYTES || depth(&schema) > SCHEMA_DEPTH {
            return Err(too_large());
        }
        let annotations = listed.annotations.as_ref();
        let hint = |hint: fn(&rmcp::model::ToolAnnotations) -> Option<bool>, default: bool| {
            annotations.and_then(hint).unwrap_or(default)
        };
        Ok(Self {
            name: listed.name.to_string(),
            title: listed.title.as_deref().map(|title| harmless(title, TITLE_BYTES)),
            description: harmless(listed.description.as_deref().unwrap_or_default(), MCP_DESCRIPTION_BYTES),
            schema: text,
            annotations: ToolAnnotations {
                read_only: hint(|hints| hints.read_only_hint, false),
                destructive: hint(|hints| hints.destructive_hint, true),
                idempotent: hint(|hints| hints.idempotent_hint, false),
                open_world: hint(|hints| hints.open_world_hint, true),
            },
        })
    }

    fn bytes(&self) -> usize {
        let title = self.title.as_ref().map_or(0, String::len);
        self.name.len() + title + self.description.len() + self.schema.len()
    }
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(members) => 1 + members.values().map(depth).max().unwrap_or(0),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(name: &str, description: &str, padding: usize) -> ListedTool {
        serde_json::from_value(json!({
            "name": name,
            "description": description,
            "inputSchema": {"type": "object", "x": "y".repeat(padding)},
        }))
        .unwrap()
    }

    #[test]
    fn a_list_has_a_limit_in_bytes_and_large_schemas_are_not_kept() {
        let mut list = ToolList::default();
        assert!(list.extend(vec![listed("a", "b", MCP_SCHEMA_BYTES), listed("c", "d", 0)], None));
        assert_eq!((list.tools.len(), list.omissions.len()), (1, 1));
        let pages = (0..MCP_LIST_BYTES / (MCP_SCHEMA_BYTES / 2) + 10)
            .take_while(|number| {
                list.extend(vec![listed(&format!("t{number}"), "", MCP_SCHEMA_BYTES - 100)], None)
            })
            .count();
        assert!(pages <= MCP_LIST_BYTES / (MCP_SCHEMA_BYTES - 100), "{pages}");
        assert!(list.omissions[1].contains("more than"), "{:?}", list.omissions);
        assert!(list.bytes <= MCP_LIST_BYTES);
    }

    #[test]
    fn a_few_tools_that_are_left_out_are_named() {
        let mut list = ToolList::default();
        list.extend(
            (0..500).map(|number| listed(&format!("t{number}"), "", MCP_SCHEMA_BYTES)).collect(),
            None,
        );
        assert_eq!((list.tools.len(), list.omissions.len()), (0, NAMED_OMISSIONS + 1));
    }
}
