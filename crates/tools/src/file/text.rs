//! Some lines of a stream of bytes, numbered, within limits, with a count of all lines.

use std::borrow::Cow;
use std::io::{self, BufRead, BufReader, Read};

use parlor_vocab::Failure;

use crate::file::clip;
use crate::redact::Redact;

/// The longest line that is shown whole.
pub const READ_LINE_BYTES: usize = 2000;

/// The most text that one call shows.
pub const READ_OUTPUT_BYTES: usize = 256 * 1024;

/// How far into a file lines are looked for and counted.
pub const READ_SCAN_BYTES: u64 = 1 << 30;

const BUFFER_BYTES: usize = 64 * 1024;

/// What was found.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Excerpt {
    /// The numbered lines.
    pub(crate) text: String,
    /// How many there are in `text`.
    pub(crate) shown: usize,
    /// How many lines were counted.
    pub(crate) lines: usize,
    /// Whether that is all of them.
    pub(crate) complete: bool,
    /// Whether there are lines after those in `text`.
    pub(crate) more: bool,
    /// Whether `text` ends because it is full.
    pub(crate) full: bool,
    /// How many of its lines are cut.
    pub(crate) cut_lines: usize,
    /// Whether it has bytes that are no text.
    pub(crate) unreadable: bool,
}

/// Finds `limit` lines from line `offset` on, counted from 1. `check` is asked once in a while
/// whether to go on. A line that is cut does not end within a secret that `redact` knows.
pub(crate) fn excerpt(
    source: impl Read,
    offset: usize,
    limit: usize,
    redact: &dyn Redact,
    check: impl Fn() -> Result<(), Failure>,
) -> Result<io::Result<Excerpt>, Failure> {
    excerpt_within(READ_SCAN_BYTES, source, offset, limit, redact, check)
}

fn excerpt_within(
    scan: u64,
    source: impl Read,
    offset: usize,
    limit: usize,
    redact: &dyn Redact,
    check: impl Fn() -> Result<(), Failure>,
) -> Result<io::Result<Excerpt>, Failure> {
    let mut source = BufReader::with_capacity(BUFFER_BYTES, source);
    let mut found = Excerpt::default();
    let mut line = Line::default();
    let mut scanned = 0;
    loop {
        check()?;
        let piece = match source.fill_buf() {
            Ok(piece) => piece,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Ok(Err(error)),
        };
        if piece.is_empty() || scanned >= scan {
            found.complete = piece.is_empty();
            break;
        }
        let end = memchr::memchr(b'\n', piece);
        let wanted =
            found.lines + 1 >= offset && found.lines + 1 < offset.saturating_add(limit) && !found.full;
        let taken = match (wanted, end) {
            (true, end) => {
                line.push(&piece[..end.unwrap_or(piece.len())]);
                end.map_or(piece.len(), |end| end + 1)
            }
            (false, Some(_)) => {
                // Nothing here is shown: count in one go what cannot be wanted either.
                let skip =
                    if found.full || found.lines >= offset { usize::MAX } else { offset - 1 - found.lines };
                let (count, taken) = skip_lines(piece, skip);
                found.lines += count;
                line.open = taken == piece.len() && piece.last() != Some(&b'\n');
                scanned += taken as u64;
                source.consume(taken);
                continue;
            }
            (false, None) => {
                line.open = true;
                piece.len()
            }
        };
        source.consume(taken);
        scanned += taken as u64;
        if end.is_some() {
            found.end_line(std::mem::take(&mut line), wanted, redact);
        }
    }
    if line.open {
        let wanted =
            found.lines + 1 >= offset && found.lines + 1 < offset.saturating_add(limit) && !found.full;
        found.end_line(line, wanted, redact);
    }
    found.more = !found.complete || found.lines >= offset.saturating_add(found.shown);
    Ok(Ok(found))
}

/// At most `lines` lines at the start of `piece`: how many, and their bytes. If `piece` has fewer,
/// all of it.
fn skip_lines(piece: &[u8], lines: usize) -> (usize, usize) {
    let mut count = 0;
    for end in memchr::memchr_iter(b'\n', piece) {
        count += 1;
        if count == lines {
            return (count, end + 1);
        }
    }
    (count, piece.len())
}

/// A line that is being read.
#[derive(Default)]
struct Line {
    /// Its start: enough to show, not more.
    start: Vec<u8>,
    length: usize,
    open: bool,
}

impl Line {
    fn push(&mut self, piece: &[u8]) {
        // A few bytes more than are shown, so that a letter at the edge is whole.
        let room = (READ_LINE_BYTES + 4).saturating_sub(self.start.len());
        self.start.extend(&piece[..piece.len().min(room)]);
        self.length += piece.len();
        self.open = true;
    }
}

impl Excerpt {
    fn end_line(&mut self, line: Line, wanted: bool, redact: &dyn Redact) {
        self.lines += 1;
        if !wanted {
            return;
        }
        let whole = line.length <= READ_LINE_BYTES;
        let text = String::from_utf8_lossy(&line.start);
        let shown = match whole {
            true => Cow::Borrowed(text.as_ref()),
            false => redact.redact_cut(clip(&text, READ_LINE_BYTES)),
        };
        if self.shown > 0 && self.text.len() + shown.len() > READ_OUTPUT_BYTES {
            self.full = true;
            return;
        }
        self.shown += 1;
        self.text.push_str(&format!("{:>6}\t{}", self.lines, shown.trim_end_matches('\r')));
        if !whole {
            self.cut_lines += 1;
            self.text.push_str(&format!(" [… cut: the line has {} bytes]", line.length));
        }
        self.text.push('\n');
        self.unreadable |= whole && matches!(text, Cow::Owned(_));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::redact::NoSecrets;

    fn lines(text: &str, offset: usize, limit: usize) -> Excerpt {
        excerpt(text.as_bytes(), offset, limit, &NoSecrets, || Ok(())).unwrap().unwrap()
    }

    #[test]
    fn the_last_line_needs_no_newline() {
        assert_eq!(lines("a\nb", 1, 9).text, "     1\ta\n     2\tb\n");
        assert_eq!(lines("a\nb\n", 2, 9).text, "     2\tb\n");
        assert_eq!(lines("a\r\n", 1, 9).text, "     1\ta\n");
    }

    #[test]
    fn a_long_line_is_cut_between_letters_and_says_how_long_it_was() {
        let found = lines(&"ä".repeat(READ_LINE_BYTES), 1, 1);
        assert_eq!(found.cut_lines, 1);
        assert!(found.text.ends_with(&format!("ä [… cut: the line has {} bytes]\n", 2 * READ_LINE_BYTES)));
        assert!(!found.unreadable);
        assert_eq!(lines(&"x".repeat(READ_LINE_BYTES), 1, 1).cut_lines, 0);
    }

    #[test]
    fn a_full_output_ends_at_a_line_and_the_rest_is_counted() {
        let text = format!("{}\n", "x".repeat(READ_LINE_BYTES)).repeat(1000);
        let found = lines(&text, 1, 1000);
        assert!(found.full && found.more);
        assert!(found.text.len() <= READ_OUTPUT_BYTES + READ_LINE_BYTES);
        assert!(found.shown > 100 && found.shown < 140, "{}", found.shown);
        assert_eq!(found.lines, 1000);
    }

    #[test]
    fn counting_ends_somewhere() {
        let endless = io::repeat(b'\n');
        let found = excerpt_within(1 << 20, endless, 1, 1, &NoSecrets, || Ok(())).unwrap().unwrap();
        assert!(!found.complete && found.more);
        assert!(found.lines >= 1 << 20);
    }

    #[test]
    fn whoever_is_told_to_stop_stops() {
        let refuse = || Err(crate::code::cancelled());
        assert!(excerpt(io::repeat(b'x'), 1, 1, &NoSecrets, refuse).is_err());
    }

    proptest! {
        #[test]
        fn it_is_what_splitting_at_newlines_gives(
            text in "[a\n]{0,40}", offset in 1usize..12, limit in 1usize..12, piece in 1usize..7,
        ) {
            let all: Vec<&str> = text.lines().collect();
            let mut expected = String::new();
            for (index, line) in all.iter().enumerate().skip(offset - 1).take(limit) {
                expected.push_str(&format!("{:>6}\t{line}\n", index + 1));
            }
            let source = InPieces { bytes: text.as_bytes(), piece };
            let found = excerpt(source, offset, limit, &NoSecrets, || Ok(())).unwrap().unwrap();
            prop_assert_eq!(&found.text, &expected);
            prop_assert_eq!(found.lines, all.len());
            prop_assert!(found.complete);
            prop_assert_eq!(found.more, all.len() >= offset + found.shown);
        }
    }

    /// Reads a few bytes at a time.
    struct InPieces<'a> {
        bytes: &'a [u8],
        piece: usize,
    }

    impl Read for InPieces<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let count = self.bytes.len().min(self.piece).min(into.len());
            let (now, later) = self.bytes.split_at(count);
            into[..count].copy_from_slice(now);
            self.bytes = later;
            Ok(count)
        }
    }
}
