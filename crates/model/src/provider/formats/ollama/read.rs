//! Reads answers: <https://docs.ollama.com/api/streaming>.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::provider::answer::{Answer, stop_reason, usage};
use crate::provider::classify_error::error_member;
use crate::provider::formats::EventReader;
use crate::provider::json::{call_input, frame, lenient, lenient_object, object, tokens};
use crate::provider::split::Event;
use crate::provider::{ProviderError, ProviderState};

/// Reads one answer. Stateless.
pub(in super::super) struct OllamaReader;

#[derive(Default, Deserialize)]
#[serde(default)]
struct Frame<'f> {
    #[serde(borrow)]
    error: Option<&'f RawValue>,
    #[serde(borrow, deserialize_with = "lenient_object")]
    message: Message<'f>,
    #[serde(deserialize_with = "lenient")]
    done: bool,
    #[serde(deserialize_with = "lenient")]
    done_reason: String,
    #[serde(deserialize_with = "tokens")]
    prompt_eval_count: Option<u64>,
    #[serde(deserialize_with = "tokens")]
    prompt_eval_cached_count: Option<u64>,
    #[serde(deserialize_with = "tokens")]
    eval_count: Option<u64>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Message<'f> {
    #[serde(deserialize_with = "lenient")]
    content: String,
    #[serde(deserialize_with = "lenient")]
    thinking: Option<String>,
    #[serde(deserialize_with = "lenient")]
    reasoning_content: Option<String>,
    #[serde(borrow, deserialize_with = "lenient")]
    tool_calls: Vec<&'f RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Call<'f> {
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

impl EventReader for OllamaReader {
    fn read(&mut self, event: &Event, answer: &mut Answer) -> Result<(), ProviderError> {
        let frame: Frame<'_> = frame(&event.data)?;
        if let Some(error) = frame.error {
            return Err(error_member(error));
        }
        let Message { content, thinking, reasoning_content, tool_calls } = frame.message;
        answer.push_reasoning(thinking.or(reasoning_content).unwrap_or_default());
        answer.push_text(content);
        for call in tool_calls.into_iter().filter_map(object::<Call<'_>>) {
            answer.calls.push_complete(call.id, call.function.name, call_input(call.function.arguments))?;
        }
        if frame.done {
            answer.usage =
                usage(frame.prompt_eval_count, frame.prompt_eval_cached_count, None, frame.eval_count);
            answer.stop = Some(stop_reason(&frame.done_reason));
            answer.is_complete = true;
        }
        Ok(())
    }

    fn provider_state(&mut self, _: usize) -> ProviderState {
        ProviderState::default()
    }
}
