//! Encodes typed frames: their envelope, and the `error` frame.

use parlor_vocab::Timestamp;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::code::FrameError;
use super::wire::Typed;

/// Encodes a frame as JSON.
pub(super) fn bytes(frame: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(frame).expect("frames have string keys and memory does not fail")
}

/// A typed frame with the time `now`.
pub(super) fn typed(
    kind: &str,
    id: Option<String>,
    session_id: Option<String>,
    payload: Map<String, Value>,
    now: Timestamp,
) -> Vec<u8> {
    bytes(&Typed { kind: kind.to_owned(), id, session_id, timestamp: Some(now.0), payload })
}

/// The `error` frame that answers a client's frame.
pub(super) fn error(error: FrameError, now: Timestamp) -> Vec<u8> {
    let mut payload = object(json!({"code": error.code, "message": error.message}));
    if let Some(key) = error.key {
        payload.insert("key".to_owned(), Value::String(key));
    }
    typed("error", None, None, payload, now)
}

/// The members of a JSON object; empty if `value` is not an object.
pub(super) fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(members) => members,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Map::new(),
    }
}
