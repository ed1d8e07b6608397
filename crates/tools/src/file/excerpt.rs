//! Reads a range of lines from a file, numbers them, and counts all lines, within limits.

use std::borrow::Cow;
use std::io::{self, BufRead, BufReader, Read};

use parlor_vocab::Failure;

use crate::file::prefix;
use crate::redact::Redact;

/// The longest line that is shown completely, in bytes.
pub const READ_LINE_BYTES: usize = 2000;

/// The most text that one call returns, in bytes.
pub const READ_OUTPUT_BYTES: usize = 256 * 1024;

/// Lines are read and counted up to this position in a file, in bytes.
pub const READ_SCAN_BYTES: u64 = 1 << 30;

const BUFFER_BYTES: usize = 64 * 1024;

/// A range of numbered lines.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Excerpt {
    /// The numbered lines.
    pub(crate) text: String,
    /// How many lines are in `text`.
    pub(crate) shown: usize,
    /// How many lines of the file were counted.
    pub(crate) lines: usize,
    /// Whether `lines` counts all lines of the file.
    pub(crate) all_counted: bool,
    /// Whether the file has lines after those in `text`.
    pub(crate) has_more: bool,
    /// Whether `text` ends because of [`READ_OUTPUT_BYTES`].
    pub(crate) is_full: bool,
    /// How many lines in `text` are truncated.
    pub(crate) cut_lines: usize,
    /// Whether a line that is shown completely has replacement characters for invalid UTF-8.
    pub(crate) invalid_utf8: bool,
}

/// Reads `limit` lines from line `offset` on, counted from 1. Calls `check` for every buffer; its failure ends the
/// reading. `redact` removes the part of a secret at the end of a truncated line. The inner error is one of reading, the
/// outer one comes from `check`.
pub(crate) fn excerpt(
    source: impl Read,
    offset: usize,
    limit: usize,
    redact: &dyn Redact,
    check: impl Fn() -> Result<(), Failure>,
) -> Result<io::Result<Excerpt>, Failure> {
    excerpt_up_to(READ_SCAN_BYTES, source, offset, limit, redact, check)
}

fn excerpt_up_to(
    max_bytes: u64,
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
        if piece.is_empty() || scanned >= max_bytes {
            found.all_counted = piece.is_empty();
            break;
        }
        let end = memchr::memchr(b'\n', piece);
        let wanted = found.wants_next_line(offset, limit);
        let taken = match (wanted, end) {
            (true, end) => {
                line.push(&piece[..end.unwrap_or(piece.len())]);
                end.map_or(piece.len(), |end| end + 1)
            }
            (false, Some(_)) => {
                // This line is not shown. Count it together with the following lines that are not shown either: all
                // lines up to the end if the range is over, else those before `offset`.
                let skip = if found.is_full || found.lines >= offset {
                    usize::MAX
                } else {
                    offset - 1 - found.lines
                };
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
        let wanted = found.wants_next_line(offset, limit);
        found.end_line(line, wanted, redact);
    }
    found.has_more = !found.all_counted || found.lines >= offset.saturating_add(found.shown);
    Ok(Ok(found))
}

/// Skips at most `lines` lines at the start of `piece`. Returns the number of skipped lines and bytes; all bytes if
/// `piece` has fewer lines.
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
    /// The first bytes of the line: as many as are shown.
    start: Vec<u8>,
    length: usize,
    /// Whether bytes of the line were read and its newline was not.
    open: bool,
}

impl Line {
    fn push(&mut self, piece: &[u8]) {
        // Four more bytes than are shown, so that the last character is complete.
        let room = (READ_LINE_BYTES + 4).saturating_sub(self.start.len());
        self.start.extend(&piece[..piece.len().min(room)]);
        self.length += piece.len();
        self.open = true;
    }
}

impl Excerpt {
    /// Whether the line after those that were counted is in the range of `limit` lines from `offset` on, and has room.
    fn wants_next_line(&self, offset: usize, limit: usize) -> bool {
        let next = self.lines + 1;
        next >= offset && next < offset.saturating_add(limit) && !self.is_full
    }

    fn end_line(&mut self, line: Line, wanted: bool, redact: &dyn Redact) {
        self.lines += 1;
        if !wanted {
            return;
        }
        let is_whole = line.length <= READ_LINE_BYTES;
        let text = String::from_utf8_lossy(&line.start);
        let shown = match is_whole {
            true => Cow::Borrowed(text.as_ref()),
            false => redact.redact_truncated(prefix(&text, READ_LINE_BYTES)),
        };
        if self.shown > 0 && self.text.len() + shown.len() > READ_OUTPUT_BYTES {
            self.is_full = true;
            return;
        }
        self.shown += 1;
        self.text.push_str(&format!("{:>6}\t{}", self.lines, shown.trim_end_matches('\r')));
        if !is_whole {
            self.cut_lines += 1;
            self.text.push_str(&format!(" [… cut: the line has {} bytes]", line.length));
        }
        self.text.push('\n');
        self.invalid_utf8 |= is_whole && matches!(text, Cow::Owned(_));
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
    fn a_long_line_is_truncated_and_its_length_is_shown() {
        let found = lines(&"ä".repeat(READ_LINE_BYTES), 1, 1);
        assert_eq!(found.cut_lines, 1);
        assert!(found.text.ends_with(&format!("ä [… cut: the line has {} bytes]\n", 2 * READ_LINE_BYTES)));
        assert!(!found.invalid_utf8);
        assert_eq!(lines(&"x".repeat(READ_LINE_BYTES), 1, 1).cut_lines, 0);
    }

    #[test]
    fn a_full_output_ends_after_a_line_and_the_rest_is_counted() {
        let text = format!("{}\n", "x".repeat(READ_LINE_BYTES)).repeat(1000);
        let found = lines(&text, 1, 1000);
        assert!(found.is_full && found.has_more);
        assert!(found.text.len() <= READ_OUTPUT_BYTES + READ_LINE_BYTES);
        assert!(found.shown > 100 && found.shown < 140, "{}", found.shown);
        assert_eq!(found.lines, 1000);
    }

    #[test]
    fn counting_ends_at_the_limit() {
        let endless = io::repeat(b'\n');
        let found = excerpt_up_to(1 << 20, endless, 1, 1, &NoSecrets, || Ok(())).unwrap().unwrap();
        assert!(!found.all_counted && found.has_more);
        assert!(found.lines >= 1 << 20);
    }

    #[test]
    fn a_failed_check_ends_the_reading() {
        let cancelled = || Err(crate::failure::cancelled());
        assert!(excerpt(io::repeat(b'x'), 1, 1, &NoSecrets, cancelled).is_err());
    }

    proptest! {
        #[test]
        fn the_result_equals_splitting_at_newlines(
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
            prop_assert!(found.all_counted);
            prop_assert_eq!(found.has_more, all.len() >= offset + found.shown);
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
