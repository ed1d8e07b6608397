//! A run as a person at a terminal sees it: the answer as it is written, and dim beside it what
//! the agent thinks and what its tools do.

use std::collections::HashMap;
use std::io::{self, Write};

use parlor_vocab::{
    Entry, ErrorScope, Failure, MessageEvent, RunEnding, RunEvent, RunId, SessionEvent, SessionId,
    SessionUpdate, StepEvent, StreamKind, SubagentEvent, ToolCallId, ToolEvent,
};

use super::repeat::{Repeat, rest};
use super::{View, ending};
use crate::console::Console;
use crate::text::{Clean, cut};
use crate::time::duration;

/// Stands before each line that is not the answer.
const INDENT: &str = "  ";
/// The tool whose whole output is for people to see. Of others, only what they show while they work.
const SHELL: &str = "shell";

/// Shows a conversation. Answers go to `out`; what is about them goes to `aside`.
pub(in crate::chat) struct Talk<'a> {
    out: &'a mut dyn Write,
    aside: &'a mut dyn Write,
    console: Console,
    clean: Clean,
    last: Last,
    tools: HashMap<(RunId, ToolCallId), Tool>,
    repeat: Option<Repeat>,
    /// The error that was shown last, which the end of the run would only repeat.
    raised: Option<Failure>,
}

/// What was written last.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Last {
    /// A whole line.
    Line,
    /// A part of an answer's line.
    Answer,
    /// A part of a line aside.
    Aside,
}

/// A tool that is at work.
struct Tool {
    name: String,
    /// What was shown of its output. The engine shows no more than `LIVE_TOOL_BYTES`.
    shown: String,
}

impl<'a> Talk<'a> {
    pub(in crate::chat) fn new(out: &'a mut dyn Write, aside: &'a mut dyn Write, console: Console) -> Self {
        let (clean, tools) = (Clean::default(), HashMap::new());
        Self { out, aside, console, clean, last: Last::Line, tools, repeat: None, raised: None }
    }

    /// A piece of the answer, unless it may be a repetition.
    fn answer(&mut self, piece: &str) -> io::Result<()> {
        match &mut self.repeat {
            None => self.say(piece),
            Some(repeat) => match repeat.hear(piece) {
                None => Ok(()),
                Some(all) => {
                    self.repeat = None;
                    self.say(&all)
                }
            },
        }
    }

    /// The answer is complete, or will never be.
    fn end_answer(&mut self) -> io::Result<()> {
        if let Some(all) = self.repeat.take().and_then(Repeat::end) {
            self.say(&all)?;
        }
        self.end_line()
    }

    fn say(&mut self, text: &str) -> io::Result<()> {
        if self.last == Last::Aside {
            self.end_line()?;
        }
        let text = self.clean.text(text);
        if text.is_empty() {
            return Ok(());
        }
        self.last = if text.ends_with('\n') { Last::Line } else { Last::Answer };
        self.out.write_all(text.as_bytes())?;
        self.out.flush()
    }

    /// A piece of text that is not the answer, indented.
    fn beside(&mut self, text: &str) -> io::Result<()> {
        if self.last == Last::Answer {
            self.end_line()?;
        }
        let text = self.clean.text(text);
        let style = self.console.style;
        for line in text.split_inclusive('\n') {
            if self.last == Last::Line {
                self.aside.write_all(INDENT.as_bytes())?;
            }
            let (words, end) = line.strip_suffix('\n').map_or((line, ""), |words| (words, "\n"));
            write!(self.aside, "{}{end}", style.dim(words))?;
            self.last = if end.is_empty() { Last::Aside } else { Last::Line };
        }
        self.aside.flush()
    }

    /// A line about what goes on.
    fn headline(&mut self, who: &str, what: &str) -> io::Result<()> {
        self.end_line()?;
        let columns = self.console.columns();
        let line = cut(&format!("[{who}] {what}"), columns.saturating_sub(1));
        writeln!(self.aside, "{}", self.console.style.dim(&line))
    }

    fn trouble(&mut self, text: &str) -> io::Result<()> {
        self.end_line()?;
        let text = Clean::default().text(text);
        writeln!(self.aside, "{}", self.console.style.red(text.trim_end()))
    }

    fn end_line(&mut self) -> io::Result<()> {
        self.clean = Clean::default();
        match std::mem::replace(&mut self.last, Last::Line) {
            Last::Line => Ok(()),
            Last::Answer => self.out.write_all(b"\n").and_then(|()| self.out.flush()),
            Last::Aside => self.aside.write_all(b"\n").and_then(|()| self.aside.flush()),
        }
    }

    fn entry(&mut self, run: &RunId, entry: &Entry) -> io::Result<()> {
        let SessionEvent::Run { run: of, event, .. } = &entry.event else { return Ok(()) };
        match event {
            RunEvent::Message(MessageEvent::Completed { .. }) if of == run => self.end_answer(),
            RunEvent::Message(MessageEvent::Completed { .. })
        | RunEvent::Step(StepEvent::Reasoned { .. }) => self.end_line(),
            RunEvent::Tool(ToolEvent::Called { call, tool, input, .. }) => {
                self.end_answer()?;
                let at_work = Tool { name: tool.clone(), shown: String::new() };
                self.tools.insert((of.clone(), call.clone()), at_work);
                self.headline(tool, &in_short(input))
            }
            RunEvent::Tool(ToolEvent::Completed { call, output, duration_ms }) => {
                let tool = self.tools.remove(&(of.clone(), call.clone()));
                self.tool_completed(tool, output, *duration_ms, of == run)
            }
            RunEvent::Tool(ToolEvent::Failed { call, failure, .. }) => {
                self.tools.remove(&(of.clone(), call.clone()));
                self.tool_failed(failure, of == run)
            }
            RunEvent::Subagent(SubagentEvent::Started { name, task, .. }) => self.headline(name, task),
            RunEvent::Subagent(SubagentEvent::Updated { status, .. }) => self.headline("subagent", status),
            RunEvent::Subagent(SubagentEvent::Done { result, duration_ms, .. }) => {
                let how = match result {
                    Ok(_) => format!("done after {}", duration(*duration_ms)),
                    Err(failure) => format!("failed: {}", failure.message),
                };
                self.headline("subagent", &how)
            }
            RunEvent::Step(StepEvent::Updated { headline, .. }) => {
                self.end_line()?;
                self.beside(&format!("{headline}\n"))
            }
            RunEvent::ErrorRaised { scope: ErrorScope::Run, failure } => {
                self.raised = Some(failure.clone());
                self.trouble(&format!("error: {}", in_words(failure)))
            }
            RunEvent::Started { .. }
        | RunEvent::Steered { .. }
        | RunEvent::Message(MessageEvent::Started { .. })
        | RunEvent::Step(StepEvent::Started { .. } | StepEvent::Completed { .. } | StepEvent::Failed { .. })
            // What it puts out is shown as it comes.
            | RunEvent::Tool(ToolEvent::Progressed { .. })
            // Its failure was told.
            | RunEvent::ErrorRaised { scope: ErrorScope::Tool(_), .. }
            | RunEvent::Consumed { .. }
        | RunEvent::Ended { .. } => Ok(()),
        }
    }

    fn tool_completed(&mut self, tool: Option<Tool>, result: &str, ms: u64, ours: bool) -> io::Result<()> {
        let Some(Tool { name, shown }) = tool else { return Ok(()) };
        if shown.is_empty() && name != SHELL {
            let lines = result.lines().count();
            let noun = if lines == 1 { "line" } else { "lines" };
            return self.beside(&format!("{lines} {noun}, {}\n", duration(ms)));
        }
        if let Some(rest) = rest(&shown, result) {
            self.beside(rest)?;
            if ours {
                self.repeat = Some(Repeat::of(result.to_owned()));
            }
        }
        self.end_line()
    }

    fn tool_failed(&mut self, failure: &Failure, ours: bool) -> io::Result<()> {
        self.trouble(&format!("{INDENT}{}", failure.message))?;
        if ours {
            self.repeat = Some(Repeat::of(failure.message.clone()));
        }
        Ok(())
    }
}

impl View for Talk<'_> {
    fn see(&mut self, _session: &SessionId, run: &RunId, seen: &SessionUpdate) -> io::Result<()> {
        match seen {
            SessionUpdate::Delta { run: of, subject: StreamKind::Message(_), text } if of == run => {
                self.answer(text)?
            }
            SessionUpdate::Delta { run: of, subject: StreamKind::Tool(call), text } => {
                if let Some(tool) = self.tools.get_mut(&(of.clone(), call.clone())) {
                    tool.shown.push_str(text);
                }
                self.beside(text)?;
            }
            SessionUpdate::Delta {
                subject: StreamKind::Message(_) | StreamKind::Thought(_), text, ..
            } => self.beside(text)?,
            // A call is shown when it is made.
            SessionUpdate::Delta { subject: StreamKind::Input { .. }, .. } => {}
            SessionUpdate::Entry(entry) => self.entry(run, entry)?,
        }
        match ending(run, seen) {
            Some(RunEnding::Failed(failure)) => {
                self.end_answer()?;
                if self.raised.as_ref() == Some(failure) {
                    return Ok(());
                }
                self.trouble(&format!("failed: {}", in_words(failure)))
            }
            Some(RunEnding::Completed { .. } | RunEnding::Stopped { .. }) => self.end_answer(),
            None => Ok(()),
        }
    }

    fn pressed(&mut self) {
        if self.last == Last::Line {
            self.last = Last::Aside;
        }
    }

    fn note(&mut self, text: &str) -> io::Result<()> {
        self.end_line()?;
        writeln!(self.aside, "{}", self.console.style.dim(text))
    }
}

fn in_words(failure: &Failure) -> String {
    let again = if failure.retryable { "; the same again may work" } else { "" };
    format!("{} ({}{again})", failure.message, failure.code)
}

/// A tool's input: its one text if it has no more than that, else as it is.
fn in_short(input: &str) -> String {
    match serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(input) {
        Ok(members) if members.len() == 1 => {
            members.into_iter().next().and_then(|(_, value)| value.as_str().map(str::to_owned))
        }
        Ok(_) | Err(_) => None,
    }
    .unwrap_or_else(|| input.to_owned())
}
