//! Decodes the bytes of an answer into [`Piece`]s. Pure: no sockets, no clock.

use super::answer::Answer;
use super::classify_error::{error_in_body, error_message};
use super::formats::{self, EventReader};
use super::split::Splitter;
use super::{Key, Piece, ProviderError, ProviderKind};

/// How many bytes of an error, or of a response that is not a stream, are kept for the message.
pub const MAX_ERROR_BYTES: usize = 64 << 10;

/// The result of [`AnswerReader::step`].
#[derive(Debug)]
pub(super) enum Step {
    Piece(Piece),
    /// An event was decoded without a piece; call `step` again.
    Event,
    /// More bytes are needed.
    NeedsBytes,
}

/// Decodes one answer.
pub(super) struct AnswerReader {
    splitter: Splitter,
    reader: Box<dyn EventReader>,
    answer: Answer,
    /// The first bytes of the response; `None` after the first event.
    beginning: Option<Vec<u8>>,
}

impl AnswerReader {
    /// A reader for an answer of this kind of provider to a request with this key.
    pub(super) fn new(kind: ProviderKind, key: Option<Key>) -> Self {
        Self {
            splitter: Splitter::new(formats::framing(kind)),
            reader: formats::reader(kind),
            answer: Answer::new(key),
            beginning: Some(Vec::new()),
        }
    }

    /// Adds received bytes.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        if let Some(beginning) = &mut self.beginning {
            let missing = MAX_ERROR_BYTES - beginning.len();
            beginning.extend_from_slice(&bytes[..missing.min(bytes.len())]);
        }
        self.splitter.push(bytes);
    }

    /// Decodes at most one event.
    pub(super) fn step(&mut self) -> Result<Step, ProviderError> {
        if let Some(piece) = self.answer.next_piece() {
            return Ok(Step::Piece(piece));
        }
        if self.answer.is_complete {
            let completion = self.answer.completion(|calls| self.reader.provider_state(calls));
            return Ok(Step::Piece(Piece::Done(completion)));
        }
        let Some(event) = self.splitter.next_event()? else { return Ok(Step::NeedsBytes) };
        self.beginning = None;
        self.reader.read(&event, &mut self.answer)?;
        self.answer.check_limits()?;
        Ok(Step::Event)
    }

    /// Ends the stream, with the error that ended it. If the provider has already sent the reason for the end of the
    /// answer, the answer is complete all the same.
    pub(super) fn end(&mut self, error: Option<ProviderError>) -> Result<(), ProviderError> {
        // An event that was cut off is ignored.
        let last = self.splitter.last_event().filter(|event| formats::is_complete(&event.data));
        if let Some(event) = last {
            self.beginning = None;
            self.reader.read(&event, &mut self.answer)?;
            self.answer.check_limits()?;
        }
        self.answer.is_complete |= self.answer.stop.is_some();
        if self.answer.is_complete {
            return Ok(());
        }
        let beginning = self.beginning.take().filter(|_| error.is_none());
        Err(error.or_else(|| not_a_stream(&beginning?)).unwrap_or_else(incomplete))
    }
}

fn incomplete() -> ProviderError {
    ProviderError::broken("the stream ended before the answer was complete")
}

/// The error for a response that is JSON or HTML instead of a stream.
fn not_a_stream(bytes: &[u8]) -> Option<ProviderError> {
    let text = String::from_utf8_lossy(bytes);
    let text = text.trim();
    if text.starts_with(['{', '[']) {
        return Some(error_in_body(text).unwrap_or_else(|| {
            ProviderError::broken(format!("JSON came in the place of a stream: {}", error_message(text)))
        }));
    }
    let is_page = text.starts_with('<');
    is_page.then(|| ProviderError::broken("a page of HTML came in the place of a stream"))
}

/// Decodes a recorded answer that arrives in these chunks of bytes.
///
/// For tests and fuzzing. `Connection` decodes in the same way.
pub fn read_recorded<'b>(
    kind: ProviderKind,
    bytes: impl IntoIterator<Item = &'b [u8]>,
) -> Vec<Result<Piece, ProviderError>> {
    let (mut reader, mut pieces) = (AnswerReader::new(kind, None), Vec::new());
    let mut bytes = bytes.into_iter();
    loop {
        let step = match reader.step() {
            Ok(Step::NeedsBytes) => match bytes.next() {
                Some(bytes) => {
                    reader.push(bytes);
                    Ok(Step::Event)
                }
                None => reader.end(None).map(|()| Step::Event),
            },
            other => other,
        };
        match step {
            Ok(Step::Event | Step::NeedsBytes) => {}
            Ok(Step::Piece(piece)) => {
                let is_last = matches!(piece, Piece::Done(_));
                pieces.push(Ok(piece));
                if is_last {
                    return pieces;
                }
            }
            Err(error) => {
                pieces.push(Err(error));
                return pieces;
            }
        }
    }
}

/// The body of a fuzz target. The first byte of `input` chooses the kind of provider, the second the size of the
/// chunks.
///
/// # Panics
///
/// If the pieces depend on the chunks, or if an answer has no end or continues after it.
pub fn check_recorded(input: &[u8]) {
    let [kind, length, bytes @ ..] = input else { return };
    let kind = ProviderKind::ALL[usize::from(*kind) % ProviderKind::ALL.len()];
    let read = read_recorded(kind, [bytes]);
    let is_end = |piece: &Result<Piece, ProviderError>| matches!(piece, Err(_) | Ok(Piece::Done(_)));
    let ends = read.iter().position(is_end);
    assert_eq!(ends, Some(read.len() - 1), "an answer must end once: {read:?}");
    let chunked = read_recorded(kind, bytes.chunks(usize::from(*length) + 1));
    assert_eq!(format!("{read:?}"), format!("{chunked:?}"), "the result must not depend on the chunks");
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn end(kind: ProviderKind, text: &str) -> ProviderError {
        read_recorded(kind, [text.as_bytes()]).pop().unwrap().unwrap_err()
    }

    #[test]
    fn a_response_that_is_not_a_stream_is_reported() {
        let kind = ProviderKind::OpenAi;
        let error = end(kind, "{\n \"error\": {\"type\": \"overloaded_error\", \"message\": \"later\"}\n}");
        assert_eq!((error.code().as_str(), error.to_string().contains("later")), ("MODEL_BUSY", true));
        let error = end(ProviderKind::Gemini, r#"[{"error":{"code":404,"message":"no such model"}}]"#);
        assert!(error.to_string().contains("404: no such model"), "{error}");
        let error = end(kind, r#"{"detail":"Not here"}"#);
        assert!(error.is_retryable() && error.to_string().contains("Not here"), "{error}");
        assert!(end(kind, "<html>").to_string().contains("a page of HTML"));
        assert!(end(kind, "hello").to_string().contains("the stream ended before"));
        // After the first event, the response counts as a stream.
        assert!(end(kind, "data: {}\n\n<html>").to_string().contains("the stream ended before"));
    }

    #[test]
    fn the_fuzz_target_accepts_the_recorded_answers() {
        for (number, (_, text)) in (0..).zip(RECORDED) {
            check_recorded(&[&[number, 3], text.as_bytes()].concat());
        }
        check_recorded(b"");
    }

    #[test]
    fn an_event_that_is_cut_off_is_ignored() {
        let complete = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"},\"finish_reason\":\"stop\"}]}\n\n";
        let read = read_recorded(ProviderKind::OpenAi, [complete.as_bytes(), b"data: {\"choi"]);
        assert!(matches!(read.last(), Some(Ok(Piece::Done(_)))), "{read:?}");
        let read = read_recorded(ProviderKind::OpenAi, [complete.trim_end().as_bytes()]);
        assert!(matches!(read.last(), Some(Ok(Piece::Done(_)))), "{read:?}");
    }

    /// An answer in each format.
    const RECORDED: [(ProviderKind, &str); 5] = [
        (ProviderKind::OpenAi, include_str!("../../tests/recorded/chat.txt")),
        (ProviderKind::OpenAiResponses, include_str!("../../tests/recorded/responses.txt")),
        (ProviderKind::Anthropic, include_str!("../../tests/recorded/anthropic.txt")),
        (ProviderKind::Gemini, include_str!("../../tests/recorded/gemini.txt")),
        (ProviderKind::Ollama, include_str!("../../tests/recorded/ollama.txt")),
    ];

    #[test]
    fn a_recorded_answer_of_each_format_is_decoded() {
        for (kind, bytes) in RECORDED {
            let read = read_recorded(kind, [bytes.as_bytes()]);
            let (mut text, mut reasoning) = (String::new(), String::new());
            for piece in &read[..read.len() - 1] {
                match piece.as_ref().unwrap() {
                    Piece::Text(more) => text.push_str(more),
                    Piece::Reasoning(more) => reasoning.push_str(more),
                    Piece::CallInput { .. } => {}
                    Piece::Done(_) => panic!("the answer continues after its end"),
                }
            }
            let Some(Ok(Piece::Done(done))) = read.last() else { panic!("{kind:?}: {:?}", read.last()) };
            assert_eq!((text.as_str(), reasoning.as_str()), ("I look.\u{e4}", "Look first."), "{kind:?}");
            assert_eq!((done.calls.len(), done.calls[0].tool.as_str()), (1, "read_file"), "{kind:?}");
            let input: serde_json::Value = serde_json::from_str(&done.calls[0].input).unwrap();
            assert_eq!(input, serde_json::json!({"path": "one.txt"}), "{kind:?}");
            let usage = done.usage;
            assert_eq!(
                (usage.input_tokens, usage.cache_read_tokens, usage.output_tokens),
                (20, 10, 5),
                "{kind:?}"
            );
            assert_eq!(done.provider_state.bytes() > 0, kind != ProviderKind::Ollama, "{kind:?}");
        }
    }

    /// Fragments that the test inserts into answers.
    const FRAGMENTS: [&str; 12] = [
        "\n",
        "\r\n\r\n",
        "data: ",
        "event: error\n",
        "{",
        "}",
        "[",
        "\"",
        "null",
        "\"error\":{},",
        "[DONE]",
        "\u{fffd}",
    ];

    proptest! {
        #[test]
        fn a_mangled_answer_ends_once(
            format in 0..RECORDED.len(),
            as_kind in 0..6_u8,
            length in 0..=255_u8,
            cuts in prop::collection::vec((0..4000_usize, 0..40_usize, 0..FRAGMENTS.len()), 1..6),
        ) {
            let mut bytes = RECORDED[format].1.as_bytes().to_vec();
            for (position, removed, fragment) in cuts {
                let position = position % bytes.len();
                let end = (position + removed).min(bytes.len());
                bytes.splice(position..end, FRAGMENTS[fragment].bytes());
            }
            check_recorded(&[&[as_kind, length][..], &bytes].concat());
        }

        #[test]
        fn the_pieces_do_not_depend_on_the_chunks(format in 0..RECORDED.len(), cuts in prop::collection::vec(0..400_usize, 0..20)) {
            let (kind, text) = RECORDED[format];
            let (mut pieces, mut rest) = (Vec::new(), text.as_bytes());
            for cut in cuts {
                let (piece, more) = rest.split_at(cut.min(rest.len()));
                pieces.push(piece);
                rest = more;
            }
            pieces.push(rest);
            let whole = format!("{:?}", read_recorded(kind, [text.as_bytes()]));
            prop_assert_eq!(format!("{:?}", read_recorded(kind, pieces)), whole);
        }
    }
}
