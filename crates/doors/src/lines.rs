//! Cuts a stream of bytes into lines, holding no more than a limit.
//!
//! How the bytes arrive makes no difference: any cut of the same stream gives the same lines. A
//! line over the limit is reported once, its bytes are dropped as they come, and the line after
//! its newline is whole again.

/// One piece of the stream.
#[derive(Debug, PartialEq, Eq)]
pub enum Line<'a> {
    /// A line without its `\n`. A `\r` before it is still there, unless that ends lines as well.
    Whole(&'a [u8]),
    /// A line longer than the limit was skipped.
    Oversize,
}

/// The decoder.
#[derive(Debug)]
pub struct Lines {
    limit: usize,
    /// Whether `\r` ends a line too.
    ends_at_return: bool,
    /// Bytes not handed out yet: `buffer[start..]`.
    buffer: Vec<u8>,
    start: usize,
    /// Up to here `buffer` is known to hold no newline, so that slow arrival of a long line does
    /// not make the search quadratic.
    searched: usize,
    /// The line that is arriving was reported as oversize; drop everything up to its newline.
    skipping: bool,
}

/// A buffer that grew beyond this for one long line is given back once that line is gone.
const KEEP_BYTES: usize = 256 * 1024;

impl Lines {
    /// A decoder of lines of at most `limit` bytes, not counting the newline.
    pub fn new(limit: usize) -> Self {
        let (ends_at_return, buffer) = (false, Vec::new());
        Self { limit, ends_at_return, buffer, start: 0, searched: 0, skipping: false }
    }

    /// The same for a dialect in which `\r` ends a line as well. `\r\n` then ends two, the second of them
    /// empty.
    #[must_use]
    pub fn ending_at_return(self) -> Self {
        Self { ends_at_return: true, ..self }
    }

    /// From the next line on, lines have at most `limit` bytes.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// Takes in the next bytes of the stream.
    pub fn push(&mut self, mut bytes: &[u8]) {
        self.discard_handed_out();
        if self.skipping {
            let Some(newline) = self.line_end(bytes) else { return };
            self.skipping = false;
            bytes = bytes.get(newline + 1..).unwrap_or_default();
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// The next line that is complete.
    pub fn next_line(&mut self) -> Option<Line<'_>> {
        let unsearched = self.buffer.get(self.searched..).unwrap_or_default();
        match self.line_end(unsearched) {
            Some(offset) => {
                let (from, to) = (self.start, self.searched + offset);
                self.start = to + 1;
                self.searched = self.start;
                Some(self.judge(from, to))
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

    /// What has arrived of the line that [`next_line`] gives next, and all behind it.
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
        Some(self.judge(from, to))
    }

    /// How many bytes are here that were not handed out.
    pub fn held(&self) -> usize {
        self.buffer.len() - self.start
    }

    /// Gives back the memory of lines that were handed out.
    pub fn let_go(&mut self) {
        if self.start == self.buffer.len() {
            self.discard_handed_out();
        }
    }

    fn line_end(&self, bytes: &[u8]) -> Option<usize> {
        if self.ends_at_return { memchr::memchr2(b'\n', b'\r', bytes) } else { memchr::memchr(b'\n', bytes) }
    }

    fn judge(&self, from: usize, to: usize) -> Line<'_> {
        if to - from > self.limit {
            return Line::Oversize;
        }
        Line::Whole(self.buffer.get(from..to).unwrap_or_default())
    }

    fn discard_handed_out(&mut self) {
        if self.start == self.buffer.len() {
            self.buffer.clear();
            self.buffer.shrink_to(KEEP_BYTES);
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

    fn cut(pieces: &[&[u8]]) -> Vec<Option<Vec<u8>>> {
        let mut lines = Lines::new(LIMIT);
        let mut out = Vec::new();
        let own = |line: Line<'_>| match line {
            Line::Whole(bytes) => Some(bytes.to_vec()),
            Line::Oversize => None,
        };
        for piece in pieces {
            lines.push(piece);
            while let Some(line) = lines.next_line() {
                out.push(own(line));
            }
        }
        out.extend(lines.finish().map(own));
        out
    }

    fn whole(text: &str) -> Option<Vec<u8>> {
        Some(text.as_bytes().to_vec())
    }

    #[test]
    fn lines_come_out_without_their_newline() {
        assert_eq!(cut(&[b"one\n\ntwo\r\n"]), [whole("one"), whole(""), whole("two\r")]);
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
        assert_eq!(cut(&[b"one\nhalf"]), [whole("one"), whole("half")]);
    }

    #[test]
    fn the_limit_itself_is_accepted_and_one_byte_more_is_reported_once() {
        assert_eq!(cut(&[b"12345678\n123456789\nok\n"]), [whole("12345678"), None, whole("ok")]);
    }

    #[test]
    fn an_oversize_line_is_reported_before_its_newline_arrives() {
        assert_eq!(cut(&[b"123456789", b"more and more", b"\nok\n"]), [None, whole("ok")]);
    }

    #[test]
    fn memory_for_a_long_line_is_given_back() {
        let mut lines = Lines::new(64 << 20);
        lines.push(&vec![b'x'; 8 << 20]);
        assert!(lines.next_line().is_none());
        lines.push(b"\n");
        assert_eq!(lines.held(), (8 << 20) + 1);
        assert!(matches!(lines.next_line(), Some(Line::Whole(line)) if line.len() == 8 << 20));
        assert_eq!(lines.held(), 0);
        lines.let_go();
        assert!(lines.buffer.capacity() <= KEEP_BYTES);
        lines.push(b"next");
        assert_eq!((lines.held(), lines.finish()), (4, Some(Line::Whole(b"next"))));
    }

    proptest! {
        #[test]
        fn any_cut_gives_the_same_lines(
            stream in prop::collection::vec(prop_oneof![3 => any::<u8>(), 1 => Just(b'\n')], 0..200),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
        ) {
            let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
            at.sort_unstable();
            let mut pieces = Vec::new();
            let mut from = 0;
            for to in at {
                pieces.push(&stream[from..to]);
                from = to;
            }
            pieces.push(&stream[from..]);
            prop_assert_eq!(cut(&pieces), cut(&[&stream]));
        }
    }
}
