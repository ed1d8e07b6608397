//! Breaks styled text into lines of a width.

use ratatui_core::style::Style;
use ratatui_core::text::{Line, Span};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::text::TerminalSanitizer;

/// A tab is shown as this many spaces.
const TAB: &str = "    ";

/// What stands before the first line of a text, and before each further one.
#[derive(Clone, Debug, Default)]
pub(super) struct Prefix {
    pub(super) first: Vec<Span<'static>>,
    pub(super) rest: Vec<Span<'static>>,
}

impl Prefix {
    /// Spaces before all lines.
    pub(super) fn indent(columns: usize) -> Self {
        let spaces = vec![Span::raw(" ".repeat(columns))];
        Self { first: spaces.clone(), rest: spaces }
    }

    /// A sign before the first line, and as much space before the others.
    pub(super) fn sign(text: &str, style: Style) -> Self {
        let rest = " ".repeat(text.width());
        Self { first: vec![Span::styled(text.to_owned(), style)], rest: vec![Span::raw(rest)] }
    }

    /// Spans before all lines.
    pub(super) fn every(span: Span<'static>) -> Self {
        Self { first: vec![span.clone()], rest: vec![span] }
    }
}

/// Text of a model, a tool or a client without control characters; only line breaks stay.
pub(super) fn clean(text: &str) -> String {
    TerminalSanitizer::default().sanitize(text).replace('\t', TAB)
}

/// Cleans a text that comes in pieces.
#[derive(Default)]
pub(super) struct Cleaner(TerminalSanitizer);

impl Cleaner {
    pub(super) fn clean(&mut self, piece: &str) -> String {
        self.0.sanitize(piece).replace('\t', TAB)
    }
}

/// Breaks a paragraph between words, or inside a word that is longer than a line. A line break in the text stays one.
pub(super) fn wrap(spans: &[Span<'_>], width: usize, prefix: &Prefix) -> Vec<Line<'static>> {
    break_lines(spans, width, prefix, true)
}

/// Breaks text at the end of the line, wherever that is, for code and output.
pub(super) fn wrap_exact(spans: &[Span<'_>], width: usize, prefix: &Prefix) -> Vec<Line<'static>> {
    break_lines(spans, width, prefix, false)
}

fn break_lines(spans: &[Span<'_>], width: usize, prefix: &Prefix, at_words: bool) -> Vec<Line<'static>> {
    let prefix_width = spans_width(&prefix.first).max(spans_width(&prefix.rest));
    let room = width.saturating_sub(prefix_width).max(1);
    let mut lines = Vec::new();
    let mut row: Vec<(char, Style)> = Vec::new();
    let mut row_width = 0;
    // Whether the row was begun by a space that did not fit: further ones are left out.
    let mut is_after_space = false;
    let letters = spans.iter().flat_map(|span| span.content.chars().map(|letter| (letter, span.style)));
    for (letter, style) in letters {
        if letter == '\n' {
            if !is_after_space || !row.is_empty() {
                lines.push(std::mem::take(&mut row));
            }
            (row_width, is_after_space) = (0, false);
            continue;
        }
        if letter == ' ' && is_after_space && row.is_empty() {
            continue;
        }
        let columns = letter.width().unwrap_or(0);
        if row_width + columns > room {
            if at_words && letter == ' ' {
                lines.push(std::mem::take(&mut row));
                (row_width, is_after_space) = (0, true);
                continue;
            }
            let rest = if at_words { take_last_word(&mut row) } else { Vec::new() };
            lines.push(std::mem::replace(&mut row, rest));
            row_width = row.iter().map(|(letter, _)| letter.width().unwrap_or(0)).sum();
        }
        row.push((letter, style));
        row_width += columns;
    }
    if !is_after_space || !row.is_empty() {
        lines.push(row);
    }
    let with_prefix = |(index, row): (usize, Vec<(char, Style)>)| {
        let mut line = if index == 0 { prefix.first.clone() } else { prefix.rest.clone() };
        line.extend(merge(row));
        Line::from(line)
    };
    lines.into_iter().enumerate().map(with_prefix).collect()
}

/// Cuts off the word at the end of a row, and the space before it. Nothing if the row is a single word.
fn take_last_word(row: &mut Vec<(char, Style)>) -> Vec<(char, Style)> {
    let Some(space) = row.iter().rposition(|(letter, _)| *letter == ' ') else { return Vec::new() };
    // Spaces at the start are an indent, not the end of a word.
    if row.iter().take(space).all(|(letter, _)| *letter == ' ') {
        return Vec::new();
    }
    let word = row.split_off(space + 1);
    while row.last().is_some_and(|(letter, _)| *letter == ' ') {
        row.pop();
    }
    word
}

/// Joins neighbours of one style.
fn merge(row: Vec<(char, Style)>) -> Vec<Span<'static>> {
    let mut spans: Vec<(String, Style)> = Vec::new();
    for (letter, style) in row {
        match spans.last_mut() {
            Some((text, last)) if *last == style => text.push(letter),
            _ => spans.push((letter.to_string(), style)),
        }
    }
    spans.into_iter().map(|(text, style)| Span::styled(text, style)).collect()
}

pub(super) fn spans_width(spans: &[Span<'_>]) -> usize {
    spans.iter().map(|span| span.content.width()).sum()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn wrapped(text: &str, width: usize) -> Vec<String> {
        wrap(&[Span::raw(text)], width, &Prefix::default()).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn text_breaks_between_words_and_inside_long_ones() {
        assert_eq!(wrapped("one two three", 8), ["one two", "three"]);
        assert_eq!(wrapped("one two three", 7), ["one two", "three"]);
        assert_eq!(wrapped("abcdefgh ij", 4), ["abcd", "efgh", "ij"]);
        assert_eq!(wrapped("a\n\nb", 4), ["a", "", "b"]);
        assert_eq!(wrapped("日本語です", 4), ["日本", "語で", "す"]);
        assert_eq!(wrapped("", 4), [""]);
        assert_eq!(wrapped("abcd   \nef", 4), ["abcd", "ef"], "a space at the end of a line is left out");
    }

    #[test]
    fn further_lines_have_their_own_prefix() {
        let prefix = Prefix::sign("- ", Style::new());
        let lines: Vec<String> =
            wrap(&[Span::raw("one two")], 5, &prefix).iter().map(ToString::to_string).collect();
        assert_eq!(lines, ["- one", "  two"]);
    }

    #[test]
    fn control_characters_do_not_pass() {
        assert_eq!(clean("a\x1b[2J\tb\u{202e}\r\nc\x07"), "a    b\nc");
    }

    proptest! {
        #[test]
        fn no_line_is_too_wide_and_no_letter_is_lost(text in "[a-z日 ]{0,80}", width in 2usize..20) {
            let lines = wrapped(&text, width);
            prop_assert!(lines.iter().all(|line| line.width() <= width), "{lines:?}");
            let letters = |text: &str| text.chars().filter(|letter| *letter != ' ').collect::<String>();
            prop_assert_eq!(letters(&lines.concat()), letters(&text));
        }
    }
}
