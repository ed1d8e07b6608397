//! Frames to the client.

use parlor_vocab::{ToolInfo, ToolOutput};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::LIST_TTL;
use super::code::Error;
use super::era::Era;
use crate::jsonrpc::RequestId;

/// The key of a subscription's id in `_meta`.
pub(super) const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";

#[derive(Serialize)]
struct Frame<'a, T> {
    jsonrpc: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a RequestId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    method: Option<&'a str>,
    #[serde(flatten)]
    body: Body<'a, T>,
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum Body<'a, T> {
    Params(&'a T),
    Result(&'a T),
    Error(&'a Error),
}

/// The answer to request `id`. A modern one says that it is complete and who sends it.
pub(super) fn result(id: &RequestId, era: Era, mut result: Map<String, Value>) -> Vec<u8> {
    if era == Era::Modern {
        result.insert("resultType".to_owned(), "complete".into());
        let meta = result.entry("_meta").or_insert_with(|| json!({}));
        meta["io.modelcontextprotocol/serverInfo"] = server_info();
    }
    encode(Some(id), None, Body::Result(&result))
}

/// The answer to `tools/list`, whose list is not built again.
pub(super) fn tool_list(id: &RequestId, era: Era, tools: &RawValue) -> Vec<u8> {
    #[derive(Serialize)]
    struct ToolList<'a> {
        tools: &'a RawValue,
        #[serde(flatten)]
        others: Map<String, Value>,
    }
    let mut others = Map::new();
    if era == Era::Modern {
        others = cacheable();
        others.insert("resultType".to_owned(), "complete".into());
        others.insert("_meta".to_owned(), json!({"io.modelcontextprotocol/serverInfo": server_info()}));
    }
    encode(Some(id), None, Body::Result(&ToolList { tools, others }))
}

/// How long the client may keep an answer. The tools of a server depend on its settings, not on the client.
pub(super) fn cacheable() -> Map<String, Value> {
    let mut hints = Map::new();
    hints.insert("ttlMs".to_owned(), json!(LIST_TTL.as_millis()));
    hints.insert("cacheScope".to_owned(), "private".into());
    hints
}

pub(super) fn server_info() -> Value {
    json!({"name": "parlor", "title": "Parlor", "version": env!("CARGO_PKG_VERSION")})
}

/// The error that answers request `id`, or a frame whose id could not be read.
pub(super) fn error(id: Option<&RequestId>, error: &Error) -> Vec<u8> {
    encode(id, None, Body::<()>::Error(error))
}

pub(super) fn notification(method: &str, params: &impl Serialize) -> Vec<u8> {
    encode(None, Some(method), Body::Params(params))
}

fn encode<T: Serialize>(id: Option<&RequestId>, method: Option<&str>, body: Body<'_, T>) -> Vec<u8> {
    serde_json::to_vec(&Frame { jsonrpc: "2.0", id, method, body })
        .expect("wire types have string keys and no failing serializer")
}

/// A tool as `tools/list` shows it.
pub(super) fn listed_tool(tool: &ToolInfo) -> Value {
    let schema =
        |text: &str| serde_json::from_str::<Value>(text).unwrap_or_else(|_| json!({"type": "object"}));
    let mut listed = json!({"name": tool.name});
    if let Some(title) = &tool.title {
        listed["title"] = title.as_str().into();
    }
    listed["description"] = tool.description.as_str().into();
    listed["inputSchema"] = schema(&tool.schema);
    if let Some(output) = &tool.output_schema {
        listed["outputSchema"] = schema(output);
    }
    listed["annotations"] = json!({
        "readOnlyHint": tool.annotations.read_only,
        "destructiveHint": tool.annotations.destructive,
        "idempotentHint": tool.annotations.idempotent,
        "openWorldHint": tool.annotations.open_world,
    });
    listed
}

/// The result of a call: the text that a tool returned, and its images.
pub(super) fn tool_output(output: &ToolOutput) -> Map<String, Value> {
    let mut content = Vec::new();
    if !output.text.is_empty() || output.images.is_empty() {
        content.push(json!({"type": "text", "text": output.text}));
    }
    content.extend(output.images.iter().map(|image| {
        let data = base64_simd::STANDARD.encode_to_string(&image.bytes);
        json!({"type": "image", "data": data, "mimeType": image.mime})
    }));
    content.extend(output.resources.iter().map(|resource| {
        let name = resource.name.as_deref().unwrap_or(&resource.uri);
        json!({"type": "resource_link", "uri": resource.uri, "name": name})
    }));
    let mut result = call_result(content, false);
    if let Some(Ok(structured @ Value::Object(_))) = output.structured.as_deref().map(serde_json::from_str) {
        result.insert("structuredContent".to_owned(), structured);
    }
    result
}

/// The result of a call that failed in a way that the model can mend. It has no structured content: clients would check it
/// against the schema of results and hide the error.
pub(super) fn failed_call(message: &str) -> Map<String, Value> {
    call_result(vec![json!({"type": "text", "text": message})], true)
}

/// The result of a call with structured content, which older clients read as text.
pub(super) fn structured(value: Value) -> Map<String, Value> {
    let mut result = call_result(vec![json!({"type": "text", "text": value.to_string()})], false);
    result.insert("structuredContent".to_owned(), value);
    result
}

fn call_result(content: Vec<Value>, is_error: bool) -> Map<String, Value> {
    let mut result = Map::new();
    result.insert("content".to_owned(), content.into());
    result.insert("isError".to_owned(), is_error.into());
    result
}
