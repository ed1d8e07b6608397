//! Frames of the responses form.

use std::borrow::Cow;

use genai::chat::{PromptTokensDetails, RawFrameRef, StopReason, Usage};
use serde::Deserialize;
use serde_json::Value;

use super::super::trouble::by_kind;
use super::{CallPiece, Noted};

/// What kind of frame it is. Those of text are many, and are read no further.
#[derive(Deserialize)]
struct Kind<'f> {
    #[serde(rename = "type", borrow)]
    name: Cow<'f, str>,
}

/// Notes what a frame says of calls, by way of refusing, and of the end, of which genai says too little and wants too much.
pub(super) fn note(noted: &mut Noted, frame: RawFrameRef<'_>) {
    let Ok(kind) = serde_json::from_str::<Kind<'_>>(frame.data) else { return };
    let read: fn(&mut Noted, &Value) = match &*kind.name {
        "response.output_item.added" => |noted, frame| {
            if let Some(call) = call(&frame["item"], number(frame)) {
                noted.add(CallPiece { input: String::new(), ..call });
            }
        },
        "response.function_call_arguments.delta" => |noted, frame| {
            noted.add(CallPiece {
                number: number(frame),
                item: text(frame, "item_id"),
                input: text(frame, "delta"),
                ..CallPiece::default()
            });
        },
        "response.function_call_arguments.done" => |noted, frame| {
            noted.add_all_of(CallPiece {
                number: number(frame),
                item: text(frame, "item_id"),
                input: input(frame),
                ..CallPiece::default()
            });
        },
        "response.refusal.delta" => |noted, frame| noted.refusal.push_str(&text(frame, "delta")),
        "response.output_item.done" => |noted, frame| {
            if let Some(call) = call(&frame["item"], number(frame)) {
                noted.add_all_of(call);
            }
        },
        "response.completed" | "response.incomplete" => |noted, frame| take_end(noted, &frame["response"]),
        "response.failed" => |noted, frame| noted.error = Some(by_kind(&frame["response"])),
        _ => return,
    };
    if let Some(frame) = frame.json() {
        read(noted, &frame);
    }
}

/// The answer as a whole. Some servers have not told of its calls before.
fn take_end(noted: &mut Noted, response: &Value) {
    let is_failure = matches!(response["status"].as_str(), Some("failed" | "cancelled"));
    if is_failure || !response["error"].is_null() {
        noted.error = Some(by_kind(response));
        return;
    }
    let reason = match response["incomplete_details"]["reason"].as_str() {
        Some("content_filter") => StopReason::ContentFilter,
        Some(_) => StopReason::MaxTokens,
        None if response["status"] == "incomplete" => StopReason::MaxTokens,
        None => StopReason::Completed,
    };
    noted.stop = Some(reason(text(response, "status")));
    noted.usage = response["usage"].is_object().then(|| usage(&response["usage"]));
    let items = response["output"].as_array().into_iter().flatten();
    noted.add_end(items.filter_map(|item| call(item, None)).collect());
}

fn usage(told: &Value) -> Usage {
    let count = |value: &Value| value.as_i64().and_then(|count| i32::try_from(count).ok());
    let cached_tokens = count(&told["input_tokens_details"]["cached_tokens"]);
    Usage {
        prompt_tokens: count(&told["input_tokens"]),
        prompt_tokens_details: Some(PromptTokensDetails { cached_tokens, ..PromptTokensDetails::default() }),
        completion_tokens: count(&told["output_tokens"]),
        ..Usage::default()
    }
}

/// The call that an item is, if it is one.
fn call(item: &Value, number: Option<u64>) -> Option<CallPiece> {
    let is_call = item["type"] == "function_call";
    is_call.then(|| CallPiece {
        number,
        item: text(item, "id"),
        id: text(item, "call_id"),
        tool: text(item, "name"),
        input: input(item),
        first_input: String::new(),
    })
}

/// The input of a call. Some send the input itself in the place of its text.
fn input(value: &Value) -> String {
    let arguments = &value["arguments"];
    if arguments.is_object() { arguments.to_string() } else { text(value, "arguments") }
}

fn number(frame: &Value) -> Option<u64> {
    frame["output_index"].as_u64()
}

fn text(value: &Value, member: &str) -> String {
    value[member].as_str().unwrap_or_default().to_owned()
}
