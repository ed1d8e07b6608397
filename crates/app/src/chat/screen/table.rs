//! A table of markdown as lines: columns as wide as their content, cut if the terminal is narrower.

use pulldown_cmark::Alignment;
use ratatui_core::text::{Line, Span};
use unicode_width::UnicodeWidthStr;

use super::theme::Theme;
use super::wrap::spans_width;
use crate::text::truncate;

/// The space between two columns.
const GAP: &str = "  ";
/// A column gets at least this width, even if the lines are then wider than the terminal.
const MIN_COLUMN: usize = 3;

/// The rows of a table, the head first.
pub(super) struct Table {
    alignments: Vec<Alignment>,
    rows: Vec<Vec<Vec<Span<'static>>>>,
}

impl Table {
    pub(super) fn new(alignments: Vec<Alignment>) -> Self {
        Self { alignments, rows: Vec::new() }
    }

    pub(super) fn begin_row(&mut self) {
        self.rows.push(Vec::new());
    }

    pub(super) fn push_cell(&mut self, cell: Vec<Span<'static>>) {
        if let Some(row) = self.rows.last_mut() {
            row.push(cell);
        }
    }

    pub(super) fn lines(self, width: usize, theme: Theme) -> Vec<Line<'static>> {
        let widths = self.widths(width);
        let mut lines = Vec::new();
        for (index, row) in self.rows.into_iter().enumerate() {
            let mut spans = Vec::new();
            for ((cell, width), alignment) in row.into_iter().zip(&widths).zip(&self.alignments) {
                if !spans.is_empty() {
                    spans.push(Span::raw(GAP));
                }
                let cell = fit(cell, *width);
                let space = width.saturating_sub(spans_width(&cell));
                let before = match alignment {
                    Alignment::Right => space,
                    Alignment::Center => space / 2,
                    Alignment::Left | Alignment::None => 0,
                };
                spans.push(Span::raw(" ".repeat(before)));
                let style = if index == 0 { theme.bold() } else { ratatui_core::style::Style::new() };
                spans
                    .extend(cell.into_iter().map(|span| Span::styled(span.content, style.patch(span.style))));
                spans.push(Span::raw(" ".repeat(space - before)));
            }
            lines.push(Line::from(spans));
            if index == 0 {
                let total = widths.iter().sum::<usize>() + GAP.len() * widths.len().saturating_sub(1);
                lines.push(Line::from(Span::styled(theme.rule(total), theme.dim())));
            }
        }
        lines
    }

    /// The widths of the columns. The widest ones give way if all together are too wide.
    fn widths(&self, width: usize) -> Vec<usize> {
        let count = self.alignments.len();
        let of_column = |column: usize| {
            self.rows.iter().filter_map(move |row| row.get(column)).map(|cell| spans_width(cell))
        };
        let mut widths: Vec<usize> =
            (0..count).map(|column| of_column(column).max().unwrap_or(0).max(1)).collect();
        let room = width.saturating_sub(GAP.len() * count.saturating_sub(1));
        // Each step cuts the widest column to the next narrower one, so there are at most as many steps as columns.
        for _ in 0..=count {
            let total: usize = widths.iter().sum();
            let widest = widths.iter().copied().max().unwrap_or(0);
            if total <= room || widest <= MIN_COLUMN {
                break;
            }
            let next = widths.iter().copied().filter(|width| *width < widest).max().unwrap_or(MIN_COLUMN);
            let wide = widths.iter().filter(|width| **width == widest).count();
            let cut = ((total - room).div_ceil(wide)).min(widest - next.min(widest));
            let narrowed = (widest - cut.max(1)).max(MIN_COLUMN);
            for width in widths.iter_mut().filter(|width| **width == widest) {
                *width = narrowed;
            }
        }
        widths
    }
}

/// The cell cut to the width.
fn fit(cell: Vec<Span<'static>>, width: usize) -> Vec<Span<'static>> {
    if spans_width(&cell) <= width {
        return cell;
    }
    let mut left = width;
    let mut fitting = Vec::new();
    for span in cell {
        let columns = span.content.width();
        if columns < left {
            left -= columns;
            fitting.push(span);
            continue;
        }
        // The rest is longer than the room, so it ends in a sign of that, also if this span would just fit.
        let text = truncate(&format!("{}  ", span.content), left);
        fitting.push(Span::styled(text, span.style));
        break;
    }
    fitting
}

#[cfg(test)]
mod tests {
    use super::super::markdown::markdown;
    use super::*;

    fn shown(text: &str, width: usize) -> Vec<String> {
        let theme = Theme { has_colours: false, has_unicode: true };
        markdown(text, width, theme).iter().map(|line| line.to_string().trim_end().to_owned()).collect()
    }

    #[test]
    fn columns_are_aligned() {
        let text = "| name | size |\n|---|--:|\n| a | 1 |\n| `longer` | 1000 |";
        assert_eq!(shown(text, 40), ["name    size", "────────────", "a          1", "longer  1000"]);
    }

    #[test]
    fn a_wide_table_is_cut_to_the_width() {
        let text = format!("| a | b |\n|---|---|\n| {} | short |", "x".repeat(100));
        let lines = shown(&text, 30);
        assert!(lines.iter().all(|line| line.width() <= 30), "{lines:?}");
        assert!(lines[2].contains('…') && lines[2].ends_with("short"), "{lines:?}");
    }

    #[test]
    fn many_columns_and_ragged_rows_are_harmless() {
        let text = format!("|{}\n|{}\n|x|", "a|".repeat(50), "-|".repeat(50));
        assert!(!shown(&text, 10).is_empty());
    }
}
