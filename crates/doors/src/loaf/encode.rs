//! Encodes answers and events.

use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::code::FrameError;

const BEFORE_ID: &[u8] = br#"{"jsonrpc":"2.0","id":"#;

/// The successful answer to the request with this id.
pub(super) fn result(id: &str, result: &impl Serialize) -> Vec<u8> {
    answer(id, br#","result":"#, result)
}

/// The error that answers the request with this id.
pub(super) fn error(id: &str, error: &FrameError) -> Vec<u8> {
    answer(id, br#","error":"#, error)
}

fn answer(id: &str, member: &[u8], value: &impl Serialize) -> Vec<u8> {
    let mut frame = Vec::with_capacity(128);
    frame.extend_from_slice(BEFORE_ID);
    frame.extend_from_slice(id.as_bytes());
    frame.extend_from_slice(member);
    write(&mut frame, value);
    frame.push(b'}');
    frame
}

/// The params of an event.
#[derive(Serialize)]
struct Params<'a> {
    r#type: &'a str,
    timestamp: String,
    payload: &'a Value,
}

/// The params of an event without its number, in the form that is stored for replay.
pub(super) fn event_params(kind: &str, timestamp: String, payload: &Value) -> Box<RawValue> {
    serde_json::value::to_raw_value(&Params { r#type: kind, timestamp, payload })
        .expect("values have string keys and memory does not fail")
}

/// The frame of an event, with its number if the client has enabled extensions.
pub(super) fn event_frame(event: &RawValue, sequence: Option<u64>) -> Vec<u8> {
    let event = event.get().as_bytes();
    let mut frame = Vec::with_capacity(event.len() + 80);
    frame.extend_from_slice(br#"{"jsonrpc":"2.0","method":"event","params":"#);
    match (sequence, event.split_last()) {
        (Some(sequence), Some((_, open))) => {
            frame.extend_from_slice(open);
            frame.extend_from_slice(br#","sequence":"#);
            write(&mut frame, &sequence);
            frame.push(b'}');
        }
        _ => frame.extend_from_slice(event),
    }
    frame.push(b'}');
    frame
}

fn write(frame: &mut Vec<u8>, value: &impl Serialize) {
    serde_json::to_writer(frame, value).expect("wire types have string keys and memory does not fail");
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn members_have_a_fixed_order() {
        assert_eq!(
            result("\"a\"", &json!({"ok": true})),
            br#"{"jsonrpc":"2.0","id":"a","result":{"ok":true}}"#
        );
        let event = event_params("t", "now".to_owned(), &json!({"x": "\u{e4}"}));
        let plain = r#"{"jsonrpc":"2.0","method":"event","params":{"type":"t","timestamp":"now","payload":{"x":"ä"}}}"#;
        assert_eq!(event_frame(&event, None), plain.as_bytes());
        let numbered = plain.replace("}}}", r#"},"sequence":7}}"#);
        assert_eq!(event_frame(&event, Some(7)), numbered.as_bytes());
    }
}
