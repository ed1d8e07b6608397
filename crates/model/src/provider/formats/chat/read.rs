//! Reads answers: <https://platform.openai.com/docs/api-reference/chat-streaming>.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::provider::answer::{Answer, stop_reason, usage};
use crate::provider::calls::CallPiece;
use crate::provider::classify_error::error_member;
use crate::provider::formats::{DONE, EventReader};
use crate::provider::json::{call_input, frame, lenient, lenient_object, object, tokens, value};
use crate::provider::piece::ProviderStatePart;
use crate::provider::split::Event;
use crate::provider::{ProviderError, ProviderState};

/// Turns the events of one streamed answer into pieces.
#[derive(Default)]
pub(in super::super) struct ChatReader {
    reasoning: String,
    /// Whether the server sends `reasoning_content`, which such servers expect back with calls.
    has_reasoning_content: bool,
    has_usage: bool,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Frame<'f> {
    #[serde(borrow)]
    error: Option<&'f RawValue>,
    #[serde(borrow, deserialize_with = "lenient")]
    choices: Vec<&'f RawValue>,
    #[serde(deserialize_with = "lenient_object")]
    usage: Option<UsageFields>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Choice<'f> {
    #[serde(borrow)]
    error: Option<&'f RawValue>,
    #[serde(borrow, deserialize_with = "lenient_object")]
    delta: Delta<'f>,
    #[serde(deserialize_with = "lenient")]
    finish_reason: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Delta<'f> {
    #[serde(borrow)]
    content: Option<&'f RawValue>,
    #[serde(deserialize_with = "lenient")]
    refusal: String,
    #[serde(deserialize_with = "lenient")]
    reasoning_content: Option<String>,
    #[serde(deserialize_with = "lenient")]
    reasoning: Option<String>,
    #[serde(borrow, deserialize_with = "lenient")]
    tool_calls: Vec<&'f RawValue>,
}

/// A part of a content list, in which Mistral sends reasoning.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Chunk<'f> {
    #[serde(deserialize_with = "lenient")]
    text: String,
    #[serde(borrow)]
    thinking: Option<&'f RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Call<'f> {
    #[serde(deserialize_with = "lenient")]
    index: Option<u64>,
    #[serde(deserialize_with = "lenient")]
    id: String,
    #[serde(borrow, deserialize_with = "lenient_object")]
    function: Function<'f>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Function<'f> {
    #[serde(deserialize_with = "lenient")]
    name: String,
    #[serde(borrow)]
    arguments: Option<&'f RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct UsageFields {
    #[serde(deserialize_with = "tokens")]
    prompt_tokens: Option<u64>,
    #[serde(deserialize_with = "tokens")]
    completion_tokens: Option<u64>,
    #[serde(deserialize_with = "lenient_object")]
    prompt_tokens_details: Details,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Details {
    #[serde(deserialize_with = "tokens")]
    cached_tokens: Option<u64>,
    #[serde(alias = "cache_creation_tokens", deserialize_with = "tokens")]
    cache_write_tokens: Option<u64>,
}

impl EventReader for ChatReader {
    fn read(&mut self, event: &Event, answer: &mut Answer) -> Result<(), ProviderError> {
        if event.data == DONE {
            answer.is_complete = true;
            return Ok(());
        }
        let frame: Frame<'_> = frame(&event.data)?;
        let choice: Choice<'_> = frame.choices.first().and_then(|raw| object(raw)).unwrap_or_default();
        let reason = choice.finish_reason.as_deref();
        if let Some(error) = frame.error.or(choice.error.filter(|_| reason == Some("error"))) {
            return Err(error_member(error));
        }
        if reason == Some("error") {
            return Err(ProviderError::broken("the answer ended with an error, and no reason given"));
        }
        // Some servers send the usage with each frame, others twice at the end. The last non-zero one counts.
        if let Some(fields) = frame.usage
            && (!self.has_usage || fields.prompt_tokens.is_some_and(|count| count > 0))
        {
            let details = fields.prompt_tokens_details;
            let (cached, written) = (details.cached_tokens, details.cache_write_tokens);
            answer.usage = usage(fields.prompt_tokens, cached, written, fields.completion_tokens);
            self.has_usage = true;
        }
        if let Some(reason) = reason {
            answer.stop = Some(stop_reason(reason));
        }
        self.read_delta(choice.delta, answer)
    }

    /// Some servers refuse calls without their reasoning, others refuse the member `reasoning_content`. So the
    /// reasoning is sent back only to servers that use this member.
    fn provider_state(&mut self, calls: usize) -> ProviderState {
        let is_expected = self.has_reasoning_content && calls > 0 && !self.reasoning.is_empty();
        let reasoning = std::mem::take(&mut self.reasoning);
        ProviderState(
            is_expected.then_some(ProviderStatePart::ReasoningContent(reasoning)).into_iter().collect(),
        )
    }
}

impl ChatReader {
    fn read_delta(&mut self, delta: Delta<'_>, answer: &mut Answer) -> Result<(), ProviderError> {
        let (text, thinking) = content(delta.content);
        self.has_reasoning_content |= delta.reasoning_content.is_some();
        let reasoning = Some(thinking).filter(|thinking| !thinking.is_empty());
        let reasoning = reasoning.or(delta.reasoning_content).or(delta.reasoning).unwrap_or_default();
        self.reasoning.push_str(&reasoning);
        answer.push_reasoning(reasoning);
        answer.push_text(delta.refusal);
        answer.push_text(text);
        for call in delta.tool_calls.into_iter().filter_map(object::<Call<'_>>) {
            answer.calls.add(CallPiece {
                number: call.index,
                id: call.id,
                tool: call.function.name,
                input: call_input(call.function.arguments),
                ..CallPiece::default()
            })?;
        }
        Ok(())
    }
}

/// The text and the reasoning of a content, which is a string or a list of parts.
fn content(content: Option<&RawValue>) -> (String, String) {
    let Some(content) = content else { return Default::default() };
    let Some(chunks) = value::<Vec<&RawValue>>(content) else {
        return (value(content).unwrap_or_default(), String::new());
    };
    let (mut text, mut thinking) = (String::new(), String::new());
    for chunk in chunks.into_iter().filter_map(object::<Chunk<'_>>) {
        text.push_str(&chunk.text);
        match chunk.thinking.map(|raw| (raw, value::<Vec<&RawValue>>(raw))) {
            Some((_, Some(parts))) => {
                parts
                    .into_iter()
                    .filter_map(object::<Chunk<'_>>)
                    .for_each(|part| thinking.push_str(&part.text));
            }
            Some((raw, None)) => thinking.push_str(&value::<String>(raw).unwrap_or_default()),
            None => {}
        }
    }
    (text, thinking)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::provider::StopReason;

    fn read(frames: &[Value]) -> (ChatReader, Answer) {
        let (mut reader, mut answer) = (ChatReader::default(), Answer::default());
        for frame in frames {
            let event = Event { name: String::new(), data: frame.to_string() };
            reader.read(&event, &mut answer).unwrap();
        }
        (reader, answer)
    }

    fn delta(delta: &Value) -> Value {
        json!({"choices": [{"index": 0, "delta": delta, "finish_reason": null}]})
    }

    #[test]
    fn all_variants_of_calls_are_read() {
        let calls = |calls: Value| delta(&json!({"tool_calls": calls}));
        let (_, mut answer) = read(&[
            calls(json!([{"index": 7, "id": "a", "function": {"name": "x", "arguments": "{\"n\""}}])),
            calls(json!([{"index": 7, "id": null, "function": {"arguments": ":1}"}}])),
            calls(json!([{"id": "b", "function": {"name": "y", "arguments": {"n": 2}}}])),
            calls(json!([{"index": u64::MAX, "function": {"name": 5}}, "nothing", {"index": -1}])),
        ]);
        let made = answer.calls.take();
        let texts: Vec<&str> = made.iter().map(|call| call.input.as_str()).collect();
        assert_eq!(texts[..2], ["{\"n\":1}", "{\"n\":2}"]);
        assert_eq!((made[0].id.as_str(), made[1].tool.as_str()), ("a", "y"));
    }

    #[test]
    fn stop_reason_and_usage_are_read() {
        let (_, answer) = read(&[
            json!({"choices": [{"delta": {}, "finish_reason": "length"}]}),
            json!({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}}),
        ]);
        assert_eq!((answer.stop, answer.usage.input_tokens), (Some(StopReason::Length), 3));
    }

    #[test]
    fn all_variants_of_reasoning_are_read() {
        for variant in [
            json!({"reasoning_content": "hm"}),
            json!({"reasoning": "hm"}),
            json!({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]}),
            json!({"content": [{"type": "thinking", "thinking": "hm"}]}),
        ] {
            let (reader, _) = read(&[delta(&variant)]);
            assert_eq!(reader.reasoning, "hm", "{variant}");
        }
        let parts = json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}, 5]);
        assert_eq!(content(Some(&serde_json::value::to_raw_value(&parts).unwrap())).0, "ab");
    }
}
