//! What a worker prints, cut into streams.
//!
//! Both standard streams of a worker are one pipe, so text stays in order, whoever writes it. Into
//! that pipe the worker also writes marks, sixteen secret bytes and a letter: `o` and `e` say to
//! which stream the text that follows was printed.

use memchr::memmem;
use parlor_vocab::OutputStream;

use crate::{MAX_OUTPUT_BYTES, MAX_OUTPUT_PIECES, PrintedOutput, PrintedPiece};

/// What a mark starts with.
pub(crate) type Secret = [u8; 16];

/// Takes the bytes of the pipe and gives out the text.
#[derive(Debug)]
pub(crate) struct Capture {
    secret: Secret,
    /// The start of something that may become a mark.
    held: Vec<u8>,
    stream: OutputStream,
    pieces: Pieces,
}

impl Capture {
    pub(crate) fn new(secret: Secret) -> Self {
        Self { secret, held: Vec::new(), stream: OutputStream::Stdout, pieces: Pieces::default() }
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        let bytes = [std::mem::take(&mut self.held).as_slice(), bytes].concat();
        let mut rest = bytes.as_slice();
        while let Some(place) = memmem::find(rest, &self.secret) {
            let Some(letter) = rest.get(place + self.secret.len()).copied() else { break };
            let (text, after) = rest.split_at(place);
            self.pieces.push(self.stream, text);
            self.stream = if letter == b'e' { OutputStream::Stderr } else { OutputStream::Stdout };
            rest = after.get(self.secret.len() + 1..).unwrap_or_default();
        }
        let (text, held) = rest.split_at(rest.len() - self.start_of_a_mark(rest));
        self.pieces.push(self.stream, text);
        self.held = held.to_vec();
    }

    /// What was printed since this was asked last.
    pub(crate) fn take(&mut self) -> PrintedOutput {
        // A mark is written whole, so this is none.
        let held = std::mem::take(&mut self.held);
        self.pieces.push(self.stream, &held);
        std::mem::take(&mut self.pieces).into_output()
    }

    /// How many of the last bytes may be the start of a mark.
    fn start_of_a_mark(&self, bytes: &[u8]) -> usize {
        let longest = bytes.len().min(self.secret.len());
        (1..=longest)
            .rev()
            .find(|size| self.secret.get(..*size) == bytes.get(bytes.len() - size..))
            .unwrap_or(0)
    }
}

/// Text, as far as it is kept.
#[derive(Debug, Default)]
struct Pieces {
    bytes: Vec<u8>,
    /// Where in `bytes` a piece starts, and of which stream it is.
    starts: Vec<(usize, OutputStream)>,
    cut: u64,
}

impl Pieces {
    fn push(&mut self, stream: OutputStream, text: &[u8]) {
        let (kept, cut) = text.split_at(text.len().min(MAX_OUTPUT_BYTES - self.bytes.len()));
        self.cut += cut.len() as u64;
        if kept.is_empty() {
            return;
        }
        let is_other = self.starts.last().is_none_or(|(_, last)| *last != stream);
        if is_other && self.starts.len() < MAX_OUTPUT_PIECES {
            self.starts.push((self.bytes.len(), stream));
        }
        self.bytes.extend(kept);
    }

    fn into_output(mut self) -> PrintedOutput {
        if self.cut > 0 {
            let half = half_a_letter(&self.bytes);
            self.bytes.truncate(self.bytes.len() - half);
            self.cut += half as u64;
        }
        let ends = self.starts.iter().skip(1).map(|(start, _)| *start).chain([self.bytes.len()]);
        let pieces = self.starts.iter().zip(ends).map(|((start, stream), end)| PrintedPiece {
            stream: *stream,
            text: String::from_utf8_lossy(self.bytes.get(*start..end).unwrap_or_default()).into_owned(),
        });
        PrintedOutput { pieces: pieces.collect(), cut: self.cut }
    }
}

/// How many bytes at the end are a letter that goes on.
fn half_a_letter(bytes: &[u8]) -> usize {
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
    fn streams_are_told_apart_however_the_bytes_are_cut() {
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
    fn what_only_looks_like_a_mark_is_text() {
        let mut capture = capture("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaac aaaaaaaaaaaaa", 7);
        assert_eq!(capture.take().text(), "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaac aaaaaaaaaaaaa");
    }

    #[test]
    fn the_most_is_kept_and_one_byte_more_is_counted() {
        let mut capture = capture(&"x".repeat(MAX_OUTPUT_BYTES), 4096);
        let output = capture.take();
        assert_eq!((output.text().len(), output.cut), (MAX_OUTPUT_BYTES, 0));
        capture.push("x".repeat(MAX_OUTPUT_BYTES - 1).as_bytes());
        capture.push("ü".as_bytes());
        let output = capture.take();
        assert_eq!((output.pieces[0].text.len(), output.cut), (MAX_OUTPUT_BYTES - 1, 2), "no half letter");
        assert!(output.text().ends_with("x\n[… 2 more bytes were printed …]\n"));
    }

    #[test]
    fn beyond_the_most_pieces_text_stays_and_names_do_not() {
        let text = format!("{}.{}!", mark("o"), mark("e")).repeat(MAX_OUTPUT_PIECES);
        let output = capture(&text, 4096).take();
        assert_eq!(output.pieces.len(), MAX_OUTPUT_PIECES);
        assert_eq!(output.text().len(), 2 * MAX_OUTPUT_PIECES);
    }

    #[test]
    fn bytes_that_are_no_letters_are_replaced() {
        let mut capture = Capture::new(SECRET);
        capture.push(b"a\xffb");
        assert_eq!(capture.take().text(), "a\u{fffd}b");
    }

    proptest! {
        #[test]
        fn any_text_passes_in_any_pieces(text in "[ab]{0,60}", piece in 1usize..20) {
            prop_assume!(!text.contains("aaaaaaaaaaaaaaab"));
            prop_assert_eq!(capture(&text, piece).take().text(), text);
        }
    }
}
