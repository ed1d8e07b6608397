//! Searches the content of one file, line by line.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;

use parlor_vocab::Failure;
use regex::bytes::Regex;

use crate::file::prefix;
use crate::redact::Redact;

/// The largest file that is searched, in bytes.
pub const GREP_FILE_BYTES: usize = 32 << 20;

/// The longest line that is shown completely, in bytes.
pub const GREP_LINE_BYTES: usize = 500;

/// How many bytes are searched between two checks for a stop. A longer line is searched in pieces of this length.
pub const GREP_STEP_BYTES: usize = 32 << 10;

/// How many bytes the pieces of a long line overlap. A longer match in such a line may not be found.
pub const GREP_OVERLAP_BYTES: usize = 8 << 10;

/// The pattern, and how to show its matches.
#[derive(Debug)]
pub(super) struct LineSearch {
    pub(super) pattern: Regex,
    /// How many lines to show around a match.
    pub(super) context: usize,
    /// Removes secrets from a file before the search, and the part of a secret at the end of a truncated line.
    pub(super) redact: Arc<dyn Redact>,
}

/// The matches in one file.
#[derive(Debug, Default)]
pub(super) struct Hits {
    /// `path:line:text` for matches, `path-line-text` around them, `--` between groups.
    pub(super) text: String,
    /// How many lines matched before the search ended.
    pub(super) matches: usize,
    /// Whether a limit ended the search before the end of the file.
    pub(super) more: bool,
}

impl LineSearch {
    /// Finds at most `limit` matching lines. Ends once the text has `room` bytes.
    ///
    /// The pattern is matched against each line separately: `^` and `$` mean the ends of the line, and no match spans
    /// two lines.
    ///
    /// Calls `check` before each step of [`GREP_STEP_BYTES`], and ends if it fails.
    pub(super) fn run(
        &self,
        path: &str,
        bytes: &[u8],
        limit: usize,
        room: usize,
        check: &mut dyn FnMut() -> Result<(), Failure>,
    ) -> Result<Hits, Failure> {
        let mut hits = Hits::default();
        let mut before: VecDeque<&[u8]> = VecDeque::with_capacity(self.context + 1);
        // How many lines to show after the last match, and the index of the last line that was shown.
        let (mut after, mut last) = (0, None);
        let mut unchecked = 0;
        for (index, line) in lines(bytes).enumerate() {
            unchecked += line.len() + 1;
            if unchecked >= GREP_STEP_BYTES {
                check()?;
                unchecked = 0;
            }
            if self.is_match(line, check)? {
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
        Ok(hits)
    }

    /// Whether the pattern matches in the line. Searches a long line in overlapping pieces.
    fn is_match(&self, line: &[u8], check: &mut dyn FnMut() -> Result<(), Failure>) -> Result<bool, Failure> {
        let mut start = 0;
        while line.len() - start > GREP_STEP_BYTES {
            let end = start + GREP_STEP_BYTES;
            // A match that ends with the piece may be none in the whole line, since `$` fits there. If it is one, the
            // next piece has it too.
            if self.pattern.shortest_match_at(&line[..end], start).is_some_and(|at| at < end) {
                return Ok(true);
            }
            start = end - GREP_OVERLAP_BYTES;
            check()?;
        }
        Ok(self.pattern.is_match_at(line, start))
    }

    fn show(&self, text: &mut String, path: &str, index: usize, mark: char, line: &[u8]) {
        // A character has at most four bytes, so four more bytes are enough to keep the last one whole.
        let start = String::from_utf8_lossy(&line[..line.len().min(GREP_LINE_BYTES + 4)]);
        let is_cut = line.len() > GREP_LINE_BYTES;
        let shown = match is_cut {
            true => self.redact.redact_truncated(prefix(&start, GREP_LINE_BYTES)),
            false => Cow::Borrowed(start.as_ref()),
        };
        text.push_str(&format!("{path}{mark}{}{mark}{shown}", index + 1));
        if is_cut {
            text.push_str(&format!(" [… cut: the line has {} bytes]", line.len()));
        }
        text.push('\n');
    }
}

/// The lines without their line ends. A newline at the end of the file starts no further line.
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
        let search =
            LineSearch { pattern: Regex::new(pattern).unwrap(), context, redact: Arc::new(NoSecrets) };
        search.run("f", text.as_bytes(), limit, usize::MAX, &mut || Ok(())).unwrap()
    }

    #[test]
    fn matches_and_context_lines_have_different_separators() {
        let text = "1\n2 x\n3\n4\n5\n6 x\n7 x\n8\n9\n";
        assert_eq!(hits("x", 0, text, 9).text, "f:2:2 x\nf:6:6 x\nf:7:7 x\n");
        assert_eq!(hits("x", 1, text, 9).text, "f-1-1\nf:2:2 x\nf-3-3\n--\nf-5-5\nf:6:6 x\nf:7:7 x\nf-8-8\n");
        let joined = hits("x", 2, text, 9).text;
        assert!(!joined.contains("--") && joined.lines().count() == 9, "{joined}");
    }

    #[test]
    fn more_is_set_only_if_matches_remain_beyond_the_limit() {
        let found = hits("x", 0, "x\nx\nx\n", 3);
        assert!(found.matches == 3 && !found.more);
        let found = hits("x", 0, "x\nx\nx\n", 2);
        assert!(found.matches == 2 && found.more);
    }

    #[test]
    fn a_full_output_ends_the_search() {
        let search =
            LineSearch { pattern: Regex::new("x").unwrap(), context: 0, redact: Arc::new(NoSecrets) };
        let found = search.run("f", b"x\nx\n", 9, 1, &mut || Ok(())).unwrap();
        assert!(found.matches == 1 && found.more);
    }

    #[test]
    fn a_long_line_is_searched_in_pieces_as_if_it_were_whole() {
        let step = GREP_STEP_BYTES - GREP_OVERLAP_BYTES;
        for at in [0, 1, step - 1, step, GREP_STEP_BYTES - 2, GREP_STEP_BYTES, 2 * step, 3 * GREP_STEP_BYTES]
        {
            let line = format!("{}needle{}", "- ".repeat(at), "- ".repeat(GREP_STEP_BYTES));
            assert_eq!(hits("needle", 0, &line, 9).matches, 1, "{at}");
            assert_eq!(hits(r"needle\b", 0, &line, 9).matches, 1, "{at}");
            assert_eq!(hits("^needle", 0, &line, 9).matches, usize::from(at == 0), "{at}");
            assert_eq!(hits("needle$", 0, &line, 9).matches, 0, "{at}");
        }
        let line = "x".repeat(4 * GREP_STEP_BYTES);
        assert_eq!(hits(r"x\b", 0, &line, 9).matches, 1);
        assert_eq!(hits(r"x$", 0, &line, 9).matches, 1);
        // Each piece ends like the line, except for the last letter.
        assert_eq!(hits(r"x$", 0, &format!("{line}y"), 9).matches, 0);
        let spread = |bytes: usize| format!("{}a{}b", "x".repeat(step), "x".repeat(bytes));
        assert_eq!(hits("ax*b", 0, &spread(GREP_OVERLAP_BYTES - 2), 9).matches, 1);
    }

    #[test]
    fn a_stop_ends_the_search_within_a_line_and_between_lines() {
        let search = LineSearch {
            pattern: Regex::new("[ab]*a[ab]{2000}c").unwrap(),
            context: 0,
            redact: Arc::new(NoSecrets),
        };
        for text in ["ab".repeat(8 * GREP_STEP_BYTES), "ab\n".repeat(8 * GREP_STEP_BYTES)] {
            let mut checks = 0;
            let stopped = search.run("f", text.as_bytes(), 9, usize::MAX, &mut || {
                checks += 1;
                if checks == 3 { Err(crate::failure::cancelled()) } else { Ok(()) }
            });
            assert!(stopped.is_err() && checks == 3);
        }
    }

    #[test]
    fn lines_may_end_with_lf_or_crlf_and_long_ones_are_truncated() {
        assert_eq!(hits("^b$", 0, "a\r\nb\r\nc", 9).text, "f:2:b\n");
        assert_eq!(hits("(?m)a\nb", 0, "a\nb\n", 9).matches, 0);
        assert_eq!(hits("^$", 0, "\n\n", 9).matches, 2);
        let long = format!("{}x", "ä".repeat(GREP_LINE_BYTES));
        assert!(
            hits("x", 0, &long, 9).text.ends_with(&format!("ä [… cut: the line has {} bytes]\n", long.len()))
        );
    }
}
