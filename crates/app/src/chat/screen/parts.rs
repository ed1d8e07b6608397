//! The parts of a run on the screen: messages, reasoning and tool calls, in the order in which they began.
//!
//! A part is live until it has ended and all parts before it have; then its lines are finished and never change. Of a message
//! that is being written, the blocks before its last one are finished early.

use std::time::Duration;

use parlor_vocab::{MessageId, RunId, StepId, ToolCallId};
use ratatui_core::text::{Line, Span};

use super::markdown::{last_block, markdown};
use super::theme::Theme;
use super::tool_call::ToolCall;
use super::wrap::{Cleaner, Prefix, clean, wrap, wrap_exact};

/// A block of a message that is longer than this is finished before its end, so that redrawing it stays cheap.
const MAX_LIVE_BLOCK: usize = 64 << 10;

/// What identifies a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PartId {
    Message(MessageId),
    Reasoning(StepId),
    Tool(RunId, ToolCallId),
    Subagent(RunId),
}

pub(super) struct Part {
    pub(super) id: PartId,
    pub(super) content: Content,
}

pub(super) enum Content {
    Message(LiveText),
    Reasoning { text: LiveText, since: Duration, took: Option<Duration> },
    Tool(ToolCall),
}

/// A text that is being written.
#[derive(Default)]
pub(super) struct LiveText {
    cleaner: Cleaner,
    text: String,
    /// How many bytes of the text are finished lines already.
    finished: usize,
    is_complete: bool,
    /// Whether it is output of a command, which is no markdown.
    is_output: bool,
}

impl LiveText {
    pub(super) fn push(&mut self, piece: &str) {
        let piece = self.cleaner.clean(piece);
        self.text.push_str(&piece);
    }

    /// The text is complete; `whole` is all of it, in case not every piece came while it was written.
    pub(super) fn complete(&mut self, whole: &str) {
        let whole = clean(whole);
        if whole.starts_with(&self.text) {
            self.text = whole;
        }
        self.is_complete = true;
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    fn unfinished(&self) -> &str {
        self.text.get(self.finished..).unwrap_or_default()
    }

    /// Marks the text as the output of a command if it is a part of `output`.
    pub(super) fn compare_with_output(&mut self, output: &str) {
        let is_repeated = output.trim_end().starts_with(self.text.trim_end());
        self.is_output = self.finished == 0 && is_repeated;
    }

    fn lines(&self, text: &str, width: usize, theme: Theme) -> Vec<Line<'static>> {
        if self.is_output { output_lines(text, width) } else { markdown(text, width, theme) }
    }

    /// The lines that will not change any more.
    fn take_finished(&mut self, width: usize, theme: Theme) -> Vec<Line<'static>> {
        let rest = self.unfinished();
        let end = if self.is_complete {
            rest.len()
        } else if rest.len() > MAX_LIVE_BLOCK {
            rest.rfind('\n').map_or(rest.len(), |line_end| line_end + 1)
        } else if self.is_output {
            0
        } else {
            last_block(rest)
        };
        let block = rest.get(..end).unwrap_or_default();
        let lines = if block.trim().is_empty() { Vec::new() } else { self.lines(block, width, theme) };
        self.finished += end;
        lines
    }
}

/// The output of a command: as it is.
pub(super) fn output_lines(text: &str, width: usize) -> Vec<Line<'static>> {
    let lines = text.trim_end().lines();
    lines.flat_map(|line| wrap_exact(&[Span::raw(line.to_owned())], width, &Prefix::indent(2))).collect()
}

impl Part {
    pub(super) fn is_complete(&self) -> bool {
        match &self.content {
            Content::Message(text) => text.is_complete,
            Content::Reasoning { took, .. } => took.is_some(),
            Content::Tool(call) => call.is_finished(),
        }
    }

    /// Whether it is one of several short lines that need no space between them.
    pub(super) fn is_short(&self) -> bool {
        !matches!(self.content, Content::Message(_))
    }

    /// The lines that will not change any more, without those that were taken before.
    pub(super) fn take_finished(&mut self, width: usize, theme: Theme) -> Vec<Line<'static>> {
        match &mut self.content {
            Content::Message(text) => text.take_finished(width, theme),
            Content::Reasoning { took: None, .. } => Vec::new(),
            Content::Tool(call) if !call.is_finished() => Vec::new(),
            Content::Reasoning { .. } | Content::Tool(_) => self.live_lines(width, theme, Duration::ZERO),
        }
    }

    /// The lines as they are now.
    pub(super) fn live_lines(&self, width: usize, theme: Theme, now: Duration) -> Vec<Line<'static>> {
        match &self.content {
            Content::Message(text) => match text.unfinished() {
                rest if rest.trim().is_empty() => Vec::new(),
                rest => text.lines(rest, width, theme),
            },
            Content::Tool(call) => call.lines(width, theme),
            Content::Reasoning { text, since, took } => {
                let seconds = took.unwrap_or_else(|| now.saturating_sub(*since)).as_secs();
                let sign = theme.sign("✻ ", "~ ");
                let (head, hint) = match took {
                    Some(_) => (format!("Thought for {seconds} s"), "  (Ctrl-O shows it)"),
                    None => (format!("Thinking, {seconds} s"), ""),
                };
                let style = theme.dim().patch(theme.italic());
                let mut lines = vec![Line::from(vec![
                    Span::styled(format!("{sign}{head}"), style),
                    Span::styled(hint, theme.dim()),
                ])];
                if took.is_none() {
                    lines.extend(last_lines(text.text(), width, theme));
                }
                lines
            }
        }
    }

    /// All lines of a part that is folded on the screen.
    pub(super) fn unfolded(&self, width: usize, theme: Theme) -> Option<Vec<Line<'static>>> {
        match &self.content {
            Content::Message(_) => None,
            Content::Tool(call) => Some(call.all_lines(width, theme)),
            Content::Reasoning { text, .. } => {
                let style = theme.dim().patch(theme.italic());
                let spans = [Span::styled(text.text().trim_end().to_owned(), style)];
                Some(wrap(&spans, width, &Prefix::sign(theme.sign("✻ ", "~ "), theme.dim())))
            }
        }
    }
}

/// The last line of the reasoning, so that one sees it move.
fn last_lines(text: &str, width: usize, theme: Theme) -> Vec<Line<'static>> {
    let last = text.trim_end().rsplit('\n').next().unwrap_or_default();
    let style = theme.dim().patch(theme.italic());
    let mut lines = wrap(&[Span::styled(last.to_owned(), style)], width, &Prefix::indent(2));
    let count = lines.len();
    if last.is_empty() { Vec::new() } else { lines.split_off(count.saturating_sub(2)) }
}
