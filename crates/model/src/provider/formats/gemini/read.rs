//! Reads answers: <https://ai.google.dev/api/generate-content#v1beta.GenerateContentResponse>.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::provider::answer::{Answer, stop_reason, usage};
use crate::provider::classify_error::error_member;
use crate::provider::formats::EventReader;
use crate::provider::json::{frame, lenient, lenient_object, object, tokens};
use crate::provider::piece::ProviderStatePart;
use crate::provider::split::Event;
use crate::provider::{ProviderError, ProviderState};

/// Turns the events of one streamed answer into pieces.
#[derive(Default)]
pub(in super::super) struct GeminiReader {
    /// The number of calls so far.
    calls: usize,
    signatures: Vec<ProviderStatePart>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Frame<'f> {
    #[serde(borrow)]
    error: Option<&'f RawValue>,
    #[serde(borrow, deserialize_with = "lenient")]
    candidates: Vec<&'f RawValue>,
    #[serde(deserialize_with = "lenient_object")]
    prompt_feedback: Feedback,
    #[serde(deserialize_with = "lenient_object")]
    usage_metadata: Option<UsageFields>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Feedback {
    #[serde(deserialize_with = "lenient")]
    block_reason: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Candidate<'f> {
    #[serde(borrow, deserialize_with = "lenient_object")]
    content: Content<'f>,
    #[serde(deserialize_with = "lenient")]
    finish_reason: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Content<'f> {
    #[serde(borrow, deserialize_with = "lenient")]
    parts: Vec<&'f RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Part<'f> {
    #[serde(deserialize_with = "lenient")]
    text: String,
    /// Whether the text is reasoning.
    #[serde(deserialize_with = "lenient")]
    thought: bool,
    #[serde(deserialize_with = "lenient")]
    thought_signature: String,
    #[serde(borrow, deserialize_with = "lenient_object")]
    function_call: Option<Call<'f>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Call<'f> {
    #[serde(deserialize_with = "lenient")]
    id: String,
    #[serde(deserialize_with = "lenient")]
    name: String,
    #[serde(borrow)]
    args: Option<&'f RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct UsageFields {
    #[serde(deserialize_with = "tokens")]
    prompt_token_count: Option<u64>,
    #[serde(deserialize_with = "tokens")]
    tool_use_prompt_token_count: Option<u64>,
    #[serde(deserialize_with = "tokens")]
    cached_content_token_count: Option<u64>,
    #[serde(deserialize_with = "tokens")]
    candidates_token_count: Option<u64>,
    #[serde(deserialize_with = "tokens")]
    thoughts_token_count: Option<u64>,
}

impl EventReader for GeminiReader {
    fn read(&mut self, event: &Event, answer: &mut Answer) -> Result<(), ProviderError> {
        let frame: Frame<'_> = frame(&event.data)?;
        if let Some(error) = frame.error {
            return Err(error_member(error));
        }
        if let Some(reason) = frame.prompt_feedback.block_reason {
            return Err(ProviderError::Refused { message: format!("the prompt was blocked: {reason}") });
        }
        if let Some(fields) = frame.usage_metadata {
            let sum = |one: Option<u64>, other: Option<u64>| Some(one.unwrap_or(0) + other.unwrap_or(0));
            let input = sum(fields.prompt_token_count, fields.tool_use_prompt_token_count);
            // `candidatesTokenCount` does not include the reasoning.
            let output = sum(fields.candidates_token_count, fields.thoughts_token_count);
            answer.usage = usage(input, fields.cached_content_token_count, None, output);
        }
        let candidate: Candidate<'_> =
            frame.candidates.first().and_then(|raw| object(raw)).unwrap_or_default();
        for part in candidate.content.parts.into_iter().filter_map(object::<Part<'_>>) {
            self.read_part(part, answer)?;
        }
        // The finish reason is the only sign of the end.
        if let Some(reason) = candidate.finish_reason {
            answer.stop = Some(stop_reason(&reason));
            answer.is_complete = true;
        }
        Ok(())
    }

    fn provider_state(&mut self, _: usize) -> ProviderState {
        ProviderState(std::mem::take(&mut self.signatures))
    }
}

impl GeminiReader {
    fn read_part(&mut self, part: Part<'_>, answer: &mut Answer) -> Result<(), ProviderError> {
        if !part.thought_signature.is_empty() {
            answer.add_bytes(part.thought_signature.len());
            let call = part.function_call.is_some().then_some(self.calls);
            self.signatures
                .push(ProviderStatePart::ThoughtSignature { call, signature: part.thought_signature });
        }
        match part.function_call {
            Some(call) => {
                self.calls += 1;
                let input = call.args.map_or("null", RawValue::get).to_owned();
                answer.calls.push_complete(call.id, call.name, input)?;
            }
            None if part.thought => answer.push_reasoning(part.text),
            None => answer.push_text(part.text),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blocked_prompt_is_refused_with_the_reason() {
        let event =
            Event { name: String::new(), data: r#"{"promptFeedback":{"blockReason":"SAFETY"}}"#.to_owned() };
        let error = GeminiReader::default().read(&event, &mut Answer::default()).unwrap_err();
        assert_eq!((error.code().as_str(), error.to_string().contains("SAFETY")), ("MODEL_REFUSED", true));
    }
}
