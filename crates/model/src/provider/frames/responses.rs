//! Frames of the responses form.

use std::borrow::Cow;

use genai::chat::RawFrameRef;
use serde::Deserialize;
use serde_json::Value;

use super::{CallPiece, Noted};

/// What kind of frame it is. Those of text are many, and are read no further.
#[derive(Deserialize)]
struct Kind<'f> {
    #[serde(rename = "type", borrow)]
    name: Cow<'f, str>,
}

/// Notes what a frame says of calls and by way of refusing.
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
                input: text(frame, "delta"),
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
        _ => return,
    };
    if let Some(frame) = frame.json() {
        read(noted, &frame);
    }
}

/// The answer as a whole. Some servers have not told of its calls before.
fn take_end(noted: &mut Noted, response: &Value) {
    if noted.calls.is_empty() {
        let items = response["output"].as_array().into_iter().flatten();
        for (item, number) in items.zip(0..) {
            if let Some(call) = call(item, Some(number)) {
                noted.add_all_of(call);
            }
        }
    }
}

/// The call that an item is, if it is one.
fn call(item: &Value, number: Option<u64>) -> Option<CallPiece> {
    let is_call = item["type"] == "function_call";
    is_call.then(|| CallPiece {
        number,
        id: text(item, "call_id"),
        tool: text(item, "name"),
        input: text(item, "arguments"),
    })
}

fn number(frame: &Value) -> Option<u64> {
    frame["output_index"].as_u64()
}

fn text(value: &Value, member: &str) -> String {
    value[member].as_str().unwrap_or_default().to_owned()
}
