//! How answers are read: <https://platform.claude.com/docs/en/build-with-claude/streaming>.
//!
//! Blocks may come in turns, and be of kinds that nobody asked for: each is known by its index.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::provider::answer::{Answer, stop};
use crate::provider::calls::CallPiece;
use crate::provider::forms::Reader;
use crate::provider::json::{frame, lenient, lenient_object, tokens};
use crate::provider::piece::ProviderStatePart;
use crate::provider::split::Event;
use crate::provider::trouble::error_of;
use crate::provider::{ProviderError, ProviderState};

/// Reads an answer.
#[derive(Default)]
pub(in super::super) struct AnthropicReader {
    thoughts: Vec<Thought>,
}

/// A block of thoughts. A signature that is empty cannot be given back.
struct Thought {
    index: Option<u64>,
    text: String,
    signature: String,
    /// What stands in the place of both if the thought is redacted.
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
    usage: Told,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Message {
    #[serde(deserialize_with = "lenient_object")]
    usage: Told,
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
struct Told {
    #[serde(deserialize_with = "tokens")]
    input_tokens: Option<u64>,
    #[serde(deserialize_with = "tokens")]
    cache_read_input_tokens: Option<u64>,
    #[serde(deserialize_with = "tokens")]
    cache_creation_input_tokens: Option<u64>,
    #[serde(deserialize_with = "tokens")]
    output_tokens: Option<u64>,
}

impl Reader for AnthropicReader {
    fn read(&mut self, event: &Event, answer: &mut Answer) -> Result<(), ProviderError> {
        let frame: Frame<'_> = frame(&event.data)?;
        let kind = if frame.kind.is_empty() { &event.name } else { &frame.kind };
        match kind.as_str() {
            "message_start" => take_usage(&frame.message.usage, answer),
            "message_delta" => {
                answer.stop = frame.delta.stop_reason.as_deref().map(stop).or(answer.stop);
                take_usage(&frame.usage, answer);
            }
            "content_block_start" => self.begin_block(frame.index, frame.content_block, answer)?,
            "content_block_delta" => self.read_delta(frame.index, frame.delta, answer)?,
            "message_stop" => answer.is_complete = true,
            "error" => {
                let error = error_of(&event.data);
                return Err(
                    error.unwrap_or_else(|| ProviderError::broken("the answer failed, and no reason given"))
                );
            }
            _ => {}
        }
        Ok(())
    }

    fn thread(&mut self, _: usize) -> ProviderState {
        let part = |thought: Thought| {
            let Thought { text, signature, data, .. } = thought;
            if !data.is_empty() {
                return Some(ProviderStatePart::RedactedThought(data));
            }
            (!signature.is_empty()).then_some(ProviderStatePart::SignedThought { text, signature })
        };
        ProviderState(std::mem::take(&mut self.thoughts).into_iter().filter_map(part).collect())
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
            "text" => answer.text(block.text),
            "thinking" | "redacted_thinking" => {
                answer.count(block.signature.len() + block.data.len());
                answer.thought(block.thinking.clone());
                let Block { thinking: text, signature, data, .. } = block;
                self.thoughts.push(Thought { index, text, signature, data });
            }
            "tool_use" => {
                // Some send the input here, and nothing more of it or all of it again.
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
        if let Some(thought) = self.thoughts.iter_mut().rev().find(|thought| thought.index == index) {
            answer.count(signature.len());
            thought.text.push_str(&thinking);
            thought.signature.push_str(&signature);
        }
        answer.thought(thinking);
        answer.text(text);
        // The tools that a provider calls itself have inputs as well.
        let has_input = !partial_json.is_empty();
        let piece = CallPiece { number: index, input: partial_json, ..CallPiece::default() };
        if has_input { answer.calls.add_to_known(piece) } else { Ok(()) }
    }
}

/// Takes what is told of tokens; what was cached is not counted among what was read.
fn take_usage(told: &Told, answer: &mut Answer) {
    let usage = &mut answer.usage;
    if let Some(fresh) = told.input_tokens {
        usage.input_tokens = fresh;
        usage.cache_read_tokens = told.cache_read_input_tokens.unwrap_or(0);
        usage.cache_write_tokens = told.cache_creation_input_tokens.unwrap_or(0);
    }
    usage.output_tokens = told.output_tokens.unwrap_or(usage.output_tokens);
}
