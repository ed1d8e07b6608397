//! Splits a stream of bytes into lines and buffers at most one line of a limited length.
//!
//! The lines do not depend on the chunks in which the bytes arrive. The decoder reports a line above the limit once,
//! drops its bytes as they arrive, and continues with the line after its newline.

/// One line of the stream.
#[derive(Debug, PartialEq, Eq)]
pub enum Line<'a> {
    /// A line without its `\n`. A `\r` before the `\n` is part of the line, unless `\r` ends lines too.
    Whole(&'a [u8]),
    /// A line above the limit; its bytes are dropped.
    Oversize,
}

/// A decoder that splits bytes into lines.
#[derive(Debug)]
pub struct Lines {
    limit: usize,
    /// Whether `\r` ends a line too.
    ends_at_return: bool,
    /// `buffer[start..]` was not returned yet.
    buffer: Vec<u8>,
    start: usize,
    /// `buffer[start..searched]` has no newline. Without this the search would be quadratic when a long line arrives
    /// in small chunks.
    searched: usize,
    /// The arriving line was reported as oversize: drop its bytes up to the newline.
    skipping: bool,
}

/// A buffer that grew beyond this for a long line shrinks to this size after that line.
const MAX_IDLE_BUFFER_BYTES: usize = 256 * 1024;

impl Lines {
    /// A decoder of lines of at most `limit` bytes, not counting the newline.
    pub fn new(limit: usize) -> Self {
        let (ends_at_return, buffer) = (false, Vec::new());
        Self { limit, ends_at_return, buffer, start: 0, searched: 0, skipping: false }
    }

    /// Also ends lines at `\r`. So `\r\n` ends two lines, and the second one is empty.
    #[must_use]
    pub fn ending_at_return(self) -> Self {
        Self { ends_at_return: true, ..self }
    }

    /// Sets the limit for the next line and all later ones.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// Adds the next bytes of the stream.
    pub fn push(&mut self, mut bytes: &[u8]) {
        self.discard_returned();
        if self.skipping {
            let Some(newline) = self.line_end(bytes) else { return };
            self.skipping = false;
            bytes = bytes.get(newline + 1..).unwrap_or_default();
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// The next complete line, or `None` until more bytes arrive.
    pub fn next_line(&mut self) -> Option<Line<'_>> {
        let unsearched = self.buffer.get(self.searched..).unwrap_or_default();
        match self.line_end(unsearched) {
            Some(offset) => {
                let (from, to) = (self.start, self.searched + offset);
                self.start = to + 1;
                self.searched = self.start;
                Some(self.check_length(from, to))
            }
            None => {
                self.searched = self.buffer.len();
                if self.buffer.len() - self.start > self.limit {
                    self.buffer = Vec::new();
                    self.start = 0;
                    self.searched = 0;
                    self.skipping = true;
                    return Some(Line::Oversize);
                }
                None
            }
        }
    }

    /// The buffered bytes: what has arrived of the line that [`next_line`] returns next, and everything after it.
    ///
    /// [`next_line`]: Lines::next_line
    pub fn unread(&self) -> &[u8] {
        self.buffer.get(self.start..).unwrap_or_default()
    }

    /// The last line, if the stream ended without a newline after it.
    pub fn finish(&mut self) -> Option<Line<'_>> {
        let (from, to) = (self.start, self.buffer.len());
        if from == to {
            return None;
        }
        self.start = to;
        self.searched = to;
        Some(self.check_length(from, to))
    }

    /// How many bytes are buffered and not returned yet.
    pub fn buffered_bytes(&self) -> usize {
        self.buffer.len() - self.start
    }

    /// Frees the memory of lines that were returned.
    pub fn release_memory(&mut self) {
        if self.start == self.buffer.len() {
            self.discard_returned();
        }
    }

    fn line_end(&self, bytes: &[u8]) -> Option<usize> {
        if self.ends_at_return { memchr::memchr2(b'\n', b'\r', bytes) } else { memchr::memchr(b'\n', bytes) }
    }

    fn check_length(&self, from: usize, to: usize) -> Line<'_> {
        if to - from > self.limit {
            return Line::Oversize;
        }
        Line::Whole(self.buffer.get(from..to).unwrap_or_default())
    }

    fn discard_returned(&mut self) {
        if self.start == self.buffer.len() {
            self.buffer.clear();
            self.buffer.shrink_to(MAX_IDLE_BUFFER_BYTES);
        } else if self.start > 0 {
            self.buffer.drain(..self.start);
        }
        self.searched -= self.start;
        self.start = 0;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMIT: usize = 8;

    fn split(pieces: &[&[u8]]) -> Vec<Option<Vec<u8>>> {
        let mut lines = Lines::new(LIMIT);
        let mut out = Vec::new();
        let to_owned_line = |line: Line<'_>| match line {
            Line::Whole(bytes) => Some(bytes.to_vec()),
            Line::Oversize => None,
        };
        for piece in pieces {
            lines.push(piece);
            while let Some(line) = lines.next_line() {
                out.push(to_owned_line(line));
            }
        }
        out.extend(lines.finish().map(to_owned_line));
        out
    }

    fn whole(text: &str) -> Option<Vec<u8>> {
        Some(text.as_bytes().to_vec())
    }

    #[test]
    fn lines_come_out_without_their_newline() {
        assert_eq!(split(&[b"one\n\ntwo\r\n"]), [whole("one"), whole(""), whole("two\r")]);
    }

    #[test]
    fn a_return_ends_a_line_where_the_dialect_says_so() {
        let mut lines = Lines::new(LIMIT).ending_at_return();
        lines.push(b"one\rtwo\r\n123456789");
        for expected in ["one", "two", ""] {
            assert_eq!(lines.next_line(), Some(Line::Whole(expected.as_bytes())));
        }
        assert_eq!(lines.next_line(), Some(Line::Oversize));
        lines.push(b"more\rok");
        assert_eq!(lines.next_line(), None);
        assert_eq!(lines.finish(), Some(Line::Whole(b"ok")));
    }

    #[test]
    fn the_last_line_needs_no_newline() {
        assert_eq!(split(&[b"one\nhalf"]), [whole("one"), whole("half")]);
    }

    #[test]
    fn the_limit_itself_is_accepted_and_one_byte_more_is_reported_once() {
        assert_eq!(split(&[b"12345678\n123456789\nok\n"]), [whole("12345678"), None, whole("ok")]);
    }

    #[test]
    fn an_oversize_line_is_reported_before_its_newline_arrives() {
        assert_eq!(split(&[b"123456789", b"more and more", b"\nok\n"]), [None, whole("ok")]);
    }

    #[test]
    fn memory_of_a_long_line_is_released() {
        let mut lines = Lines::new(64 << 20);
        lines.push(&vec![b'x'; 8 << 20]);
        assert!(lines.next_line().is_none());
        lines.push(b"\n");
        assert_eq!(lines.buffered_bytes(), (8 << 20) + 1);
        assert!(matches!(lines.next_line(), Some(Line::Whole(line)) if line.len() == 8 << 20));
        assert_eq!(lines.buffered_bytes(), 0);
        lines.release_memory();
        assert!(lines.buffer.capacity() <= MAX_IDLE_BUFFER_BYTES);
        lines.push(b"next");
        assert_eq!((lines.buffered_bytes(), lines.finish()), (4, Some(Line::Whole(b"next"))));
    }

    proptest! {
        #[test]
        fn lines_do_not_depend_on_chunks(
            stream in prop::collection::vec(prop_oneof![3 => any::<u8>(), 1 => Just(b'\n')], 0..200),
            splits in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
        ) {
            let mut offsets: Vec<usize> = splits.iter().map(|split| split.index(stream.len() + 1)).collect();
            offsets.sort_unstable();
            let mut pieces = Vec::new();
            let mut from = 0;
            for to in offsets {
                pieces.push(&stream[from..to]);
                from = to;
            }
            pieces.push(&stream[from..]);
            prop_assert_eq!(split(&pieces), split(&[&stream]));
        }
    }
}
