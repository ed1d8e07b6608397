//! Reads answers: <https://platform.claude.com/docs/en/build-with-claude/streaming>.
//!
//! Blocks may be interleaved, and may be of unknown kinds. Each block is identified by its index.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::provider::answer::{Answer, stop_reason};
use crate::provider::calls::CallPiece;
use crate::provider::classify_error::error_in_body;
use crate::provider::formats::EventReader;
use crate::provider::json::{frame, lenient, lenient_object, tokens};
use crate::provider::piece::ProviderStatePart;
use crate::provider::split::Event;
use crate::provider::{ProviderError, ProviderState};

/// Turns the events of one streamed answer into pieces.
#[derive(Default)]
pub(in super::super) struct AnthropicReader {
    thinking_blocks: Vec<ThinkingBlock>,
}

/// A `thinking` or `redacted_thinking` block. A block without signature and data cannot be sent back.
struct ThinkingBlock {
    index: Option<u64>,
    text: String,
    signature: String,
    /// The content of a `redacted_thinking` block.
    data: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Frame<'f> {
    #[serde(rename = "type", deserialize_with = "lenient")]
    kind: String,
    #[serde(deserialize_with = "lenient")]
    index: Option<u64>,
    #[serde(deserialize_with = "lenient_object")]
    message: Message,
    #[serde(borrow, deserialize_with = "lenient_object")]
    content_block: Block<'f>,
    #[serde(deserialize_with = "lenient_object")]
    delta: Delta,
    #[serde(deserialize_with = "lenient_object")]
    usage: UsageFields,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Message {
    #[serde(deserialize_with = "lenient_object")]
    usage: UsageFields,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Block<'f> {
    #[serde(rename = "type", deserialize_with = "lenient")]
    kind: String,
    #[serde(deserialize_with = "lenient")]
    text: String,
    #[serde(deserialize_with = "lenient")]
    thinking: String,
    #[serde(deserialize_with = "lenient")]
    signature: String,
    #[serde(deserialize_with = "lenient")]
    data: String,
    #[serde(deserialize_with = "lenient")]
    id: String,
    #[serde(deserialize_with = "lenient")]
    name: String,
    #[serde(borrow)]
    input: Option<&'f RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Delta {
    #[serde(deserialize_with = "lenient")]
    text: String,
    #[serde(deserialize_with = "lenient")]
    thinking: String,
    #[serde(deserialize_with = "lenient")]
    signature: String,
    #[serde(deserialize_with = "lenient")]
    partial_json: String,
    #[serde(deserialize_with = "lenient")]
    stop_reason: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct UsageFields {
    #[serde(deserialize_with = "tokens")]
    input_tokens: Option<u64>,
    #[serde(deserialize_with = "tokens")]
    cache_read_input_tokens: Option<u64>,
    #[serde(deserialize_with = "tokens")]
    cache_creation_input_tokens: Option<u64>,
    #[serde(deserialize_with = "tokens")]
    output_tokens: Option<u64>,
}

impl EventReader for AnthropicReader {
    fn read(&mut self, event: &Event, answer: &mut Answer) -> Result<(), ProviderError> {
        let frame: Frame<'_> = frame(&event.data)?;
        let kind = if frame.kind.is_empty() { &event.name } else { &frame.kind };
        match kind.as_str() {
            "message_start" => set_usage(&frame.message.usage, answer),
            "message_delta" => {
                answer.stop = frame.delta.stop_reason.as_deref().map(stop_reason).or(answer.stop);
                set_usage(&frame.usage, answer);
            }
            "content_block_start" => self.begin_block(frame.index, frame.content_block, answer)?,
            "content_block_delta" => self.read_delta(frame.index, frame.delta, answer)?,
            "message_stop" => answer.is_complete = true,
            "error" => {
                let error = error_in_body(&event.data);
                return Err(
                    error.unwrap_or_else(|| ProviderError::broken("the answer failed, and no reason given"))
                );
            }
            _ => {}
        }
        Ok(())
    }

    fn provider_state(&mut self, _: usize) -> ProviderState {
        let part = |block: ThinkingBlock| {
            let ThinkingBlock { text, signature, data, .. } = block;
            if !data.is_empty() {
                return Some(ProviderStatePart::RedactedReasoning(data));
            }
            (!signature.is_empty()).then_some(ProviderStatePart::SignedReasoning { text, signature })
        };
        ProviderState(std::mem::take(&mut self.thinking_blocks).into_iter().filter_map(part).collect())
    }
}

impl AnthropicReader {
    fn begin_block(
        &mut self,
        index: Option<u64>,
        block: Block<'_>,
        answer: &mut Answer,
    ) -> Result<(), ProviderError> {
        match block.kind.as_str() {
            "text" => answer.push_text(block.text),
            "thinking" | "redacted_thinking" => {
                answer.add_bytes(block.signature.len() + block.data.len());
                answer.push_reasoning(block.thinking.clone());
                let Block { thinking: text, signature, data, .. } = block;
                self.thinking_blocks.push(ThinkingBlock { index, text, signature, data });
            }
            "tool_use" => {
                // Some servers send the complete input here, and stream nothing or the same input again.
                let input = block.input.map(RawValue::get).filter(|input| input.starts_with('{'));
                let is_empty = |input: &&str| input.trim_matches(['{', '}']).trim().is_empty();
                answer.calls.begin(CallPiece {
                    number: index,
                    id: block.id,
                    tool: block.name,
                    first_input: input.filter(|input| !is_empty(input)).unwrap_or_default().to_owned(),
                    ..CallPiece::default()
                })?;
            }
            _ => {}
        }
        Ok(())
    }

    fn read_delta(
        &mut self,
        index: Option<u64>,
        delta: Delta,
        answer: &mut Answer,
    ) -> Result<(), ProviderError> {
        let Delta { text, thinking, signature, partial_json, .. } = delta;
        if let Some(block) = self.thinking_blocks.iter_mut().rev().find(|block| block.index == index) {
            answer.add_bytes(signature.len());
            block.text.push_str(&thinking);
            block.signature.push_str(&signature);
        }
        answer.push_reasoning(thinking);
        answer.push_text(text);
        // Tools that the provider executes itself have inputs as well; these calls are unknown here.
        let has_input = !partial_json.is_empty();
        let piece = CallPiece { number: index, input: partial_json, ..CallPiece::default() };
        if has_input { answer.calls.add_to_known(piece) } else { Ok(()) }
    }
}

/// Sets the usage. Anthropic's `input_tokens` do not include cached tokens.
fn set_usage(fields: &UsageFields, answer: &mut Answer) {
    let usage = &mut answer.usage;
    if let Some(uncached) = fields.input_tokens {
        usage.input_tokens = uncached;
        usage.cache_read_tokens = fields.cache_read_input_tokens.unwrap_or(0);
        usage.cache_write_tokens = fields.cache_creation_input_tokens.unwrap_or(0);
    }
    usage.output_tokens = fields.output_tokens.unwrap_or(usage.output_tokens);
}
