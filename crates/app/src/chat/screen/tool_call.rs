//! A tool call on the screen: one line for the call, and one for its output or its result; a change of a file as a diff.

use ratatui_core::text::{Line, Span};

use super::highlight::diff_line;
use super::theme::Theme;
use super::wrap::{Cleaner, Prefix, clean, wrap_exact};
use crate::text::truncate;
use crate::time::duration;

/// Of a diff this many lines are shown; Ctrl-O shows the others.
const DIFF_LINES: usize = 24;
/// Of a failure this many lines are shown.
const FAILURE_LINES: usize = 6;
/// How many bytes of a tool's live output are kept for its last line.
const TAIL_BYTES: usize = 4 << 10;

/// A tool call, or a task of a subagent.
pub(super) struct ToolCall {
    name: String,
    input: String,
    /// Removed and added lines, if the call changes a file.
    diff: Vec<String>,
    cleaner: Cleaner,
    /// The end of the live output.
    tail: String,
    lines: usize,
    result: Option<ToolResult>,
}

/// How a call ended.
pub(super) struct ToolResult {
    /// The output, or why it failed.
    pub(super) text: Result<String, String>,
    pub(super) duration_ms: u64,
}

impl ToolCall {
    pub(super) fn new(name: &str, input: &str) -> Self {
        let (name, diff) = (clean(name).replace('\n', " "), diff_of(input));
        let input = clean(&headline(input));
        let cleaner = Cleaner::default();
        Self { name, input, diff, cleaner, tail: String::new(), lines: 0, result: None }
    }

    pub(super) fn push_output(&mut self, piece: &str) {
        let piece = self.cleaner.clean(piece);
        self.lines += piece.matches('\n').count();
        self.tail.push_str(&piece);
        if self.tail.len() > 2 * TAIL_BYTES {
            let cut = self.tail.ceil_char_boundary(self.tail.len() - TAIL_BYTES);
            self.tail.drain(..cut);
        }
    }

    /// Shows `status` in the place of the last line of output.
    pub(super) fn set_status(&mut self, status: &str) {
        self.tail = clean(status).replace('\n', " ");
    }

    pub(super) fn finish(&mut self, text: Result<&str, &str>, duration_ms: u64) {
        let text = text.map(clean).map_err(clean);
        self.result = Some(ToolResult { text, duration_ms });
    }

    pub(super) fn is_finished(&self) -> bool {
        self.result.is_some()
    }

    /// The output or the failure, once the call has ended.
    pub(super) fn result_text(&self) -> Option<&str> {
        let result = self.result.as_ref()?;
        Some(result.text.as_ref().map_or_else(String::as_str, String::as_str))
    }

    /// The lines on the screen: few while the call runs and after it, unless it is a diff.
    pub(super) fn lines(&self, width: usize, theme: Theme) -> Vec<Line<'static>> {
        let sign = theme.sign("● ", "* ");
        let sign_style = match &self.result {
            None => theme.dim(),
            Some(ToolResult { text: Ok(_), .. }) => theme.success(),
            Some(ToolResult { text: Err(_), .. }) => theme.error(),
        };
        let room = width.saturating_sub(sign.chars().count() + self.name.chars().count() + 1);
        let mut lines = vec![Line::from(vec![
            Span::styled(sign, sign_style),
            Span::styled(truncate(&self.name, width.saturating_sub(2)), theme.bold()),
            Span::raw(" "),
            Span::raw(truncate(&self.input, room)),
        ])];
        let corner = Prefix::sign(theme.sign("  └ ", "  . "), theme.dim());
        let room = width.saturating_sub(4);
        match &self.result {
            None => {
                let last = self.tail.trim_end().rsplit('\n').next().unwrap_or_default();
                if !last.is_empty() {
                    lines.extend(one_line(truncate(last, room), &corner, theme));
                }
            }
            Some(ToolResult { text: Ok(text), duration_ms }) => {
                if !self.diff.is_empty() {
                    lines.extend(self.diff_lines(width, theme, DIFF_LINES));
                    return lines;
                }
                lines.extend(one_line(truncate(&summary(text, *duration_ms, theme), room), &corner, theme));
            }
            Some(ToolResult { text: Err(text), .. }) => {
                let shown: Vec<&str> = text.trim_end().lines().take(FAILURE_LINES).collect();
                let span = Span::styled(shown.join("\n"), theme.error());
                lines.extend(wrap_exact(&[span], width, &corner));
                let more = text.trim_end().lines().count().saturating_sub(FAILURE_LINES);
                if more > 0 {
                    lines.extend(one_line(more_lines(more, theme), &corner, theme));
                }
            }
        }
        lines
    }

    /// All of the call: its input, its diff and its output.
    pub(super) fn all_lines(&self, width: usize, theme: Theme) -> Vec<Line<'static>> {
        let title = format!("{} {}", self.name, self.input);
        let mut lines = wrap_exact(
            &[Span::styled(title, theme.bold())],
            width,
            &Prefix::sign(theme.sign("● ", "* "), theme.dim()),
        );
        lines.extend(self.diff_lines(width, theme, usize::MAX));
        if let Some(text) = self.result_text() {
            for line in text.trim_end().lines() {
                lines.extend(wrap_exact(&[Span::raw(line.to_owned())], width, &Prefix::indent(4)));
            }
        }
        lines
    }

    fn diff_lines(&self, width: usize, theme: Theme, max: usize) -> Vec<Line<'static>> {
        let prefix = Prefix::indent(4);
        let shown = self.diff.iter().take(max);
        let mut lines: Vec<Line<'static>> =
            shown.flat_map(|line| wrap_exact(&[diff_line(line, theme)], width, &prefix)).collect();
        let more = self.diff.len().saturating_sub(max);
        if more > 0 {
            lines.extend(one_line(more_lines(more, theme), &prefix, theme));
        }
        lines
    }
}

fn one_line(text: String, prefix: &Prefix, theme: Theme) -> Vec<Line<'static>> {
    let mut spans = prefix.first.clone();
    spans.push(Span::styled(text, theme.dim()));
    vec![Line::from(spans)]
}

fn more_lines(count: usize, theme: Theme) -> String {
    format!("{} {count} more lines (Ctrl-O)", theme.sign("…", "..."))
}

/// The last line of an output, with the number of lines and the time.
fn summary(text: &str, duration_ms: u64, theme: Theme) -> String {
    let text = text.trim_end();
    let count = text.lines().count();
    let noun = if count == 1 { "line" } else { "lines" };
    let dot = theme.sign("·", "-");
    let last = text.lines().last().unwrap_or_default().trim();
    match count {
        0 => format!("no output {dot} {}", duration(duration_ms)),
        1 => format!("{last} {dot} {}", duration(duration_ms)),
        _ => format!("{count} {noun} {dot} {} {dot} {last}", duration(duration_ms)),
    }
}

/// A tool's input for people: the command, path or text that it is about, else the whole input.
fn headline(input: &str) -> String {
    let Ok(members) = serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(input) else {
        return input.to_owned();
    };
    let text = |name: &str| members.get(name).and_then(serde_json::Value::as_str).map(str::to_owned);
    let single = || match members.len() {
        1 => members.values().next().and_then(serde_json::Value::as_str).map(str::to_owned),
        _ => None,
    };
    ["command", "path"].into_iter().find_map(text).or_else(single).unwrap_or_else(|| input.to_owned())
}

/// The removed and added lines of a call that changes a file.
fn diff_of(input: &str) -> Vec<String> {
    let Ok(members) = serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(input) else {
        return Vec::new();
    };
    let text = |name: &str| members.get(name).and_then(serde_json::Value::as_str).map(clean);
    if text("path").is_none() {
        return Vec::new();
    }
    let (old, new) = match (text("old_text"), text("new_text"), text("content")) {
        (Some(old), Some(new), _) => (old, new),
        (None, None, Some(content)) => (String::new(), content),
        _ => return Vec::new(),
    };
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let same_start = old.iter().zip(&new).take_while(|(old, new)| old == new).count();
    let (old, new) = (old.get(same_start..).unwrap_or_default(), new.get(same_start..).unwrap_or_default());
    let same_end = old.iter().rev().zip(new.iter().rev()).take_while(|(old, new)| old == new).count();
    let removed = old.iter().take(old.len() - same_end).map(|line| format!("-{line}"));
    let added = new.iter().take(new.len() - same_end).map(|line| format!("+{line}"));
    removed.chain(added).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const THEME: Theme = Theme { has_colours: false, has_unicode: true };

    fn shown(call: &ToolCall) -> Vec<String> {
        call.lines(40, THEME).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_running_call_shows_the_last_line_of_its_output() {
        let mut call = ToolCall::new("shell", r#"{"command":"make"}"#);
        assert_eq!(shown(&call), ["● shell make"]);
        call.push_output("one\ntwo\x1b[2J\n");
        assert_eq!(shown(&call), ["● shell make", "  └ two"]);
        call.finish(Ok("one\ntwo\n[exit code 0]"), 1500);
        assert_eq!(shown(&call), ["● shell make", "  └ 3 lines · 1.5 s · [exit code 0]"]);
        assert_eq!(call.all_lines(40, THEME).len(), 4);
    }

    #[test]
    fn a_change_of_a_file_is_a_diff() {
        let input = r#"{"path":"a.rs","old_text":"same\nold\nend","new_text":"same\nnew\nmore\nend"}"#;
        let mut call = ToolCall::new("edit_file", input);
        call.finish(Ok("done"), 1);
        assert_eq!(shown(&call), ["● edit_file a.rs", "    -old", "    +new", "    +more"]);
        let content = "x\\n".repeat(100);
        let mut call = ToolCall::new("write_file", &format!(r#"{{"path":"b","content":"{content}"}}"#));
        call.finish(Ok(""), 1);
        assert_eq!(shown(&call).last().unwrap(), "    … 76 more lines (Ctrl-O)");
    }

    #[test]
    fn hostile_names_inputs_and_floods_stay_inside_their_lines() {
        let mut call = ToolCall::new("a\x1b[2J\nb", "{\"command\":\"x\u{202e}\\ny\"}");
        for _ in 0..100 {
            call.push_output(&"z".repeat(1000));
        }
        assert!(call.tail.len() <= 2 * TAIL_BYTES + 1000);
        let lines = shown(&call);
        assert_eq!(lines[0], "● a b x y");
        assert!(lines[1].chars().count() <= 40, "{lines:?}");
        call.finish(Err(&"long\n".repeat(50)), 1);
        assert_eq!(shown(&call).len(), 2 + FAILURE_LINES);
    }
}
