//! Shows a run to a person at a terminal: the answer as it arrives, and the agent's reasoning and the output of its tools,
//! which are dimmed and indented.

use std::collections::HashMap;
use std::io::{self, Write};

use parlor_vocab::{
    Entry, ErrorScope, Failure, MessageEvent, RunEnding, RunEvent, RunId, SessionEvent, SessionId,
    SessionUpdate, StepEvent, StreamKind, SubagentEvent, ToolCallId, ToolEvent,
};

use super::repeat::{RepeatFilter, unseen_rest};
use super::{View, ending};
use crate::console::Console;
use crate::text::{TerminalSanitizer, truncate};
use crate::time::duration;

/// The start of each line that is not part of the answer.
const INDENT: &str = "  ";
/// The tool whose result is shown even without live output. Of another tool without live output, only the number of lines
/// is shown.
const SHELL: &str = "shell";

/// Prints answers to `out`, and everything else to `details`.
pub(in crate::chat) struct TerminalView<'a> {
    out: &'a mut dyn Write,
    details: &'a mut dyn Write,
    console: Console,
    sanitizer: TerminalSanitizer,
    cursor: Cursor,
    running_tools: HashMap<(RunId, ToolCallId), RunningTool>,
    /// Set while an answer may still repeat the output of the last tool.
    repeat_filter: Option<RepeatFilter>,
    /// The last error that was shown, so that the end of the run does not show it again.
    shown_error: Option<Failure>,
}

/// Where the cursor of the terminal is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cursor {
    LineStart,
    /// After a part of a line of the answer.
    InAnswer,
    /// After a part of a line of details.
    InDetails,
}

struct RunningTool {
    name: String,
    /// The live output that was shown so far. The engine sends at most `LIVE_TOOL_BYTES` of it.
    shown: String,
}

impl<'a> TerminalView<'a> {
    pub(in crate::chat) fn new(out: &'a mut dyn Write, details: &'a mut dyn Write, console: Console) -> Self {
        let (sanitizer, running_tools) = (TerminalSanitizer::default(), HashMap::new());
        let cursor = Cursor::LineStart;
        Self {
            out,
            details,
            console,
            sanitizer,
            cursor,
            running_tools,
            repeat_filter: None,
            shown_error: None,
        }
    }

    /// Prints a message that another client sent.
    pub(in crate::chat) fn message(&mut self, text: &str) -> io::Result<()> {
        self.end_answer()?;
        for line in TerminalSanitizer::default().sanitize(text).trim_end().lines() {
            writeln!(self.out, "> {line}")?;
        }
        self.out.flush()
    }

    /// Prints a piece of the answer, or holds it back while the answer may be a repetition.
    fn push_answer(&mut self, piece: &str) -> io::Result<()> {
        match &mut self.repeat_filter {
            None => self.write_answer(piece),
            Some(filter) => match filter.push(piece) {
                None => Ok(()),
                Some(held_back) => {
                    self.repeat_filter = None;
                    self.write_answer(&held_back)
                }
            },
        }
    }

    /// Prints the rest of an answer that is complete or was broken off, unless it is a repetition.
    fn end_answer(&mut self) -> io::Result<()> {
        if let Some(held_back) = self.repeat_filter.take().and_then(RepeatFilter::finish) {
            self.write_answer(&held_back)?;
        }
        self.end_line()
    }

    fn write_answer(&mut self, text: &str) -> io::Result<()> {
        if self.cursor == Cursor::InDetails {
            self.end_line()?;
        }
        let text = self.sanitizer.sanitize(text);
        if text.is_empty() {
            return Ok(());
        }
        self.cursor = if text.ends_with('\n') { Cursor::LineStart } else { Cursor::InAnswer };
        self.out.write_all(text.as_bytes())?;
        self.out.flush()
    }

    /// Prints a piece of text that is not part of the answer, dimmed and indented.
    fn write_details(&mut self, text: &str) -> io::Result<()> {
        if self.cursor == Cursor::InAnswer {
            self.end_line()?;
        }
        let text = self.sanitizer.sanitize(text);
        let style = self.console.style;
        for line in text.split_inclusive('\n') {
            if self.cursor == Cursor::LineStart {
                self.details.write_all(INDENT.as_bytes())?;
            }
            let (line, end) = line.strip_suffix('\n').map_or((line, ""), |line| (line, "\n"));
            write!(self.details, "{}{end}", style.dim(line))?;
            self.cursor = if end.is_empty() { Cursor::InDetails } else { Cursor::LineStart };
        }
        self.details.flush()
    }

    /// Prints one line about a tool call or a subagent.
    fn write_headline(&mut self, name: &str, text: &str) -> io::Result<()> {
        self.end_line()?;
        let columns = self.console.columns();
        let line = truncate(&format!("[{name}] {text}"), columns.saturating_sub(1));
        writeln!(self.details, "{}", self.console.style.dim(&line))
    }

    fn write_error(&mut self, text: &str) -> io::Result<()> {
        self.end_line()?;
        let text = TerminalSanitizer::default().sanitize(text);
        writeln!(self.details, "{}", self.console.style.red(text.trim_end()))
    }

    fn end_line(&mut self) -> io::Result<()> {
        self.sanitizer = TerminalSanitizer::default();
        match std::mem::replace(&mut self.cursor, Cursor::LineStart) {
            Cursor::LineStart => Ok(()),
            Cursor::InAnswer => self.out.write_all(b"\n").and_then(|()| self.out.flush()),
            Cursor::InDetails => self.details.write_all(b"\n").and_then(|()| self.details.flush()),
        }
    }

    fn write_entry(&mut self, main_run: &RunId, entry: &Entry) -> io::Result<()> {
        let SessionEvent::Run { run, event, .. } = &entry.event else { return Ok(()) };
        match event {
            RunEvent::Message(MessageEvent::Completed { .. }) if run == main_run => self.end_answer(),
            RunEvent::Message(MessageEvent::Completed { .. })
            | RunEvent::Step(StepEvent::Reasoned { .. }) => self.end_line(),
            RunEvent::Tool(ToolEvent::Called { call, tool, input, .. }) => {
                self.end_answer()?;
                let running = RunningTool { name: tool.clone(), shown: String::new() };
                self.running_tools.insert((run.clone(), call.clone()), running);
                self.write_headline(tool, &input_text(input))
            }
            RunEvent::Tool(ToolEvent::Completed { call, output, duration_ms, .. }) => {
                let tool = self.running_tools.remove(&(run.clone(), call.clone()));
                self.write_tool_result(tool, output, *duration_ms, run == main_run)
            }
            RunEvent::Tool(ToolEvent::Failed { call, failure, .. }) => {
                self.running_tools.remove(&(run.clone(), call.clone()));
                self.write_tool_failure(failure, run == main_run)
            }
            RunEvent::Subagent(SubagentEvent::Started { name, task, .. }) => self.write_headline(name, task),
            RunEvent::Subagent(SubagentEvent::Updated { status, .. }) => {
                self.write_headline("subagent", status)
            }
            RunEvent::Subagent(SubagentEvent::Done { result, duration_ms, .. }) => {
                let outcome = match result {
                    Ok(_) => format!("done after {}", duration(*duration_ms)),
                    Err(failure) => format!("failed: {}", failure.message),
                };
                self.write_headline("subagent", &outcome)
            }
            RunEvent::Step(StepEvent::Updated { headline, .. }) => {
                self.end_line()?;
                self.write_details(&format!("{headline}\n"))
            }
            RunEvent::ErrorRaised { scope: ErrorScope::Run, failure } => {
                self.shown_error = Some(failure.clone());
                self.write_error(&format!("error: {}", failure_text(failure)))
            }
            // The live output of the tool is shown instead.
            RunEvent::Tool(ToolEvent::Progressed { .. }) => Ok(()),
            // The failure of the tool was shown already.
            RunEvent::ErrorRaised { scope: ErrorScope::Tool(_), .. } => Ok(()),
            // The exchange asks the user, and tells how a question was settled.
            RunEvent::Question(_) => Ok(()),
            RunEvent::Started { .. }
            | RunEvent::Steered { .. }
            | RunEvent::Message(MessageEvent::Started { .. })
            | RunEvent::Step(
                StepEvent::Started { .. } | StepEvent::Completed { .. } | StepEvent::Failed { .. },
            )
            | RunEvent::UsageAdded { .. }
            | RunEvent::Ended { .. } => Ok(()),
        }
    }

    fn write_tool_result(
        &mut self,
        tool: Option<RunningTool>,
        result: &str,
        duration_ms: u64,
        is_main_run: bool,
    ) -> io::Result<()> {
        let Some(RunningTool { name, shown }) = tool else { return Ok(()) };
        if shown.is_empty() && name != SHELL {
            let lines = result.lines().count();
            let noun = if lines == 1 { "line" } else { "lines" };
            return self.write_details(&format!("{lines} {noun}, {}\n", duration(duration_ms)));
        }
        if let Some(rest) = unseen_rest(&shown, result) {
            self.write_details(rest)?;
            if is_main_run {
                self.repeat_filter = Some(RepeatFilter::new(result.to_owned()));
            }
        }
        self.end_line()
    }

    fn write_tool_failure(&mut self, failure: &Failure, is_main_run: bool) -> io::Result<()> {
        self.write_error(&format!("{INDENT}{}", failure.message))?;
        if is_main_run {
            self.repeat_filter = Some(RepeatFilter::new(failure.message.clone()));
        }
        Ok(())
    }
}

impl View for TerminalView<'_> {
    fn update(&mut self, _session: &SessionId, run: &RunId, update: &SessionUpdate) -> io::Result<()> {
        match update {
            SessionUpdate::Delta { run: delta_run, stream: StreamKind::Message(_), text }
                if delta_run == run =>
            {
                self.push_answer(text)?
            }
            SessionUpdate::Delta { run: delta_run, stream: StreamKind::ToolOutput(call), text } => {
                if let Some(tool) = self.running_tools.get_mut(&(delta_run.clone(), call.clone())) {
                    tool.shown.push_str(text);
                }
                self.write_details(text)?;
            }
            SessionUpdate::Delta {
                stream: StreamKind::Message(_) | StreamKind::Reasoning(_), text, ..
            } => self.write_details(text)?,
            // The input is shown with the call.
            SessionUpdate::Delta { stream: StreamKind::ToolInput { .. }, .. } => {}
            SessionUpdate::Entry(entry) => self.write_entry(run, entry)?,
        }
        match ending(run, update) {
            Some(RunEnding::Failed(failure)) => {
                self.end_answer()?;
                if self.shown_error.as_ref() == Some(failure) {
                    return Ok(());
                }
                self.write_error(&format!("failed: {}", failure_text(failure)))
            }
            Some(RunEnding::Completed { .. } | RunEnding::Stopped { .. }) => self.end_answer(),
            None => Ok(()),
        }
    }

    fn ctrl_c_echoed(&mut self) {
        if self.cursor == Cursor::LineStart {
            self.cursor = Cursor::InDetails;
        }
    }

    fn notice(&mut self, text: &str) -> io::Result<()> {
        self.end_line()?;
        writeln!(self.details, "{}", self.console.style.dim(text))
    }
}

fn failure_text(failure: &Failure) -> String {
    let retry = if failure.retryable { "; trying again may work" } else { "" };
    format!("{} ({}{retry})", failure.message, failure.code)
}

/// A tool's input for people: if it has a single text member, that text, else the whole input.
fn input_text(input: &str) -> String {
    match serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(input) {
        Ok(members) if members.len() == 1 => {
            members.into_iter().next().and_then(|(_, value)| value.as_str().map(str::to_owned))
        }
        Ok(_) | Err(_) => None,
    }
    .unwrap_or_else(|| input.to_owned())
}
