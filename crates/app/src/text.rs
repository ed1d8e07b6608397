//! Text on its way to a person: cut to a width, and without what would steer a terminal.

use anstyle_parse::{DefaultCharAccumulator, Parser, Perform};
use parlor_engine::is_visible;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// The part of `text` that fits into `columns`, with a sign that there is more. Its line breaks
/// and everything that steers a terminal are gone.
pub(crate) fn cut(text: &str, columns: usize) -> String {
    let line: String = Clean::default().text(text).replace(['\n', '\t'], " ");
    if line.width() <= columns {
        return line;
    }
    let mut used = 1;
    let fits = |letter: &char| {
        used += letter.width().unwrap_or(0);
        used <= columns
    };
    let kept: String = line.chars().take_while(fits).collect();
    kept + "…"
}

/// Takes out of a text, which comes in pieces, what a terminal would obey instead of show. What
/// tools and agents write is not ours, and a file that is printed must not repaint the screen.
#[derive(Default)]
pub(crate) struct Clean {
    terminal: Parser<DefaultCharAccumulator>,
    shown: Shown,
}

impl Clean {
    /// The next piece, with line feeds and tabs as the only control characters.
    pub(crate) fn text(&mut self, piece: &str) -> String {
        for byte in piece.bytes() {
            self.terminal.advance(&mut self.shown, byte);
        }
        std::mem::take(&mut self.shown.text)
    }
}

/// What a terminal would show.
#[derive(Default)]
struct Shown {
    text: String,
    /// Whether the last piece ended in a carriage return, which means a line break of its own only
    /// if no line feed follows.
    returned: bool,
}

impl Shown {
    fn push(&mut self, letter: char) {
        if std::mem::take(&mut self.returned) && letter != '\n' {
            self.text.push('\n');
        }
        self.text.push(letter);
    }
}

impl Perform for Shown {
    fn print(&mut self, letter: char) {
        // The parser takes the controls beyond ASCII for letters; some terminals do not. What turns the direction of
        // writing around would make a line look like another.
        if is_visible(letter) {
            self.push(letter);
        }
    }

    fn execute(&mut self, control: u8) {
        match control {
            b'\r' => self.returned = true,
            b'\n' | b'\t' => self.push(char::from(control)),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cutting_counts_columns() {
        assert_eq!(cut("äöü", 3), "äöü");
        assert_eq!(cut("äöüß", 3), "äö…");
        assert_eq!(cut("日本語", 6), "日本語");
        assert_eq!(cut("日本語", 5), "日本…");
        assert_eq!(cut("日本語", 4), "日…");
        assert_eq!(cut("a\nb\tc", 10), "a b c");
    }

    #[test]
    fn nothing_that_steers_a_terminal_gets_through() {
        let clean = |text| Clean::default().text(text);
        assert_eq!(clean("\x1b[31mred\x1b[0m \x1b]0;title\x07 bell\x07 \u{9b}31m"), "red  bell 31m");
        assert_eq!(clean("a\tb\nc\0"), "a\tb\nc");
        assert_eq!(
            clean("invoice\u{202e}gpj.exe \u{2066}x\u{2069} 👩\u{200d}👧"),
            "invoicegpj.exe x 👩\u{200d}👧"
        );
    }

    #[test]
    fn sequences_may_be_cut_in_pieces() {
        let mut clean = Clean::default();
        let shown: String = ["a\x1b", "[3", "1mb\r", "\nc\r", "d"].map(|piece| clean.text(piece)).concat();
        assert_eq!(shown, "ab\nc\nd");
    }
}
