//! Text for a terminal: truncated to a width, and without control sequences.

use anstyle_parse::{DefaultCharAccumulator, Parser, Perform};
use parlor_engine::is_visible;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// The part of `text` that fits into `columns`, with `…` at the end if something was cut off. Line breaks and tabs
/// become spaces, and control sequences are removed.
pub(crate) fn truncate(text: &str, columns: usize) -> String {
    let line: String = TerminalSanitizer::default().sanitize(text).replace(['\n', '\t'], " ");
    if line.width() <= columns {
        return line;
    }
    let mut used = 1;
    let fits = |letter: &char| {
        used += letter.width().unwrap_or(0);
        used <= columns
    };
    let start: String = line.chars().take_while(fits).collect();
    start + "…"
}

/// Removes terminal control sequences from a text that comes in pieces. Tools, agents and clients can put any bytes
/// into a text; printing it must not let them control the user's terminal.
#[derive(Default)]
pub(crate) struct TerminalSanitizer {
    parser: Parser<DefaultCharAccumulator>,
    visible: VisibleText,
}

impl TerminalSanitizer {
    /// The visible part of the next piece. Line feeds and tabs are the only control characters in it.
    pub(crate) fn sanitize(&mut self, piece: &str) -> String {
        for byte in piece.bytes() {
            self.parser.advance(&mut self.visible, byte);
        }
        std::mem::take(&mut self.visible.text)
    }
}

/// Collects the characters that a terminal would show.
#[derive(Default)]
struct VisibleText {
    text: String,
    /// Whether the last character was a carriage return. It becomes a line break unless a line feed follows.
    after_carriage_return: bool,
}

impl VisibleText {
    fn push(&mut self, letter: char) {
        if std::mem::take(&mut self.after_carriage_return) && letter != '\n' {
            self.text.push('\n');
        }
        self.text.push(letter);
    }
}

impl Perform for VisibleText {
    fn print(&mut self, letter: char) {
        // The parser prints control characters beyond ASCII, which some terminals obey. Characters that reverse the
        // writing direction could make a line look like another one.
        if is_visible(letter) {
            self.push(letter);
        }
    }

    fn execute(&mut self, control: u8) {
        match control {
            b'\r' => self.after_carriage_return = true,
            b'\n' | b'\t' => self.push(char::from(control)),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truncation_counts_columns() {
        assert_eq!(truncate("äöü", 3), "äöü");
        assert_eq!(truncate("äöüß", 3), "äö…");
        assert_eq!(truncate("日本語", 6), "日本語");
        assert_eq!(truncate("日本語", 5), "日本…");
        assert_eq!(truncate("日本語", 4), "日…");
        assert_eq!(truncate("a\nb\tc", 10), "a b c");
    }

    #[test]
    fn control_sequences_are_removed() {
        let clean = |text| TerminalSanitizer::default().sanitize(text);
        assert_eq!(clean("\x1b[31mred\x1b[0m \x1b]0;title\x07 bell\x07 \u{9b}31m"), "red  bell 31m");
        assert_eq!(clean("a\tb\nc\0"), "a\tb\nc");
        assert_eq!(
            clean("invoice\u{202e}gpj.exe \u{2066}x\u{2069} 👩\u{200d}👧"),
            "invoicegpj.exe x 👩\u{200d}👧"
        );
    }

    #[test]
    fn a_control_sequence_may_span_pieces() {
        let mut sanitizer = TerminalSanitizer::default();
        let shown: String =
            ["a\x1b", "[3", "1mb\r", "\nc\r", "d"].map(|piece| sanitizer.sanitize(piece)).concat();
        assert_eq!(shown, "ab\nc\nd");
    }
}
