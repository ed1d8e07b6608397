//! The error codes of MCP, and nearly all error texts of this door.

use serde::Serialize;
use serde_json::{Value, json};

use super::era::{MODERN_VERSION, supported_versions};
use super::{MAX_FRAME_BYTES, MAX_FRAME_VALUES, MAX_OPEN_REQUESTS, MAX_SUBSCRIPTIONS};

/// How many bytes of a client's own text an error quotes.
const QUOTED_BYTES: usize = 200;

const PARSE_ERROR: i64 = -32700;
const INVALID_REQUEST: i64 = -32600;
pub(super) const METHOD_NOT_FOUND: i64 = -32601;
const INVALID_PARAMS: i64 = -32602;
const INTERNAL_ERROR: i64 = -32603;
const HEADER_MISMATCH: i64 = -32020;
const UNSUPPORTED_VERSION: i64 = -32022;

/// The error member of an answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Error {
    pub(super) code: i64,
    pub(super) message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) data: Option<Value>,
}

fn error(code: i64, message: String) -> Error {
    Error { code, message, data: None }
}

pub(super) fn parse_error(reason: &str) -> Error {
    error(PARSE_ERROR, format!("Parse error: {}", quoted(reason)))
}

pub(super) fn oversize() -> Error {
    invalid_request(&format!("the frame is longer than {MAX_FRAME_BYTES} bytes"))
}

pub(super) fn too_many_values() -> Error {
    invalid_request(&format!("the frame has more than {MAX_FRAME_VALUES} JSON values"))
}

pub(super) fn invalid_request(reason: &str) -> Error {
    error(INVALID_REQUEST, format!("Invalid request: {}", quoted(reason)))
}

pub(super) fn not_opened(method: &str) -> Error {
    let method = quoted(method);
    invalid_request(&format!(
        "send `initialize` before {method}, or name {MODERN_VERSION} in `_meta` of each request"
    ))
}

pub(super) fn method_not_found(method: &str) -> Error {
    error(METHOD_NOT_FOUND, format!("Method not found: {}", quoted(method)))
}

pub(super) fn invalid_params(reason: &str) -> Error {
    error(INVALID_PARAMS, format!("Invalid params: {}", quoted(reason)))
}

pub(super) fn unknown_tool(name: &str) -> Error {
    invalid_params(&format!("there is no tool {:?}; tools/list names them", quoted(name)))
}

pub(super) fn header_mismatch(reason: &str) -> Error {
    error(HEADER_MISMATCH, format!("Header mismatch: {}", quoted(reason)))
}

pub(super) fn unsupported_version(requested: &str) -> Error {
    let requested = quoted(requested);
    let data = json!({"supported": supported_versions(), "requested": requested});
    Error {
        data: Some(data),
        ..error(UNSUPPORTED_VERSION, format!("Unsupported protocol version: {requested:?}"))
    }
}

pub(super) fn too_many_requests() -> Error {
    let limit = format!("{MAX_OPEN_REQUESTS} requests are unanswered, which is the limit; wait for one");
    error(INTERNAL_ERROR, limit)
}

pub(super) fn too_many_subscriptions() -> Error {
    error(INTERNAL_ERROR, format!("{MAX_SUBSCRIPTIONS} subscriptions are open, which is the limit; end one"))
}

/// A client's text for an error: not longer than [`QUOTED_BYTES`].
pub(super) fn quoted(text: &str) -> String {
    crate::truncate::truncate_bytes(text.to_owned(), QUOTED_BYTES)
}
