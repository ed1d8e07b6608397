//! Frames as bytes.

use parlor_vocab::Timestamp;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::code::FrameError;
use super::protocol::Typed;

/// The bytes of a frame.
pub(super) fn bytes(frame: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(frame).expect("frames have string keys and memory does not fail")
}

/// A typed frame of this moment.
pub(super) fn typed(
    kind: &str,
    id: Option<String>,
    session_id: Option<String>,
    payload: Map<String, Value>,
    now: Timestamp,
) -> Vec<u8> {
    bytes(&Typed { kind: kind.to_owned(), id, session_id, timestamp: Some(now.0), payload })
}

/// What is wrong with the frame that was just read.
pub(super) fn error(flaw: FrameError, now: Timestamp) -> Vec<u8> {
    let mut payload = object(json!({"code": flaw.code, "message": flaw.message}));
    if let Some(key) = flaw.key {
        payload.insert("key".to_owned(), Value::String(key));
    }
    typed("error", None, None, payload, now)
}

/// The members of an object.
pub(super) fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(members) => members,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Map::new(),
    }
}
