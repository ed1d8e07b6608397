//! The bytes of an answer as [`Piece`]s. Pure: it knows no socket and no time.

use super::answer::Answer;
use super::forms::{self, Reader};
use super::split::Splitter;
use super::trouble::{error_of, said_in};
use super::{Key, Piece, ProviderError, ProviderKind};

/// How much of what may be no stream is kept, to tell what it says.
pub const MAX_ERROR_BYTES: usize = 64 << 10;

/// What a step of reading brought.
#[derive(Debug)]
pub(super) enum Step {
    Piece(Piece),
    /// An event was read, and there may be more.
    Event,
    /// There is nothing to read.
    NeedsBytes,
}

/// An answer that is being read.
pub(super) struct Reading {
    splitter: Splitter,
    reader: Box<dyn Reader>,
    answer: Answer,
    /// The beginning of a stream that has had no event.
    beginning: Option<Vec<u8>>,
}

impl Reading {
    /// Of an answer of this kind of provider to whoever asked with this key.
    pub(super) fn new(kind: ProviderKind, key: Option<Key>) -> Self {
        Self {
            splitter: Splitter::new(forms::framing(kind)),
            reader: forms::reader(kind),
            answer: Answer::new(key),
            beginning: Some(Vec::new()),
        }
    }

    /// Takes what came.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        if let Some(beginning) = &mut self.beginning {
            let room = MAX_ERROR_BYTES - beginning.len();
            beginning.extend_from_slice(&bytes[..room.min(bytes.len())]);
        }
        self.splitter.push(bytes);
    }

    /// Does a small part of the work: one event at most.
    pub(super) fn step(&mut self) -> Result<Step, ProviderError> {
        if let Some(piece) = self.answer.next_piece() {
            return Ok(Step::Piece(piece));
        }
        if self.answer.is_complete {
            let completion = self.answer.completion(|calls| self.reader.thread(calls));
            return Ok(Step::Piece(Piece::Done(completion)));
        }
        let Some(event) = self.splitter.next_event()? else { return Ok(Step::NeedsBytes) };
        self.beginning = None;
        self.reader.read(&event, &mut self.answer)?;
        self.answer.check()?;
        Ok(Step::Event)
    }

    /// Nothing more comes, because of an error maybe. Whoever has said why its answer ended has given all of it.
    pub(super) fn end(&mut self, broken: Option<ProviderError>) -> Result<(), ProviderError> {
        // What is cut within an event is not read.
        let last = self.splitter.last_event().filter(|event| forms::is_whole(&event.data));
        if let Some(event) = last {
            self.beginning = None;
            self.reader.read(&event, &mut self.answer)?;
            self.answer.check()?;
        }
        self.answer.is_complete |= self.answer.stop.is_some();
        if self.answer.is_complete {
            return Ok(());
        }
        let beginning = self.beginning.take().filter(|_| broken.is_none());
        Err(broken.or_else(|| no_stream(&beginning?)).unwrap_or_else(cut_off))
    }
}

fn cut_off() -> ProviderError {
    ProviderError::broken("the stream ended before the answer was complete")
}

/// What is said of bytes that came in the place of a stream.
fn no_stream(bytes: &[u8]) -> Option<ProviderError> {
    let text = String::from_utf8_lossy(bytes);
    let text = text.trim();
    if text.starts_with(['{', '[']) {
        return Some(error_of(text).unwrap_or_else(|| {
            ProviderError::broken(format!("JSON came in the place of a stream: {}", said_in(text)))
        }));
    }
    let is_page = text.starts_with('<');
    is_page.then(|| ProviderError::broken("a page of HTML came in the place of a stream"))
}

/// Reads an answer that was recorded, in pieces as they came: what would be passed on, and how it would end.
///
/// For tests and fuzzing: `Connection` reads in the same way.
pub fn read_recorded<'b>(
    kind: ProviderKind,
    bytes: impl IntoIterator<Item = &'b [u8]>,
) -> Vec<Result<Piece, ProviderError>> {
    let (mut reading, mut read) = (Reading::new(kind, None), Vec::new());
    let mut bytes = bytes.into_iter();
    loop {
        let stepped = match reading.step() {
            Ok(Step::NeedsBytes) => match bytes.next() {
                Some(bytes) => {
                    reading.push(bytes);
                    Ok(Step::Event)
                }
                None => reading.end(None).map(|()| Step::Event),
            },
            other => other,
        };
        match stepped {
            Ok(Step::Event | Step::NeedsBytes) => {}
            Ok(Step::Piece(piece)) => {
                let is_last = matches!(piece, Piece::Done(_));
                read.push(Ok(piece));
                if is_last {
                    return read;
                }
            }
            Err(error) => {
                read.push(Err(error));
                return read;
            }
        }
    }
}

/// What fuzzing drives. The first byte is the kind of provider, the second how long the pieces are that the others come
/// in.
///
/// # Panics
///
/// If pieces depend on how the bytes are cut, or if an answer has no end or goes on after it.
pub fn check_recorded(input: &[u8]) {
    let [kind, length, bytes @ ..] = input else { return };
    let kind = ProviderKind::ALL[usize::from(*kind) % ProviderKind::ALL.len()];
    let read = read_recorded(kind, [bytes]);
    let is_end = |piece: &Result<Piece, ProviderError>| matches!(piece, Err(_) | Ok(Piece::Done(_)));
    let ends = read.iter().position(is_end);
    assert_eq!(ends, Some(read.len() - 1), "an answer ends once: {read:?}");
    let in_pieces = read_recorded(kind, bytes.chunks(usize::from(*length) + 1));
    assert_eq!(format!("{read:?}"), format!("{in_pieces:?}"), "the cut makes a difference");
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn end(kind: ProviderKind, text: &str) -> ProviderError {
        read_recorded(kind, [text.as_bytes()]).pop().unwrap().unwrap_err()
    }

    #[test]
    fn what_comes_in_the_place_of_a_stream_is_told() {
        let kind = ProviderKind::OpenAi;
        let error = end(kind, "{\n \"error\": {\"type\": \"overloaded_error\", \"message\": \"later\"}\n}");
        assert_eq!((error.code().as_str(), error.to_string().contains("later")), ("MODEL_BUSY", true));
        let error = end(ProviderKind::Gemini, r#"[{"error":{"code":404,"message":"no such model"}}]"#);
        assert!(error.to_string().contains("404: no such model"), "{error}");
        let error = end(kind, r#"{"detail":"Not here"}"#);
        assert!(error.is_retryable() && error.to_string().contains("Not here"), "{error}");
        assert!(end(kind, "<html>").to_string().contains("a page of HTML"));
        assert!(end(kind, "hello").to_string().contains("the stream ended before"));
        // Once there was an event, it was a stream.
        assert!(end(kind, "data: {}\n\n<html>").to_string().contains("the stream ended before"));
    }

    #[test]
    fn what_fuzzing_drives_finds_nothing_in_what_is_recorded() {
        for (number, (_, text)) in (0..).zip(RECORDED) {
            check_recorded(&[&[number, 3], text.as_bytes()].concat());
        }
        check_recorded(b"");
    }

    #[test]
    fn what_is_cut_within_an_event_is_left_out() {
        let whole = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"},\"finish_reason\":\"stop\"}]}\n\n";
        let read = read_recorded(ProviderKind::OpenAi, [whole.as_bytes(), b"data: {\"choi"]);
        assert!(matches!(read.last(), Some(Ok(Piece::Done(_)))), "{read:?}");
        let read = read_recorded(ProviderKind::OpenAi, [whole.trim_end().as_bytes()]);
        assert!(matches!(read.last(), Some(Ok(Piece::Done(_)))), "{read:?}");
    }

    /// Answers in each form.
    const RECORDED: [(ProviderKind, &str); 5] = [
        (ProviderKind::OpenAi, include_str!("../../tests/recorded/chat.txt")),
        (ProviderKind::OpenAiResponses, include_str!("../../tests/recorded/responses.txt")),
        (ProviderKind::Anthropic, include_str!("../../tests/recorded/anthropic.txt")),
        (ProviderKind::Gemini, include_str!("../../tests/recorded/gemini.txt")),
        (ProviderKind::Ollama, include_str!("../../tests/recorded/ollama.txt")),
    ];

    #[test]
    fn a_recorded_answer_of_each_form_is_read() {
        for (kind, bytes) in RECORDED {
            let read = read_recorded(kind, [bytes.as_bytes()]);
            let (mut text, mut thought) = (String::new(), String::new());
            for piece in &read[..read.len() - 1] {
                match piece.as_ref().unwrap() {
                    Piece::Text(more) => text.push_str(more),
                    Piece::Reasoning(more) => thought.push_str(more),
                    Piece::CallInput { .. } => {}
                    Piece::Done(_) => panic!("it goes on after its end"),
                }
            }
            let Some(Ok(Piece::Done(done))) = read.last() else { panic!("{kind:?}: {:?}", read.last()) };
            assert_eq!((text.as_str(), thought.as_str()), ("I look.\u{e4}", "Look first."), "{kind:?}");
            assert_eq!((done.calls.len(), done.calls[0].tool.as_str()), (1, "read_file"), "{kind:?}");
            let input: serde_json::Value = serde_json::from_str(&done.calls[0].input).unwrap();
            assert_eq!(input, serde_json::json!({"path": "one.txt"}), "{kind:?}");
            let usage = done.usage;
            assert_eq!(
                (usage.input_tokens, usage.cache_read_tokens, usage.output_tokens),
                (20, 10, 5),
                "{kind:?}"
            );
            assert_eq!(done.thread.bytes() > 0, kind != ProviderKind::Ollama, "{kind:?}");
        }
    }

    /// What is put into answers to mangle them.
    const SHARDS: [&str; 12] = [
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
        fn a_mangled_answer_is_read_to_one_end(
            form in 0..RECORDED.len(),
            as_kind in 0..6_u8,
            length in 0..=255_u8,
            cuts in prop::collection::vec((0..4000_usize, 0..40_usize, 0..SHARDS.len()), 1..6),
        ) {
            let mut bytes = RECORDED[form].1.as_bytes().to_vec();
            for (place, removed, shard) in cuts {
                let place = place % bytes.len();
                let end = (place + removed).min(bytes.len());
                bytes.splice(place..end, SHARDS[shard].bytes());
            }
            check_recorded(&[&[as_kind, length][..], &bytes].concat());
        }

        #[test]
        fn any_cut_gives_the_same_pieces(form in 0..RECORDED.len(), cuts in prop::collection::vec(0..400_usize, 0..20)) {
            let (kind, text) = RECORDED[form];
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
