//! Reads answers: <https://platform.openai.com/docs/api-reference/responses-streaming>.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::provider::answer::{Answer, usage};
use crate::provider::calls::CallPiece;
use crate::provider::classify_error::{error_in_body, error_member};
use crate::provider::formats::EventReader;
use crate::provider::json::{call_input, frame, lenient, lenient_object, object, tokens};
use crate::provider::piece::ProviderStatePart;
use crate::provider::split::Event;
use crate::provider::{ProviderError, ProviderState, StopReason};

/// Turns the events of one streamed answer into pieces.
#[derive(Default)]
pub(in super::super) struct ResponsesReader {
    /// The encrypted reasoning items.
    encrypted: Vec<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Frame<'f> {
    #[serde(rename = "type", deserialize_with = "lenient")]
    kind: String,
    #[serde(deserialize_with = "lenient")]
    output_index: Option<u64>,
    #[serde(deserialize_with = "lenient")]
    item_id: String,
    #[serde(deserialize_with = "lenient")]
    delta: String,
    #[serde(borrow)]
    arguments: Option<&'f RawValue>,
    #[serde(borrow, deserialize_with = "lenient_object")]
    item: Item<'f>,
    #[serde(borrow)]
    response: Option<&'f RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Item<'f> {
    #[serde(rename = "type", deserialize_with = "lenient")]
    kind: String,
    #[serde(deserialize_with = "lenient")]
    id: String,
    #[serde(deserialize_with = "lenient")]
    call_id: String,
    #[serde(deserialize_with = "lenient")]
    name: String,
    #[serde(borrow)]
    arguments: Option<&'f RawValue>,
    #[serde(deserialize_with = "lenient")]
    encrypted_content: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Response<'f> {
    #[serde(deserialize_with = "lenient")]
    status: String,
    #[serde(borrow)]
    error: Option<&'f RawValue>,
    #[serde(deserialize_with = "lenient_object")]
    incomplete_details: Incomplete,
    #[serde(deserialize_with = "lenient_object")]
    usage: UsageFields,
    #[serde(borrow, deserialize_with = "lenient")]
    output: Vec<&'f RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Incomplete {
    #[serde(deserialize_with = "lenient")]
    reason: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct UsageFields {
    #[serde(deserialize_with = "tokens")]
    input_tokens: Option<u64>,
    #[serde(deserialize_with = "tokens")]
    output_tokens: Option<u64>,
    #[serde(deserialize_with = "lenient_object")]
    input_tokens_details: Details,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Details {
    #[serde(deserialize_with = "tokens")]
    cached_tokens: Option<u64>,
}

impl EventReader for ResponsesReader {
    fn read(&mut self, event: &Event, answer: &mut Answer) -> Result<(), ProviderError> {
        // Some servers end with the `[DONE]` of the chat format, which is not JSON.
        let frame: Frame<'_> = frame(&event.data).unwrap_or_default();
        let piece = CallPiece { number: frame.output_index, item: frame.item_id, ..CallPiece::default() };
        match frame.kind.as_str() {
            "response.output_text.delta" | "response.refusal.delta" => answer.push_text(frame.delta),
            "response.reasoning_text.delta" | "response.reasoning_summary_text.delta" => {
                answer.push_reasoning(frame.delta)
            }
            "response.output_item.added" => {
                if let Some(call) = call(&frame.item, frame.output_index) {
                    answer.calls.add(CallPiece { input: String::new(), ..call })?;
                }
            }
            "response.function_call_arguments.delta" => {
                answer.calls.add(CallPiece { input: frame.delta, ..piece })?;
            }
            "response.function_call_arguments.done" => {
                answer.calls.complete(CallPiece { input: call_input(frame.arguments), ..piece })?;
            }
            "response.output_item.done" => {
                self.add_reasoning(&frame.item, answer);
                if let Some(call) = call(&frame.item, frame.output_index) {
                    answer.calls.complete(call)?;
                }
            }
            "response.completed" | "response.incomplete" => {
                let response = frame.response.and_then(object::<Response<'_>>).unwrap_or_default();
                return self.read_end(response, answer);
            }
            "response.failed" => {
                let response = frame.response.and_then(object::<Response<'_>>).unwrap_or_default();
                return Err(response.error.map_or_else(failed, error_member));
            }
            "error" => return Err(error_in_body(&event.data).unwrap_or_else(failed)),
            _ => {}
        }
        Ok(())
    }

    fn provider_state(&mut self, _: usize) -> ProviderState {
        ProviderState(
            std::mem::take(&mut self.encrypted)
                .into_iter()
                .map(ProviderStatePart::EncryptedReasoning)
                .collect(),
        )
    }
}

impl ResponsesReader {
    /// Stores an encrypted reasoning item.
    fn add_reasoning(&mut self, item: &Item<'_>, answer: &mut Answer) {
        if item.kind == "reasoning" && !item.encrypted_content.is_empty() {
            answer.add_bytes(item.encrypted_content.len());
            self.encrypted.push(item.encrypted_content.clone());
        }
    }

    /// Reads the complete response. Some servers send calls and reasoning only here.
    fn read_end(&mut self, response: Response<'_>, answer: &mut Answer) -> Result<(), ProviderError> {
        let has_failed = matches!(response.status.as_str(), "failed" | "cancelled");
        if has_failed || response.error.is_some() {
            return Err(response.error.map_or_else(failed, error_member));
        }
        answer.stop = Some(match response.incomplete_details.reason.as_deref() {
            Some("content_filter") => StopReason::Filtered,
            Some(_) => StopReason::Length,
            None if response.status == "incomplete" => StopReason::Length,
            None => StopReason::Complete,
        });
        let fields = response.usage;
        let cached = fields.input_tokens_details.cached_tokens;
        answer.usage = usage(fields.input_tokens, cached, None, fields.output_tokens);
        let has_reasoning = !self.encrypted.is_empty();
        let mut calls = Vec::new();
        for item in response.output.into_iter().filter_map(object::<Item<'_>>) {
            if !has_reasoning {
                self.add_reasoning(&item, answer);
            }
            calls.extend(call(&item, None));
        }
        answer.is_complete = true;
        answer.calls.complete_all(calls)
    }
}

fn failed() -> ProviderError {
    ProviderError::broken("the answer failed, and no reason given")
}

/// The call in an item, if the item is a call.
fn call(item: &Item<'_>, number: Option<u64>) -> Option<CallPiece> {
    let is_call = item.kind == "function_call";
    is_call.then(|| CallPiece {
        number,
        item: item.id.clone(),
        id: item.call_id.clone(),
        tool: item.name.clone(),
        input: call_input(item.arguments),
        first_input: String::new(),
    })
}
