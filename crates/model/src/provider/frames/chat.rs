//! Frames of the chat form.

use genai::chat::{RawFrameRef, StopReason, Usage};
use serde_json::Value;

use super::super::trouble::error_in;
use super::{CallPiece, Noted, ProviderError};

/// Notes what a frame says of calls, by way of refusing, of the end and of what the answer took.
pub(super) fn note(noted: &mut Noted, frame: RawFrameRef<'_>) {
    noted.names_thoughts = noted.names_thoughts || says(frame.data, "\"reasoning_content\"", '"');
    let has_more = says(frame.data, "\"tool_calls\"", '[')
        || says(frame.data, "\"refusal\"", '"')
        || says(frame.data, "\"finish_reason\"", '"')
        || says(frame.data, "\"usage\"", '{');
    if let Some(mut frame) = has_more.then(|| frame.json()).flatten() {
        take(noted, &mut frame);
    }
}

fn take(noted: &mut Noted, frame: &mut Value) {
    // Some tell it with each frame, others twice at the end: the last that says something counts.
    if let Some(usage) = frame.get_mut("usage").filter(|usage| usage.is_object())
        && let Ok(usage) = serde_json::from_value::<Usage>(usage.take())
        && (noted.usage.is_none() || usage.prompt_tokens.is_some_and(|count| count > 0))
    {
        noted.usage = Some(usage);
    }
    if frame.pointer("/choices/0/finish_reason").is_some_and(|reason| reason == "error") {
        noted.error = error_in(frame).or_else(|| error_in(&frame["choices"][0])).or_else(|| Some(failed()));
        return;
    }
    let Some(choice) = frame.pointer_mut("/choices/0") else { return };
    if let Some(Value::String(reason)) = choice.get("finish_reason") {
        noted.stop = Some(StopReason::from(reason.clone()));
    }
    if let Some(Value::String(more)) = choice.pointer("/delta/refusal") {
        noted.refusal.push_str(more);
    }
    if let Some(Value::Array(calls)) = choice.pointer_mut("/delta/tool_calls") {
        calls.iter_mut().for_each(|call| noted.add(piece(call)));
    }
}

fn failed() -> ProviderError {
    ProviderError::broken("the answer ended with an error, and no reason given")
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
        item: String::new(),
        id: text(call.get_mut("id")),
        tool: text(call.pointer_mut("/function/name")),
        input: text(call.pointer_mut("/function/arguments")),
        first_input: String::new(),
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
        frames.iter().for_each(|frame| take(&mut noted, &mut frame.clone()));
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
