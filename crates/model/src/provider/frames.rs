//! What the frames of the chat form, and of Anthropic's, say beyond what genai makes of them.
//!
//! - genai fills a list up to a call's number, whatever that is, and leaves out calls that have none. Here the
//!   calls of the chat form are read from the frames.
//! - Many servers leave out the frame that ends a stream. Here the reason is noted for which an answer has ended, and
//!   what it took.
//!
//! Deliberately absent: text and thoughts, which genai passes on. So most frames are only looked through.

use std::sync::{Mutex, MutexGuard, PoisonError};

use genai::chat::{ChatFrameSink, FrameCtx, RawFrameRef, StopReason};
use serde_json::Value;

use super::calls::{CallPiece, Calls};
use super::{Key, ProviderError};

/// What was noted of an answer.
#[derive(Debug, Default)]
pub(super) struct Noted {
    pub(super) calls: Calls,
    /// Why it has ended, if it has.
    pub(super) stop: Option<StopReason>,
    pub(super) usage: Option<genai::chat::Usage>,
    /// Why it cannot be taken.
    pub(super) error: Option<ProviderError>,
}

/// Where it is noted. genai shows each frame here before it passes on what it makes of it.
#[derive(Debug)]
pub(super) struct Frames(Mutex<Noted>);

impl Frames {
    /// Of an answer to whoever asked with this key.
    pub(super) fn hiding(key: Option<Key>) -> Self {
        Self(Mutex::new(Noted { calls: Calls::hiding(key), ..Noted::default() }))
    }

    /// A plain mutex: whoever reads an answer also shows its frames, so nobody waits.
    pub(super) fn noted(&self) -> MutexGuard<'_, Noted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ChatFrameSink for Frames {
    fn on_frame(&self, _: &FrameCtx, frame: RawFrameRef<'_>) {
        if let Some("message_start" | "message_delta") = frame.event {
            if let Some(frame) = frame.json() {
                self.noted().take_message(&frame);
            }
            return;
        }
        let has_calls = says(frame.data, "\"tool_calls\"", '[');
        let has_more =
            has_calls || says(frame.data, "\"finish_reason\"", '"') || says(frame.data, "\"usage\"", '{');
        if let Some(mut frame) = has_more.then(|| frame.json()).flatten() {
            self.noted().take(&mut frame);
        }
    }
}

impl Noted {
    fn take(&mut self, frame: &mut Value) {
        if let Some(usage) = frame.get_mut("usage").filter(|usage| usage.is_object()) {
            self.usage = serde_json::from_value(usage.take()).ok();
        }
        let Some(choice) = frame.pointer_mut("/choices/0") else { return };
        if let Some(Value::String(reason)) = choice.get("finish_reason") {
            self.stop = Some(StopReason::from(reason.clone()));
        }
        let Some(Value::Array(calls)) = choice.pointer_mut("/delta/tool_calls") else { return };
        for call in calls {
            if self.error.is_none() {
                self.error = self.calls.add(piece(call)).err();
            }
        }
    }

    /// A frame of Anthropic's about a message as a whole.
    fn take_message(&mut self, frame: &Value) {
        if let Some(Value::String(reason)) = frame.pointer("/delta/stop_reason") {
            self.stop = Some(StopReason::from(reason.clone()));
        }
        let Some(told) = frame.pointer("/message/usage").or_else(|| frame.get("usage")) else { return };
        let count = |name: &str| told.get(name)?.as_i64().and_then(|count| i32::try_from(count).ok());
        let usage = self.usage.get_or_insert_default();
        if let Some(fresh) = count("input_tokens") {
            let (read, write) = (count("cache_read_input_tokens"), count("cache_creation_input_tokens"));
            let cached = read.unwrap_or(0).saturating_add(write.unwrap_or(0));
            usage.prompt_tokens = Some(fresh.saturating_add(cached));
            let details = usage.prompt_tokens_details.get_or_insert_default();
            (details.cached_tokens, details.cache_creation_tokens) = (read, write);
        }
        usage.completion_tokens = count("output_tokens").or(usage.completion_tokens);
    }
}

fn piece(call: &mut Value) -> CallPiece {
    let text = |value: Option<&mut Value>| match value.map(Value::take) {
        Some(Value::String(text)) => text,
        // Some send the input itself in the place of its text.
        Some(value @ Value::Object(_)) => value.to_string(),
        Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_)) | None => String::new(),
    };
    CallPiece {
        number: call.get("index").and_then(Value::as_u64),
        id: text(call.get_mut("id")),
        tool: text(call.pointer_mut("/function/name")),
        input: text(call.pointer_mut("/function/arguments")),
    }
}

/// Whether `member` has a value in `json` that begins with `first`. Within a text its quotes would be escaped.
fn says(json: &str, member: &str, first: char) -> bool {
    json.match_indices(member).any(|(place, found)| {
        let rest = json.get(place + found.len()..).unwrap_or_default();
        rest.trim_start().strip_prefix(':').is_some_and(|value| value.trim_start().starts_with(first))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn noted(frames: &[Value]) -> Noted {
        let mut noted = Noted::default();
        frames.iter().for_each(|frame| noted.take(&mut frame.clone()));
        noted
    }

    fn delta(calls: &Value) -> Value {
        json!({"choices": [{"index": 0, "delta": {"tool_calls": calls}, "finish_reason": null}]})
    }

    #[test]
    fn a_frame_is_read_only_if_it_says_more() {
        let text = r#"{"choices":[{"delta":{"content":"\"usage\":{\"tool_calls\":["},"finish_reason":null}],"usage":null}"#;
        assert!(!says(text, "\"usage\"", '{') && !says(text, "\"tool_calls\"", '['));
        assert!(!says(text, "\"finish_reason\"", '"'));
        assert!(says(r#"{"usage": null, "x": {"usage" : {}}}"#, "\"usage\"", '{'));
        assert!(says(r#"{"finish_reason": "stop"}"#, "\"finish_reason\"", '"'));
    }

    #[test]
    fn calls_are_read_however_they_are_written() {
        let mut noted = noted(&[
            delta(&json!([{"index": 7, "id": "a", "function": {"name": "x", "arguments": "{\"n\""}}])),
            delta(&json!([{"index": 7, "id": null, "function": {"arguments": ":1}"}}])),
            delta(&json!([{"id": "b", "function": {"name": "y", "arguments": {"n": 2}}}])),
            delta(&json!([{"index": u64::MAX, "function": {"name": 5}}, "nothing", {"index": -1}])),
        ]);
        let made = noted.calls.made();
        let texts: Vec<&str> = made.iter().map(|call| call.input.as_str()).collect();
        assert_eq!(texts[..2], ["{\"n\":1}", "{\"n\":2}"]);
        assert_eq!((made[0].id.as_str(), made[1].tool.as_str()), ("a", "y"));
        assert!(noted.error.is_none());
    }

    #[test]
    fn why_it_ended_and_what_it_took_is_noted() {
        let noted = noted(&[
            json!({"choices": [{"delta": {}, "finish_reason": "length"}]}),
            json!({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}}),
        ]);
        assert!(matches!(noted.stop, Some(StopReason::MaxTokens(_))));
        assert_eq!(noted.usage.unwrap().prompt_tokens, Some(3));
    }
}
