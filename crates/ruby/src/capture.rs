//! Splits the printed output of a worker into its two streams.
//!
//! Both standard streams of a worker are one pipe, so that text stays in order, whichever process writes it. The
//! worker also writes marks into that pipe: sixteen secret bytes and a letter, `o` or `e`, for the stream of the text
//! that follows.

use memchr::memmem;
use parlor_vocab::OutputStream;

use crate::{MAX_OUTPUT_BYTES, MAX_OUTPUT_PIECES, PrintedOutput, PrintedPiece};

/// The bytes that a mark begins with.
pub(crate) type Secret = [u8; 16];

/// Turns the bytes of the pipe into text with its streams.
#[derive(Debug)]
pub(crate) struct Capture {
    secret: Secret,
    /// The last bytes so far, if they may be the start of a mark.
    partial_mark: Vec<u8>,
    stream: OutputStream,
    pieces: Pieces,
}

impl Capture {
    pub(crate) fn new(secret: Secret) -> Self {
        Self { secret, partial_mark: Vec::new(), stream: OutputStream::Stdout, pieces: Pieces::default() }
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        let bytes = [std::mem::take(&mut self.partial_mark).as_slice(), bytes].concat();
        let mut rest = bytes.as_slice();
        while let Some(position) = memmem::find(rest, &self.secret) {
            let Some(letter) = rest.get(position + self.secret.len()).copied() else { break };
            let (text, after) = rest.split_at(position);
            self.pieces.push(self.stream, text);
            self.stream = if letter == b'e' { OutputStream::Stderr } else { OutputStream::Stdout };
            rest = after.get(self.secret.len() + 1..).unwrap_or_default();
        }
        let (text, held) = rest.split_at(rest.len() - self.partial_mark_len(rest));
        self.pieces.push(self.stream, text);
        self.partial_mark = held.to_vec();
    }

    /// Takes the text that was printed since the last call.
    pub(crate) fn take(&mut self) -> PrintedOutput {
        // The worker writes a mark with one write, so these bytes are text.
        let held = std::mem::take(&mut self.partial_mark);
        self.pieces.push(self.stream, &held);
        std::mem::take(&mut self.pieces).into_output()
    }

    /// How many of the last bytes may be the start of a mark.
    fn partial_mark_len(&self, bytes: &[u8]) -> usize {
        let longest = bytes.len().min(self.secret.len());
        (1..=longest)
            .rev()
            .find(|size| self.secret.get(..*size) == bytes.get(bytes.len() - size..))
            .unwrap_or(0)
    }
}

/// The kept text in pieces.
#[derive(Debug, Default)]
struct Pieces {
    bytes: Vec<u8>,
    /// The offset in `bytes` at which each piece starts, with its stream.
    starts: Vec<(usize, OutputStream)>,
    omitted_bytes: u64,
}

impl Pieces {
    fn push(&mut self, stream: OutputStream, text: &[u8]) {
        let (kept, omitted) = text.split_at(text.len().min(MAX_OUTPUT_BYTES - self.bytes.len()));
        self.omitted_bytes += omitted.len() as u64;
        if kept.is_empty() {
            return;
        }
        let is_new_stream = self.starts.last().is_none_or(|(_, last)| *last != stream);
        if is_new_stream && self.starts.len() < MAX_OUTPUT_PIECES {
            self.starts.push((self.bytes.len(), stream));
        }
        self.bytes.extend(kept);
    }

    fn into_output(mut self) -> PrintedOutput {
        if self.omitted_bytes > 0 {
            let incomplete = incomplete_char_len(&self.bytes);
            self.bytes.truncate(self.bytes.len() - incomplete);
            self.omitted_bytes += incomplete as u64;
        }
        let ends = self.starts.iter().skip(1).map(|(start, _)| *start).chain([self.bytes.len()]);
        let pieces = self.starts.iter().zip(ends).map(|((start, stream), end)| PrintedPiece {
            stream: *stream,
            text: String::from_utf8_lossy(self.bytes.get(*start..end).unwrap_or_default()).into_owned(),
        });
        PrintedOutput { pieces: pieces.collect(), omitted_bytes: self.omitted_bytes }
    }
}

/// How many bytes at the end are the start of an incomplete UTF-8 character.
fn incomplete_char_len(bytes: &[u8]) -> usize {
    bytes.utf8_chunks().last().map_or(0, |chunk| {
        let tail = chunk.invalid();
        match std::str::from_utf8(tail) {
            Err(error) if error.error_len().is_none() => tail.len(),
            Ok(_) | Err(_) => 0,
        }
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECRET: Secret = *b"aaaaaaaaaaaaaaab";

    fn mark(letter: &str) -> String {
        format!("aaaaaaaaaaaaaaab{letter}")
    }

    fn capture(text: &str, piece: usize) -> Capture {
        let mut capture = Capture::new(SECRET);
        text.as_bytes().chunks(piece).for_each(|bytes| capture.push(bytes));
        capture
    }

    fn printed(stream: OutputStream, text: &str) -> PrintedPiece {
        PrintedPiece { stream, text: text.to_owned() }
    }

    #[test]
    fn streams_are_separated_for_pieces_of_any_size() {
        let text = format!("one{}two{}a{}three", mark("e"), mark("o"), mark("e"));
        for piece in 1..text.len() {
            let mut capture = capture(&text, piece);
            let expected = [
                printed(OutputStream::Stdout, "one"),
                printed(OutputStream::Stderr, "two"),
                printed(OutputStream::Stdout, "a"),
                printed(OutputStream::Stderr, "three"),
            ];
            assert_eq!(capture.take().pieces, expected, "in pieces of {piece}");
            assert!(capture.take().is_empty());
            capture.push(b"later");
            assert_eq!(capture.take().pieces, [printed(OutputStream::Stderr, "later")]);
        }
    }

    #[test]
    fn bytes_that_only_resemble_a_mark_are_text() {
        let mut capture = capture("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaac aaaaaaaaaaaaa", 7);
        assert_eq!(capture.take().text(), "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaac aaaaaaaaaaaaa");
    }

    #[test]
    fn output_beyond_the_limit_is_counted_but_not_kept() {
        let mut capture = capture(&"x".repeat(MAX_OUTPUT_BYTES), 4096);
        let output = capture.take();
        assert_eq!((output.text().len(), output.omitted_bytes), (MAX_OUTPUT_BYTES, 0));
        capture.push("x".repeat(MAX_OUTPUT_BYTES - 1).as_bytes());
        capture.push("ü".as_bytes());
        let output = capture.take();
        assert_eq!(
            (output.pieces[0].text.len(), output.omitted_bytes),
            (MAX_OUTPUT_BYTES - 1, 2),
            "no incomplete character"
        );
        assert!(output.text().ends_with("x\n[… 2 more bytes were printed …]\n"));
    }

    #[test]
    fn text_beyond_the_limit_of_pieces_joins_the_last_piece() {
        let text = format!("{}.{}!", mark("o"), mark("e")).repeat(MAX_OUTPUT_PIECES);
        let output = capture(&text, 4096).take();
        assert_eq!(output.pieces.len(), MAX_OUTPUT_PIECES);
        assert_eq!(output.text().len(), 2 * MAX_OUTPUT_PIECES);
    }

    #[test]
    fn bytes_that_are_not_utf8_are_replaced() {
        let mut capture = Capture::new(SECRET);
        capture.push(b"a\xffb");
        assert_eq!(capture.take().text(), "a\u{fffd}b");
    }

    proptest! {
        #[test]
        fn any_text_comes_out_unchanged_for_pieces_of_any_size(text in "[ab]{0,60}", piece in 1usize..20) {
            prop_assume!(!text.contains("aaaaaaaaaaaaaaab"));
            prop_assert_eq!(capture(&text, piece).take().text(), text);
        }
    }
}
