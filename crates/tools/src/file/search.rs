//! Searches the bytes of one file, line by line.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;

use regex::bytes::Regex;

use crate::file::clip;
use crate::redact::Redact;

/// The largest file that is searched.
pub const GREP_FILE_BYTES: usize = 32 << 20;

/// The longest line that is shown whole.
pub const GREP_LINE_BYTES: usize = 500;

/// What to look for, and how much to show.
#[derive(Debug)]
pub(super) struct Search {
    pub(super) pattern: Regex,
    /// Lines around a match.
    pub(super) context: usize,
    /// A line that is cut does not end within a secret that this knows.
    pub(super) redact: Arc<dyn Redact>,
}

/// What was found in one file.
#[derive(Debug, Default)]
pub(super) struct Hits {
    /// `path:line:text` for matches, `path-line-text` around them, `--` between groups.
    pub(super) text: String,
    /// How many lines match, of those that were looked at.
    pub(super) matches: usize,
    /// Whether the limit was reached before the end of the file.
    pub(super) more: bool,
}

impl Search {
    /// Finds at most `limit` lines that match, in at most about `room` bytes of text.
    ///
    /// Each line is matched by itself, so that anchors mean its two ends and nothing matches across
    /// lines.
    pub(super) fn run(&self, path: &str, bytes: &[u8], limit: usize, room: usize) -> Hits {
        let mut hits = Hits::default();
        let mut before: VecDeque<&[u8]> = VecDeque::with_capacity(self.context + 1);
        // How many lines after a match are still to be shown, and the last line that was.
        let (mut after, mut last) = (0, None);
        for (index, line) in lines(bytes).enumerate() {
            if self.pattern.is_match(line) {
                if hits.matches == limit || hits.text.len() >= room {
                    hits.more = true;
                    break;
                }
                let start = index - before.len();
                if self.context > 0 && last.is_some_and(|last| start > last + 1) {
                    hits.text.push_str("--\n");
                }
                for (offset, line) in before.drain(..).enumerate() {
                    self.show(&mut hits.text, path, start + offset, '-', line);
                }
                self.show(&mut hits.text, path, index, ':', line);
                hits.matches += 1;
                (after, last) = (self.context, Some(index));
            } else if after > 0 {
                self.show(&mut hits.text, path, index, '-', line);
                (after, last) = (after - 1, Some(index));
            } else if self.context > 0 {
                if before.len() == self.context {
                    before.pop_front();
                }
                before.push_back(line);
            }
        }
        hits
    }

    fn show(&self, text: &mut String, path: &str, index: usize, mark: char, line: &[u8]) {
        // A letter has at most four bytes: this much is enough for the part that is shown.
        let start = String::from_utf8_lossy(&line[..line.len().min(GREP_LINE_BYTES + 4)]);
        let is_cut = line.len() > GREP_LINE_BYTES;
        let shown = match is_cut {
            true => self.redact.redact_cut(clip(&start, GREP_LINE_BYTES)),
            false => Cow::Borrowed(start.as_ref()),
        };
        text.push_str(&format!("{path}{mark}{}{mark}{shown}", index + 1));
        if is_cut {
            text.push_str(&format!(" [… cut: the line has {} bytes]", line.len()));
        }
        text.push('\n');
    }
}

/// The lines without their ends. A last newline starts no line.
fn lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes.split_inclusive(|byte| *byte == b'\n').map(|line| {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        line.strip_suffix(b"\r").unwrap_or(line)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redact::NoSecrets;

    fn hits(pattern: &str, context: usize, text: &str, limit: usize) -> Hits {
        let search = Search { pattern: Regex::new(pattern).unwrap(), context, redact: Arc::new(NoSecrets) };
        search.run("f", text.as_bytes(), limit, usize::MAX)
    }

    #[test]
    fn matches_and_their_neighbours_are_told_apart() {
        let text = "1\n2 x\n3\n4\n5\n6 x\n7 x\n8\n9\n";
        assert_eq!(hits("x", 0, text, 9).text, "f:2:2 x\nf:6:6 x\nf:7:7 x\n");
        assert_eq!(hits("x", 1, text, 9).text, "f-1-1\nf:2:2 x\nf-3-3\n--\nf-5-5\nf:6:6 x\nf:7:7 x\nf-8-8\n");
        let joined = hits("x", 2, text, 9).text;
        assert!(!joined.contains("--") && joined.lines().count() == 9, "{joined}");
    }

    #[test]
    fn the_limit_is_exact_and_says_so_only_if_there_is_more() {
        let found = hits("x", 0, "x\nx\nx\n", 3);
        assert!(found.matches == 3 && !found.more);
        let found = hits("x", 0, "x\nx\nx\n", 2);
        assert!(found.matches == 2 && found.more);
    }

    #[test]
    fn a_full_output_ends_early() {
        let search = Search { pattern: Regex::new("x").unwrap(), context: 0, redact: Arc::new(NoSecrets) };
        let found = search.run("f", b"x\nx\n", 9, 1);
        assert!(found.matches == 1 && found.more);
    }

    #[test]
    fn lines_are_lines_however_they_end() {
        assert_eq!(hits("^b$", 0, "a\r\nb\r\nc", 9).text, "f:2:b\n");
        assert_eq!(hits("(?m)a\nb", 0, "a\nb\n", 9).matches, 0);
        assert_eq!(hits("^$", 0, "\n\n", 9).matches, 2);
        let long = format!("{}x", "ä".repeat(GREP_LINE_BYTES));
        assert!(
            hits("x", 0, &long, 9).text.ends_with(&format!("ä [… cut: the line has {} bytes]\n", long.len()))
        );
    }
}
