//! The state of a partially received answer, from which [`Piece`]s are taken.

use std::collections::VecDeque;

use parlor_vocab::Usage;

use super::calls::Calls;
use super::{Completion, Key, Piece, ProviderError, ProviderState, StopReason};

/// The largest answer in bytes: text, reasoning with its signatures, and the inputs of calls.
pub const MAX_ANSWER_BYTES: usize = 16 << 20;

/// How many times an answer may switch between text and reasoning. Each switch adds a record to the log of the
/// session.
pub const MAX_ANSWER_PARTS: usize = 1000;

/// A partially received answer.
#[derive(Default)]
pub(super) struct Answer {
    pub(super) calls: Calls,
    pub(super) usage: Usage,
    /// Why the answer ended, once the provider has sent the reason.
    pub(super) stop: Option<StopReason>,
    /// Whether the provider has sent the end of the answer.
    pub(super) is_complete: bool,
    /// Text and reasoning that [`next_piece`](Self::next_piece) has not returned yet.
    pieces: VecDeque<Piece>,
    /// The size of what is not in `calls`.
    bytes: usize,
    parts: usize,
    is_reasoning: bool,
}

impl Answer {
    /// An empty answer to a request with this key, which must not appear in tool names.
    pub(super) fn new(key: Option<Key>) -> Self {
        Self { calls: Calls::new(key), ..Self::default() }
    }

    /// Adds text.
    pub(super) fn push_text(&mut self, text: String) {
        self.push(false, text);
    }

    /// Adds reasoning.
    pub(super) fn push_reasoning(&mut self, text: String) {
        self.push(true, text);
    }

    fn push(&mut self, is_reasoning: bool, text: String) {
        if text.is_empty() {
            return;
        }
        self.parts += usize::from(self.parts == 0 || self.is_reasoning != is_reasoning);
        self.is_reasoning = is_reasoning;
        self.bytes += text.len();
        self.pieces.push_back(if is_reasoning { Piece::Reasoning(text) } else { Piece::Text(text) });
    }

    /// Counts bytes that a reader stores outside of the answer.
    pub(super) fn add_bytes(&mut self, bytes: usize) {
        self.bytes += bytes;
    }

    /// Fails if the answer exceeds a limit.
    pub(super) fn check_limits(&self) -> Result<(), ProviderError> {
        if self.bytes + self.calls.bytes() > MAX_ANSWER_BYTES {
            let message = format!("the answer is longer than {MAX_ANSWER_BYTES} bytes");
            return Err(ProviderError::Refused { message });
        }
        if self.parts > MAX_ANSWER_PARTS {
            let message =
                format!("the answer changes between text and thoughts more than {MAX_ANSWER_PARTS} times");
            return Err(ProviderError::Refused { message });
        }
        Ok(())
    }

    /// The next piece that was not returned yet.
    pub(super) fn next_piece(&mut self) -> Option<Piece> {
        self.pieces.pop_front().or_else(|| self.calls.next_piece())
    }

    /// The completion. `provider_state` returns the state to send back for an answer with this number of calls.
    pub(super) fn completion(&mut self, provider_state: impl FnOnce(usize) -> ProviderState) -> Completion {
        let calls = self.calls.take();
        let provider_state = provider_state(calls.len());
        Completion { calls, usage: self.usage, stop: self.stop.unwrap_or_default(), provider_state }
    }
}

/// Translates a provider's reason for the end of an answer.
pub(super) fn stop_reason(reason: &str) -> StopReason {
    match reason {
        "length" | "max_tokens" | "MAX_TOKENS" | "model_length" | "model_context_window_exceeded" => {
            StopReason::Length
        }
        "content_filter"
        | "refusal"
        | "SAFETY"
        | "RECITATION"
        | "BLOCKLIST"
        | "PROHIBITED_CONTENT"
        | "SPII"
        | "LANGUAGE"
        | "IMAGE_SAFETY"
        | "IMAGE_PROHIBITED_CONTENT"
        | "IMAGE_RECITATION" => StopReason::Filtered,
        _ => StopReason::Complete,
    }
}

/// The usage of an answer, for providers that include cached tokens in the input tokens.
pub(super) fn usage(
    input: Option<u64>,
    cache_read: Option<u64>,
    cache_write: Option<u64>,
    output: Option<u64>,
) -> Usage {
    let (cache_read_tokens, cache_write_tokens) = (cache_read.unwrap_or(0), cache_write.unwrap_or(0));
    Usage {
        input_tokens: input.unwrap_or(0).saturating_sub(cache_read_tokens + cache_write_tokens),
        output_tokens: output.unwrap_or(0),
        cache_read_tokens,
        cache_write_tokens,
        cost_micros: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cached_tokens_are_counted_once() {
        let usage = usage(Some(100), Some(70), Some(20), Some(5));
        assert_eq!((usage.input_tokens, usage.output_tokens), (10, 5));
        assert_eq!((usage.cache_read_tokens, usage.cache_write_tokens), (70, 20));
    }

    #[test]
    fn the_number_of_switches_is_limited() {
        let mut answer = Answer::default();
        for _ in 0..MAX_ANSWER_PARTS / 2 {
            answer.push_text("a".to_owned());
            answer.push_text("a".to_owned());
            answer.push_reasoning("b".to_owned());
        }
        assert!(answer.check_limits().is_ok());
        answer.push_text("a".to_owned());
        assert!(answer.check_limits().unwrap_err().to_string().contains("more than 1000 times"));
    }

    #[test]
    fn bytes_outside_of_the_answer_count() {
        let mut answer = Answer::default();
        answer.add_bytes(MAX_ANSWER_BYTES);
        assert!(answer.check_limits().is_ok());
        answer.push_text("a".to_owned());
        assert!(answer.check_limits().is_err());
    }
}
