//! Writes lines to the terminal: finished ones above, where they become part of its scrollback, and the live region below
//! them, which is written anew at each change.
//!
//! All movements are relative to the cursor: the position on the screen need not be known, so the terminal is never asked
//! for it. An inline viewport of ratatui asks, and waits for terminals that do not answer; its height cannot change either.

use std::fmt::Write;

use ratatui_core::style::{Color, Modifier, Style};
use ratatui_core::text::Line;
use unicode_width::UnicodeWidthStr;

/// The lines below the finished ones, and where the cursor is in them.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Region {
    pub(super) lines: Vec<Line<'static>>,
    /// The row and column of the cursor, from the top left of the region.
    pub(super) cursor: (usize, usize),
}

/// What is on the terminal.
#[derive(Default)]
pub(super) struct Painter {
    /// The rows of the region with their escape sequences, and their widths.
    rows: Vec<(String, usize)>,
    cursor: (usize, usize),
    columns: usize,
}

impl Painter {
    /// The bytes that add the finished lines and show the region. Empty if nothing changed.
    pub(super) fn frame(&mut self, finished: &[Line<'_>], region: &Region, columns: usize) -> String {
        let rows: Vec<(String, usize)> =
            region.lines.iter().map(|line| (encode(line), width(line))).collect();
        let is_same_width = self.columns == columns;
        if finished.is_empty() && is_same_width && rows == self.rows && region.cursor == self.cursor {
            return String::new();
        }
        // The terminal shows the frame at once, if it knows this sequence; the cursor is hidden while it moves.
        let mut out = String::from("\x1b[?2026h\x1b[?25l");
        self.go_to_top(&mut out, columns);
        if !finished.is_empty() || !is_same_width || rows.len() < self.rows.len() {
            out.push_str("\x1b[J");
            self.rows.clear();
        }
        for line in finished {
            out.push_str(&encode(line));
            out.push_str("\r\n");
        }
        for (index, (row, _)) in rows.iter().enumerate() {
            if index > 0 {
                out.push_str("\r\n");
            }
            if self.rows.get(index).is_none_or(|(shown, _)| shown != row) {
                // Cleared first: after a full line, clearing would remove its last letter.
                out.push_str("\x1b[2K");
                out.push_str(row);
            }
        }
        let (row, column) = region.cursor;
        let up = rows.len().saturating_sub(1).saturating_sub(row);
        move_by(&mut out, up, 'A');
        out.push('\r');
        move_by(&mut out, column, 'C');
        out.push_str("\x1b[?25h\x1b[?2026l");
        (self.rows, self.cursor, self.columns) = (rows, region.cursor, columns);
        out
    }

    /// Removes the region and leaves the cursor where it began, for what comes after the screen.
    pub(super) fn clear(&mut self, columns: usize) -> String {
        let mut out = String::new();
        self.go_to_top(&mut out, columns);
        out.push_str("\x1b[J\x1b[?25h");
        (self.rows, self.cursor) = (Vec::new(), (0, 0));
        out
    }

    /// Forgets the region, after something else cleared the screen.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }

    /// Moves to the first row of the region. If the terminal is narrower now, it has broken lines that were longer.
    fn go_to_top(&self, out: &mut String, columns: usize) {
        let columns = columns.max(1);
        let rows_of = |width: usize| width.div_ceil(columns).max(1);
        let above: usize = self.rows.iter().take(self.cursor.0).map(|(_, width)| rows_of(*width)).sum();
        let in_line = if self.columns > columns { self.cursor.1 / columns } else { 0 };
        move_by(out, above + in_line, 'A');
        out.push('\r');
    }
}

fn move_by(out: &mut String, count: usize, direction: char) {
    if count > 0 {
        // Writing to a string does not fail.
        let _ = write!(out, "\x1b[{count}{direction}");
    }
}

fn width(line: &Line<'_>) -> usize {
    line.spans.iter().map(|span| span.content.width()).sum()
}

/// The text of a line with escape sequences for its styles.
fn encode(line: &Line<'_>) -> String {
    let mut out = String::new();
    for span in &line.spans {
        let codes = codes(line.style.patch(span.style));
        if codes.is_empty() {
            out.push_str(&span.content);
        } else {
            // Writing to a string does not fail.
            let _ = write!(out, "\x1b[{codes}m{}\x1b[0m", span.content);
        }
    }
    out
}

fn codes(style: Style) -> String {
    let modifiers = [
        (Modifier::BOLD, "1"),
        (Modifier::DIM, "2"),
        (Modifier::ITALIC, "3"),
        (Modifier::UNDERLINED, "4"),
        (Modifier::REVERSED, "7"),
        (Modifier::CROSSED_OUT, "9"),
    ];
    let mut codes: Vec<&str> = modifiers
        .into_iter()
        .filter(|(modifier, _)| style.add_modifier.contains(*modifier))
        .map(|(_, code)| code)
        .collect();
    // The theme uses no others.
    let colours = [
        (Color::Red, "31"),
        (Color::Green, "32"),
        (Color::Yellow, "33"),
        (Color::Magenta, "35"),
        (Color::Cyan, "36"),
    ];
    codes.extend(colours.into_iter().filter(|(colour, _)| style.fg == Some(*colour)).map(|(_, code)| code));
    codes.join(";")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(lines: &[&str], cursor: (usize, usize)) -> Region {
        Region { lines: lines.iter().map(|line| Line::from((*line).to_owned())).collect(), cursor }
    }

    fn emulator(rows: u16, columns: u16) -> vt100::Parser {
        vt100::Parser::new(rows.try_into().unwrap(), columns.try_into().unwrap(), 100)
    }

    fn shown(terminal: &vt100::Parser) -> Vec<String> {
        let contents = terminal.screen().contents();
        contents.lines().map(|line| line.trim_end().to_owned()).collect()
    }

    #[test]
    fn finished_lines_move_into_the_scrollback_and_the_region_stays_below() {
        let mut terminal = emulator(4, 20);
        let mut painter = Painter::default();
        terminal.process(painter.frame(&[], &region(&["live", "> "], (1, 2)), 20).as_bytes());
        for number in 0..6 {
            let finished = [Line::from(format!("line {number}"))];
            terminal.process(painter.frame(&finished, &region(&["live", "> x"], (1, 3)), 20).as_bytes());
        }
        assert_eq!(shown(&terminal), ["line 4", "line 5", "live", "> x"]);
        assert_eq!(terminal.screen().cursor_position(), (3, 3));
        terminal.screen_mut().set_scrollback(4);
        assert_eq!(shown(&terminal), ["line 0", "line 1", "line 2", "line 3"]);
    }

    #[test]
    fn the_region_grows_and_shrinks() {
        let mut terminal = emulator(10, 20);
        let mut painter = Painter::default();
        for lines in [&["a", "b"][..], &["a", "b", "c", "d"], &["d"], &["d", "e"]] {
            let frame = painter.frame(&[], &region(lines, (lines.len() - 1, 1)), 20);
            terminal.process(frame.as_bytes());
            assert_eq!(shown(&terminal), lines);
        }
        terminal.process(painter.clear(20).as_bytes());
        assert_eq!(shown(&terminal), [""; 0]);
    }

    #[test]
    fn lines_of_full_width_keep_their_last_letter() {
        let mut terminal = emulator(5, 5);
        let mut painter = Painter::default();
        for last in ["x", "y"] {
            terminal.process(painter.frame(&[], &region(&["abcde", last], (1, 1)), 5).as_bytes());
        }
        assert_eq!(shown(&terminal), ["abcde", "y"]);
    }

    #[test]
    fn an_unchanged_screen_costs_nothing() {
        let mut painter = Painter::default();
        let same = region(&["a"], (0, 1));
        assert!(!painter.frame(&[], &same, 20).is_empty());
        assert_eq!(painter.frame(&[], &same, 20), "");
    }

    #[test]
    fn a_narrower_terminal_breaks_lines_and_the_region_is_found_again() {
        let mut painter = Painter::default();
        painter.frame(&[], &region(&["x".repeat(20).as_str(), "> "], (1, 2)), 20);
        // The terminal has broken the first line into two, so the region begins two rows above the cursor.
        let frame = painter.frame(&[], &region(&["xx", "> "], (1, 2)), 10);
        assert!(frame.contains("\x1b[2A\r\x1b[J"), "{frame:?}");
    }

    #[test]
    fn styles_become_escape_sequences() {
        let style = Style::new().fg(Color::Red).add_modifier(Modifier::BOLD);
        let line = Line::from(vec![ratatui_core::text::Span::styled("a", style), "b".into()]);
        assert_eq!(encode(&line), "\x1b[1;31ma\x1b[0mb");
    }
}
