//! An answer that is being read: genai's events as [`Piece`]s, within limits.

use std::sync::Arc;

use futures_util::StreamExt;
use genai::chat::{ChatStream, ChatStreamEvent, ContentPart, StopReason, StreamEnd};
use parlor_vocab::Usage;
use serde_json::Value;

use super::error::short;
use super::frames::{Frames, Noted, too_long};
use super::trouble::trouble;
use super::{Completion, Key, ModelCall, Piece, ProviderError, ProviderKind, Stop, Thread};

/// The most that one answer may have: text, thoughts with their signatures, and the inputs of calls.
pub const MAX_ANSWER_BYTES: usize = 16 << 20;

/// An answer that is being read.
pub(super) struct Reading {
    stream: ChatStream,
    kind: ProviderKind,
    key: Option<Key>,
    frames: Arc<Frames>,
    /// How much text there was.
    bytes: usize,
    /// The thoughts of the chat form.
    thoughts: String,
    /// The end, which waits until all before it was passed on.
    end: Option<Completion>,
    over: bool,
}

impl Reading {
    /// Of what `stream` brings, whose frames are shown to `frames` if these say more.
    pub(super) fn new(stream: ChatStream, kind: ProviderKind, key: Option<Key>, frames: Arc<Frames>) -> Self {
        Self { stream, kind, key, frames, bytes: 0, thoughts: String::new(), end: None, over: false }
    }

    pub(super) async fn next(mut self) -> Option<(Result<Piece, ProviderError>, Self)> {
        if self.over {
            return None;
        }
        let piece = self.piece().await;
        Some((self.taken(piece), self))
    }

    /// A piece as it is passed on; with the last one the answer is over.
    pub(super) fn taken(&mut self, piece: Result<Piece, ProviderError>) -> Result<Piece, ProviderError> {
        self.over = matches!(piece, Err(_) | Ok(Piece::Done(_)));
        piece.map_err(|error| hide(error, self.key.as_ref()))
    }

    pub(super) async fn piece(&mut self) -> Result<Piece, ProviderError> {
        loop {
            if let Some(text) = self.refusal() {
                return Ok(Piece::Text(text));
            }
            if let Some(piece) = self.frames.noted().calls.next_piece() {
                return Ok(piece);
            }
            if let Some(end) = self.end.take() {
                return Ok(Piece::Done(end));
            }
            let event = self.stream.next().await;
            if let Some(error) = self.frames.noted().error.take() {
                return Err(error);
            }
            let piece = match event {
                Some(Ok(event)) => self.on_event(event)?,
                Some(Err(genai::Error::JsonValueExt(_))) if self.kind == ProviderKind::Anthropic => {
                    self.on_unread()?
                }
                Some(Err(error)) => self.on_break(Some(&error))?,
                None => self.on_break(None)?,
            };
            self.check()?;
            if let Some(piece) = piece {
                return Ok(piece);
            }
        }
    }

    /// How the model has refused since the last time.
    fn refusal(&mut self) -> Option<String> {
        let refusal = std::mem::take(&mut self.frames.noted().refusal);
        self.bytes += refusal.len();
        (!refusal.is_empty()).then_some(refusal)
    }

    fn on_event(&mut self, event: ChatStreamEvent) -> Result<Option<Piece>, ProviderError> {
        match event {
            ChatStreamEvent::Chunk(chunk) => {
                self.bytes += chunk.content.len();
                // Frames before this one may have refused: genai passes on nothing of these.
                let refusal = self.refusal().unwrap_or_default();
                return Ok(Some(Piece::Text(refusal + &chunk.content)));
            }
            ChatStreamEvent::ReasoningChunk(chunk) => {
                self.bytes += chunk.content.len();
                if is_chat(self.kind) {
                    self.thoughts.push_str(&chunk.content);
                }
                return Ok(Some(Piece::Thought(chunk.content)));
            }
            ChatStreamEvent::ThoughtSignatureChunk(chunk) => {
                self.bytes += chunk.content.len();
            }
            // Of the others, these were noted when their frame came.
            ChatStreamEvent::ToolCallChunk(chunk) if sends_whole_calls(self.kind) => {
                let call = chunk.tool_call;
                let input = call.fn_arguments.as_str();
                let input = input.map_or_else(|| call.fn_arguments.to_string(), str::to_owned);
                self.frames.noted().calls.whole(&call.call_id, &call.fn_name, input)?;
            }
            ChatStreamEvent::ToolCallChunk(_) => {}
            ChatStreamEvent::End(end) => self.end = Some(self.ended(end)?),
            ChatStreamEvent::Start | ChatStreamEvent::Heartbeat => {}
        }
        Ok(None)
    }

    /// A frame that genai cannot read, and reads on. Text that comes in turns with other parts of the answer is text all
    /// the same; a thought would be given back without its end.
    fn on_unread(&mut self) -> Result<Option<Piece>, ProviderError> {
        let frame = std::mem::take(&mut self.frames.noted().unread);
        if frame.is_empty() {
            return Ok(None);
        }
        let frame: Value = serde_json::from_str(&frame).unwrap_or_default();
        let Some(text) = frame.pointer("/delta/text").and_then(Value::as_str) else {
            let said = "a thought comes in turns with other parts of the answer, which cannot be put together; choose \
                        another model or server, or reasoning = \"off\"";
            return Err(ProviderError::Refused { said: said.to_owned() });
        };
        self.bytes += text.len();
        Ok(Some(Piece::Text(text.to_owned())))
    }

    /// There is nothing more, because of an error maybe. Whoever has said why its answer ended has given all of it, but
    /// for what genai gives with the end alone: the thoughts that Anthropic wants back with calls.
    fn on_break(&mut self, error: Option<&genai::Error>) -> Result<Option<Piece>, ProviderError> {
        let is_cut = error.is_none_or(|error| matches!(error, genai::Error::WebStream { .. }));
        let mut noted = self.frames.noted();
        let calls = noted.calls.made();
        let lacks_thoughts = noted.has_thoughts && !calls.is_empty();
        match noted.stop.take().filter(|_| is_cut && !lacks_thoughts) {
            Some(reason) => {
                let usage = noted.usage.take().as_ref().map(usage).unwrap_or_default();
                let thread = Thread(named_thoughts(&mut self.thoughts, &noted, &calls).into_iter().collect());
                self.end = Some(Completion { calls, usage, stop: stop(Some(&reason)), thread });
                Ok(None)
            }
            None => Err(error.map_or_else(cut_off, trouble)),
        }
    }

    /// Whether it is still within its limits.
    fn check(&self) -> Result<(), ProviderError> {
        let is_within = self.bytes + self.frames.noted().bytes() <= MAX_ANSWER_BYTES;
        if is_within { Ok(()) } else { Err(too_long()) }
    }

    fn ended(&mut self, end: StreamEnd) -> Result<Completion, ProviderError> {
        let ends_without_reason = match self.kind {
            ProviderKind::OpenAi | ProviderKind::OpenRouter | ProviderKind::Anthropic => false,
            ProviderKind::OpenAiResponses | ProviderKind::Gemini | ProviderKind::Ollama => true,
        };
        let mut noted = self.frames.noted();
        let reason = noted.stop.take().or(end.captured_stop_reason);
        if ends_without_reason && reason.is_none() {
            return Err(cut_off());
        }
        let stop = stop(reason.as_ref());
        let usage = noted.usage.take().or(end.captured_usage).as_ref().map(usage).unwrap_or_default();
        let parts = end.captured_content.map(|content| content.into_parts()).unwrap_or_default();
        let calls = noted.calls.made();
        let thoughts = named_thoughts(&mut self.thoughts, &noted, &calls);
        let thread = parts.into_iter().filter(|part| !part.is_text()).chain(thoughts).collect();
        Ok(Completion { calls, usage, stop, thread: Thread(thread) })
    }
}

/// The thoughts of the chat form as they are given back with calls. Some servers turn down calls without them, others
/// the member that they are given back in: so they are given back to those who use it themselves.
fn named_thoughts(thoughts: &mut String, noted: &Noted, calls: &[ModelCall]) -> Option<ContentPart> {
    let are_wanted = noted.names_thoughts && !calls.is_empty() && !thoughts.is_empty();
    are_wanted.then(|| ContentPart::ReasoningContent(std::mem::take(thoughts)))
}

fn is_chat(kind: ProviderKind) -> bool {
    match kind {
        ProviderKind::OpenAi | ProviderKind::OpenRouter => true,
        ProviderKind::OpenAiResponses
        | ProviderKind::Anthropic
        | ProviderKind::Gemini
        | ProviderKind::Ollama => false,
    }
}

/// Whether its calls come as a whole, so that nothing can be wrong with how genai puts them together.
fn sends_whole_calls(kind: ProviderKind) -> bool {
    match kind {
        ProviderKind::Gemini | ProviderKind::Ollama => true,
        ProviderKind::OpenAi
        | ProviderKind::OpenRouter
        | ProviderKind::OpenAiResponses
        | ProviderKind::Anthropic => false,
    }
}

fn cut_off() -> ProviderError {
    ProviderError::broken("the stream ended before the answer was complete")
}

fn stop(reason: Option<&StopReason>) -> Stop {
    match reason {
        Some(StopReason::MaxTokens(_)) => Stop::Length,
        Some(StopReason::ContentFilter(_)) => Stop::Filtered,
        Some(
            StopReason::Completed(_)
            | StopReason::ToolCall(_)
            | StopReason::StopSequence(_)
            | StopReason::Other(_),
        )
        | None => Stop::Complete,
    }
}

/// An error as it is told: without the key, and short. In this order, or the beginning of a key could be left.
pub(super) fn hide(error: ProviderError, key: Option<&Key>) -> ProviderError {
    let hidden = |said: String| short(&key.map_or_else(|| said.clone(), |key| key.hide_in(&said)));
    match error {
        ProviderError::Busy { said, retry_after } => ProviderError::Busy { said: hidden(said), retry_after },
        ProviderError::Broken { said, retry_after } => {
            ProviderError::Broken { said: hidden(said), retry_after }
        }
        ProviderError::Overflow { said } => ProviderError::Overflow { said: hidden(said) },
        ProviderError::Auth { said } => ProviderError::Auth { said: hidden(said) },
        ProviderError::Settings { said } => ProviderError::Settings { said: hidden(said) },
        ProviderError::Refused { said } => ProviderError::Refused { said: hidden(said) },
    }
}

/// genai counts what was cached among what was read; we do not.
fn usage(usage: &genai::chat::Usage) -> Usage {
    let count = |tokens: Option<i32>| tokens.and_then(|tokens| u64::try_from(tokens).ok()).unwrap_or(0);
    let details = usage.prompt_tokens_details.as_ref();
    let cache_read_tokens = count(details.and_then(|details| details.cached_tokens));
    let cache_write_tokens = count(details.and_then(|details| details.cache_creation_tokens));
    Usage {
        input_tokens: count(usage.prompt_tokens).saturating_sub(cache_read_tokens + cache_write_tokens),
        output_tokens: count(usage.completion_tokens),
        cache_read_tokens,
        cache_write_tokens,
        cost_micros: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::error::MAX_ERROR_CHARS;

    #[test]
    fn cached_tokens_are_counted_once() {
        let details = genai::chat::PromptTokensDetails {
            cached_tokens: Some(70),
            cache_creation_tokens: Some(20),
            ..Default::default()
        };
        let read = genai::chat::Usage {
            prompt_tokens: Some(100),
            completion_tokens: Some(5),
            prompt_tokens_details: Some(details),
            ..Default::default()
        };
        let usage = usage(&read);
        assert_eq!((usage.input_tokens, usage.output_tokens), (10, 5));
        assert_eq!((usage.cache_read_tokens, usage.cache_write_tokens), (70, 20));
    }

    #[test]
    fn a_key_is_taken_out_before_an_error_is_cut() {
        let key = Key::new("sk-0123456789abcdef");
        let pad = MAX_ERROR_CHARS - 5;
        let error = ProviderError::Refused { said: format!("{}{}", "x".repeat(pad), key.reveal()) };
        let ProviderError::Refused { said } = hide(error, Some(&key)) else { panic!("it is another") };
        assert!(!said.contains("sk-"), "{said}");
    }
}
