//! Frames of Anthropic's.

use genai::chat::{RawFrameRef, StopReason};
use serde_json::Value;

use super::{CallPiece, Noted};

/// The kinds of pieces that genai passes on. What else it cannot read is noted here, or nothing for us.
const SHOWN: [&str; 3] = ["\"text_delta\"", "\"thinking_delta\"", "\"signature_delta\""];

/// Notes what a frame says of calls, of the end and of what the answer took.
pub(super) fn note(noted: &mut Noted, frame: RawFrameRef<'_>) {
    noted.unread.clear();
    if frame.event == Some("content_block_delta") && SHOWN.iter().any(|kind| frame.data.contains(kind)) {
        noted.unread.push_str(frame.data);
    }
    let read: fn(&mut Noted, &Value) = match frame.event {
        Some("message_start" | "message_delta") => take_message,
        Some("content_block_start") => take_block,
        Some("content_block_delta") if frame.data.contains("\"partial_json\"") => take_input,
        Some(_) | None => return,
    };
    if let Some(frame) = frame.json() {
        read(noted, &frame);
    }
}

/// A block begins, which may be a call or a thought.
fn take_block(noted: &mut Noted, frame: &Value) {
    let block = &frame["content_block"];
    let text = |member: &str| block[member].as_str().unwrap_or_default().to_owned();
    match block["type"].as_str() {
        Some("tool_use") => {
            // Some send the input here, and nothing more of it or all of it again.
            let has_input = block["input"].as_object().is_some_and(|input| !input.is_empty());
            noted.begin(CallPiece {
                number: number(frame),
                id: text("id"),
                tool: text("name"),
                first_input: if has_input { block["input"].to_string() } else { String::new() },
                ..CallPiece::default()
            });
        }
        Some("thinking" | "redacted_thinking") => noted.has_thoughts = true,
        Some(_) | None => {}
    }
}

/// The input of a call goes on.
fn take_input(noted: &mut Noted, frame: &Value) {
    if let Some(Value::String(input)) = frame.pointer("/delta/partial_json") {
        // The tools that a provider calls itself have inputs as well.
        noted.add_to_known(CallPiece { number: number(frame), input: input.clone(), ..CallPiece::default() });
    }
}

fn number(frame: &Value) -> Option<u64> {
    frame.get("index").and_then(Value::as_u64)
}

/// A frame about a message as a whole.
fn take_message(noted: &mut Noted, frame: &Value) {
    if let Some(Value::String(reason)) = frame.pointer("/delta/stop_reason") {
        noted.stop = Some(StopReason::from(reason.clone()));
    }
    let Some(told) = frame.pointer("/message/usage").or_else(|| frame.get("usage")) else { return };
    let count = |name: &str| told.get(name)?.as_i64().and_then(|count| i32::try_from(count).ok());
    let usage = noted.usage.get_or_insert_default();
    if let Some(fresh) = count("input_tokens") {
        let (read, write) = (count("cache_read_input_tokens"), count("cache_creation_input_tokens"));
        let cached = read.unwrap_or(0).saturating_add(write.unwrap_or(0));
        usage.prompt_tokens = Some(fresh.saturating_add(cached));
        let details = usage.prompt_tokens_details.get_or_insert_default();
        (details.cached_tokens, details.cache_creation_tokens) = (read, write);
    }
    usage.completion_tokens = count("output_tokens").or(usage.completion_tokens);
}
