//! The lines at the bottom of the screen: what the run does now, the question, the text that the user writes and the status.

use ratatui_core::text::{Line, Span};
use unicode_width::UnicodeWidthStr;

use parlor_engine::escaped;
use parlor_vocab::{Question, Usage};

use super::completion::Popup;
use super::highlight::diff_line;
use super::paint::Region;
use super::picker::Picker;
use super::state::{LiveRun, Screen};
use super::wrap::{Prefix, clean, spans_width, wrap, wrap_exact};
use crate::text::truncate;

/// The text that the user writes takes at most this many lines; a longer one scrolls.
const MAX_INPUT_LINES: usize = 10;
/// Of the waiting messages this many are shown.
const MAX_QUEUE_LINES: usize = 3;
/// How many milliseconds one picture of the sign of life lasts.
pub(super) const SPINNER_MS: u64 = 120;

const PROMPT: &str = "> ";

impl Screen {
    /// The live lines and the cursor. Never more lines than the terminal has, since only those can be written anew.
    pub(super) fn region(&self) -> Region {
        let rows = self.rows.saturating_sub(1).max(1);
        let (mut below, cursor) = self.input_lines();
        let cursor_from_end = below.len() - cursor.0;
        let mut tail = Vec::new();
        if let Some(popup) = &self.popup {
            tail.extend(self.popup_lines(popup));
        }
        tail.push(self.status_line());
        below.extend(tail.iter().cloned());
        let mut lines = Vec::new();
        let room = rows.saturating_sub(below.len());
        let middle = self.middle_lines(room);
        let room = room.saturating_sub(middle.len());
        let live = self.live_lines(room);
        lines.extend(live);
        lines.extend(middle);
        lines.extend(below);
        let mut cursor_row = lines.len() - tail.len() - cursor_from_end;
        // A very low terminal shows the part around the cursor.
        if lines.len() > rows {
            let cut = (lines.len() - rows).min(cursor_row);
            lines.drain(..cut);
            cursor_row -= cut;
            lines.truncate(rows.max(cursor_row + 1));
        }
        Region { lines, cursor: (cursor_row, cursor.1) }
    }

    /// The parts of the run that may still change; the last lines of them, if there is no room for all.
    fn live_lines(&self, room: usize) -> Vec<Line<'static>> {
        let mut lines: Vec<Line<'static>> = Vec::new();
        let Some(run) = &self.run else { return lines };
        let mut is_after_short = self.ends_short();
        for (index, part) in run.parts.iter().enumerate() {
            let part_lines = part.live_lines(self.columns, self.theme, self.now);
            if part_lines.is_empty() {
                continue;
            }
            let needs_gap = if index == 0 { self.has_finished() } else { true };
            if needs_gap && !(is_after_short && part.is_short()) {
                lines.push(Line::default());
            }
            lines.extend(part_lines);
            is_after_short = part.is_short();
        }
        let cut = lines.len().saturating_sub(room);
        lines.split_off(cut)
    }

    /// The question, the sign of life and the waiting messages.
    fn middle_lines(&self, room: usize) -> Vec<Line<'static>> {
        let mut lines = Vec::new();
        if let Some(picker) = &self.picker {
            return self.picker_lines(picker, room);
        }
        if let Some((question, _)) = &self.question {
            lines.push(Line::default());
            lines.extend(self.question_lines(question, room.saturating_sub(1)));
        } else if let Some(run) = &self.run {
            lines.push(Line::default());
            lines.push(self.working_line(run));
        } else if self.has_finished() {
            lines.push(Line::default());
        }
        for (_, text) in self.queue.iter().take(MAX_QUEUE_LINES) {
            let text = truncate(text, self.columns.saturating_sub(11));
            lines.push(Line::from(Span::styled(format!("  waiting: {text}"), self.theme.dim())));
        }
        if self.queue.len() > MAX_QUEUE_LINES {
            let more = self.queue.len() - MAX_QUEUE_LINES;
            lines.push(Line::from(Span::styled(format!("  and {more} more"), self.theme.dim())));
        }
        let cut = lines.len().saturating_sub(room);
        lines.split_off(cut)
    }

    fn working_line(&self, run: &LiveRun) -> Line<'static> {
        let theme = self.theme;
        let elapsed = self.now.saturating_sub(run.since);
        let step = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX) / SPINNER_MS;
        let word = match &run.status {
            _ if run.is_stopping => "Stopping".to_owned(),
            Some(status) => status.clone(),
            None => "Working".to_owned(),
        };
        let dot = theme.sign("·", "-");
        let mut details = elapsed_text(elapsed.as_secs());
        if run.usage != Usage::default() {
            details += &format!(" {dot} {}", tokens_text(run.usage));
        }
        details += &format!(" {dot} Esc stops");
        let word = truncate(&word, self.columns.saturating_sub(details.width() + 6));
        Line::from(vec![
            Span::styled(format!("{} ", theme.spinner(step)), theme.code()),
            Span::raw(word),
            Span::styled(format!(" ({details})"), theme.dim()),
        ])
    }

    fn question_lines(&self, question: &Question, room: usize) -> Vec<Line<'static>> {
        let theme = self.theme;
        let title = Span::styled(format!("{}?", escaped(&question.title)), theme.warning());
        let mut lines = wrap(&[title], self.columns, &Prefix::sign("? ", theme.warning()));
        let reason = Span::styled(escaped(&question.reason), theme.dim());
        let mut options = wrap(&[reason], self.columns, &Prefix::indent(2));
        // The keys are shown when they are taken.
        if self.question_is_open() {
            options.extend(wrap(&self.answer_keys(question), self.columns, &Prefix::indent(2)));
        } else {
            options.push(Line::default());
        }
        let detail_room = room.saturating_sub(lines.len() + options.len());
        let mut detail: Vec<Line<'static>> = Vec::new();
        // The lines are indented, so that none of them looks like the question's own.
        for line in question.detail.lines() {
            detail.extend(wrap_exact(&[diff_line(&escaped(line), theme)], self.columns, &Prefix::indent(4)));
        }
        if detail.len() > detail_room {
            let left_out = detail.len() - detail_room.saturating_sub(1);
            detail.truncate(detail_room.saturating_sub(1));
            let text = format!("    {left_out} more lines; Ctrl-O shows all");
            detail.push(Line::from(Span::styled(text, theme.warning())));
        }
        lines.extend(detail);
        lines.extend(options);
        lines
    }

    fn answer_keys(&self, question: &Question) -> Vec<Span<'static>> {
        let mut keys = vec![("y", "yes, this time")];
        if question.remembered.is_some() {
            keys.push(("a", "always in this project"));
        }
        keys.push(("n", "no"));
        keys.push(("or", "type why not"));
        let mut spans = Vec::new();
        for (key, meaning) in keys {
            if !spans.is_empty() {
                spans.push(Span::raw("   "));
            }
            spans.push(Span::styled(key, self.theme.accent()));
            spans.push(Span::raw(format!(" {meaning}")));
        }
        spans
    }

    /// The text between two lines, and the cursor in it.
    fn input_lines(&self) -> (Vec<Line<'static>>, (usize, usize)) {
        let theme = self.theme;
        let rule = || Line::from(Span::styled(theme.rule(self.columns), theme.dim()));
        let (label, text, cursor) = match (&self.search, &self.picker) {
            (Some((part, _)), _) => {
                let label = format!("search {part}: ");
                (label, self.input.text().to_owned(), self.input.cursor())
            }
            (None, Some(picker)) => ("find: ".to_owned(), picker.filter.clone(), picker.filter.len()),
            (None, None) => (PROMPT.to_owned(), self.input.text().to_owned(), self.input.cursor()),
        };
        let label = truncate(&label, self.columns / 2);
        let prefix = Prefix::sign(&label, theme.accent());
        let width = self.columns.saturating_sub(1);
        let mut lines = wrap_exact(&[Span::raw(text.clone())], width, &prefix);
        if text.is_empty() && self.run.is_none() && self.search.is_none() && self.picker.is_none() {
            let place = truncate("Type a message, /help for commands", width.saturating_sub(label.width()));
            lines = vec![Line::from(vec![
                Span::styled(label.clone(), theme.accent()),
                Span::styled(place, theme.dim()),
            ])];
        }
        let before = text.get(..cursor).unwrap_or_default();
        let until_cursor = wrap_exact(&[Span::raw(before.to_owned())], width, &prefix);
        let row = until_cursor.len() - 1;
        let column = until_cursor.last().map_or(0, |line| spans_width(&line.spans));
        let max = MAX_INPUT_LINES.min((self.rows / 3).max(1));
        let first = row.saturating_sub(max - 1).min(lines.len().saturating_sub(1));
        let shown: Vec<Line<'static>> = lines.into_iter().skip(first).take(max).collect();
        let mut framed = vec![rule()];
        framed.extend(shown);
        framed.push(rule());
        (framed, (row - first + 1, column))
    }

    fn popup_lines(&self, popup: &Popup) -> Vec<Line<'static>> {
        let theme = self.theme;
        let widest = popup.entries.iter().map(|entry| entry.text.trim_end().width()).max().unwrap_or(0);
        let line = |(index, entry): (usize, &super::completion::Completion)| {
            let is_selected = index == popup.selected;
            let sign = if is_selected { PROMPT } else { "  " };
            let name = truncate(entry.text.trim_end(), self.columns.saturating_sub(4));
            let space = " ".repeat((widest + 2).saturating_sub(name.width()));
            let help = truncate(&entry.help, self.columns.saturating_sub(widest + 6));
            let style = if is_selected { theme.accent() } else { theme.dim() };
            Line::from(vec![
                Span::styled(format!("{sign}{}", clean(&name)), style),
                Span::raw(space),
                Span::styled(help, theme.dim()),
            ])
        };
        // A long list shows the part around the selected entry.
        let max = super::fuzzy::MAX_MATCHES.min((self.rows / 3).max(1));
        let first = (popup.selected + 1).saturating_sub(max);
        popup.entries.iter().enumerate().skip(first).take(max).map(line).collect()
    }

    fn picker_lines(&self, picker: &Picker, room: usize) -> Vec<Line<'static>> {
        let theme = self.theme;
        let choices = picker.matching();
        let selected = picker.selected_index();
        let max = room.saturating_sub(2).clamp(1, 12);
        let first = (selected + 1).saturating_sub(max);
        let head = "Go on in which session? Enter opens it, Esc goes back, typing narrows the list.";
        let mut lines =
            vec![Line::default(), Line::from(Span::styled(truncate(head, self.columns), theme.bold()))];
        if choices.is_empty() {
            lines.push(Line::from(Span::styled("  no session matches", theme.dim())));
        }
        for (index, choice) in choices.iter().enumerate().skip(first).take(max) {
            let sign = if index == selected { PROMPT } else { "  " };
            let text = format!("{sign}{}  {:>4} messages  {}", choice.time, choice.messages, choice.title);
            let style = if index == selected { theme.accent() } else { theme.dim() };
            lines.push(Line::from(Span::styled(truncate(&text, self.columns), style)));
        }
        lines
    }

    /// The agent, the mode and the session at the left, the tokens and the cost at the right; or a hint.
    fn status_line(&self) -> Line<'static> {
        let theme = self.theme;
        let width = self.columns.saturating_sub(1);
        if let Some(hint) = &self.hint {
            return Line::from(Span::styled(
                format!(" {}", truncate(hint, width.saturating_sub(1))),
                theme.warning(),
            ));
        }
        let dot = theme.sign(" · ", " - ");
        let header = &self.header;
        let mut left = vec![header.agent.clone()];
        left.extend(header.model.clone().filter(|model| *model != header.agent));
        if header.agents_under_policy.contains(&header.agent) {
            left.push(header.mode.as_str().to_owned());
        }
        left.extend(header.session.clone());
        left.extend(header.title.clone());
        let right = if self.usage == Usage::default() { String::new() } else { usage_text(self.usage, dot) };
        let room = width.saturating_sub(right.width() + 2);
        let left = truncate(&clean(&left.join(dot)), room);
        let space = " ".repeat(width.saturating_sub(left.width() + right.width() + 1));
        Line::from(Span::styled(format!(" {left}{space}{right}"), theme.dim()))
    }
}

/// `7 s`, `1 min 5 s`.
fn elapsed_text(seconds: u64) -> String {
    if seconds < 60 { format!("{seconds} s") } else { format!("{} min {} s", seconds / 60, seconds % 60) }
}

fn tokens_text(usage: Usage) -> String {
    let input =
        usage.input_tokens.saturating_add(usage.cache_read_tokens).saturating_add(usage.cache_write_tokens);
    format!("{} in, {} out", count_text(input), count_text(usage.output_tokens))
}

/// The tokens and, if known, the cost.
pub(super) fn usage_text(usage: Usage, dot: &str) -> String {
    let tokens = tokens_text(usage);
    match usage.cost_micros {
        0 => tokens,
        micros => format!("{tokens}{dot}{}", dollars_text(micros)),
    }
}

/// `$1.25`; small amounts with four decimals.
pub(super) fn dollars_text(micros: u64) -> String {
    match micros {
        0..10_000 => format!("${}.{:04}", micros / 1_000_000, micros % 1_000_000 / 100),
        _ => format!("${}.{:02}", micros / 1_000_000, micros % 1_000_000 / 10_000),
    }
}

/// A number of tokens in few letters, such as `950`, `1.2k` or `3.4M`.
fn count_text(count: u64) -> String {
    match count {
        0..1000 => count.to_string(),
        1000..1_000_000 => format!("{}.{}k", count / 1000, count % 1000 / 100),
        _ => format!("{}.{}M", count / 1_000_000, count % 1_000_000 / 100_000),
    }
}
