//! An answer as far as it has come: what readers put in, as [`Piece`]s.

use std::collections::VecDeque;

use parlor_vocab::Usage;

use super::calls::Calls;
use super::{Completion, Key, Piece, ProviderError, ProviderState, StopReason};

/// The most that one answer may have: text, thoughts with their signatures, and the inputs of calls.
pub const MAX_ANSWER_BYTES: usize = 16 << 20;

/// How often an answer may change between text and thoughts. Each change is a record in the log of the session.
pub const MAX_ANSWER_PARTS: usize = 1000;

/// An answer that is being read.
#[derive(Default)]
pub(super) struct Answer {
    pub(super) calls: Calls,
    pub(super) usage: Usage,
    /// Why it has ended, if that was said.
    pub(super) stop: Option<StopReason>,
    /// Whether nothing more is expected.
    pub(super) is_complete: bool,
    /// Text and thoughts that nobody has taken yet.
    pieces: VecDeque<Piece>,
    /// How much came that is not in `calls`.
    bytes: usize,
    parts: usize,
    is_thinking: bool,
}

impl Answer {
    /// One to a question that was asked with this key.
    pub(super) fn new(key: Option<Key>) -> Self {
        Self { calls: Calls::hiding(key), ..Self::default() }
    }

    /// The model says more.
    pub(super) fn text(&mut self, text: String) {
        self.push(false, text);
    }

    /// The model thinks more.
    pub(super) fn thought(&mut self, text: String) {
        self.push(true, text);
    }

    fn push(&mut self, is_thought: bool, text: String) {
        if text.is_empty() {
            return;
        }
        self.parts += usize::from(self.parts == 0 || self.is_thinking != is_thought);
        self.is_thinking = is_thought;
        self.bytes += text.len();
        self.pieces.push_back(if is_thought { Piece::Reasoning(text) } else { Piece::Text(text) });
    }

    /// Counts bytes that a reader keeps and shows nobody.
    pub(super) fn count(&mut self, bytes: usize) {
        self.bytes += bytes;
    }

    /// Whether it is still within its limits.
    pub(super) fn check(&self) -> Result<(), ProviderError> {
        if self.bytes + self.calls.bytes() > MAX_ANSWER_BYTES {
            let said = format!("the answer is longer than {MAX_ANSWER_BYTES} bytes");
            return Err(ProviderError::Refused { said });
        }
        if self.parts > MAX_ANSWER_PARTS {
            let said =
                format!("the answer changes between text and thoughts more than {MAX_ANSWER_PARTS} times");
            return Err(ProviderError::Refused { said });
        }
        Ok(())
    }

    /// What has come and was not taken yet.
    pub(super) fn next_piece(&mut self) -> Option<Piece> {
        self.pieces.pop_front().or_else(|| self.calls.next_piece())
    }

    /// The end. `thread` makes what the provider wants back of the number of calls.
    pub(super) fn completion(&mut self, thread: impl FnOnce(usize) -> ProviderState) -> Completion {
        let calls = self.calls.made();
        let thread = thread(calls.len());
        Completion { calls, usage: self.usage, stop: self.stop.unwrap_or_default(), thread }
    }
}

/// What the word means by which a provider says why an answer ended.
pub(super) fn stop(reason: &str) -> StopReason {
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

/// What an answer took, of a provider that counts cached tokens among those that it read.
pub(super) fn usage(
    read: Option<u64>,
    cache_read: Option<u64>,
    cache_write: Option<u64>,
    written: Option<u64>,
) -> Usage {
    let (cache_read_tokens, cache_write_tokens) = (cache_read.unwrap_or(0), cache_write.unwrap_or(0));
    Usage {
        input_tokens: read.unwrap_or(0).saturating_sub(cache_read_tokens + cache_write_tokens),
        output_tokens: written.unwrap_or(0),
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
    fn an_answer_has_so_many_parts_and_no_more() {
        let mut answer = Answer::default();
        for _ in 0..MAX_ANSWER_PARTS / 2 {
            answer.text("a".to_owned());
            answer.text("a".to_owned());
            answer.thought("b".to_owned());
        }
        assert!(answer.check().is_ok());
        answer.text("a".to_owned());
        assert!(answer.check().unwrap_err().to_string().contains("more than 1000 times"));
    }

    #[test]
    fn what_nobody_is_shown_counts() {
        let mut answer = Answer::default();
        answer.count(MAX_ANSWER_BYTES);
        assert!(answer.check().is_ok());
        answer.text("a".to_owned());
        assert!(answer.check().is_err());
    }
}
