//! The answer and nothing else, for pipes and for those who asked one thing.

use std::io::{self, Write};

use parlor_vocab::{
    MessageEvent, RunEnding, RunEvent, RunId, SessionEvent, SessionId, SessionUpdate, StepEvent, StreamKind,
};

use super::{View, ending};
use crate::text::Clean;

/// Prints what the agent says as it comes. Why there is no answer, or not all of one, goes to `aside`.
pub(in crate::chat) struct Plain<'a> {
    out: &'a mut dyn Write,
    aside: &'a mut dyn Write,
    /// For terminals; a pipe gets every byte.
    clean: Option<Clean>,
    /// Whether the last thing written did not end its line.
    unfinished: bool,
}

impl<'a> Plain<'a> {
    /// Prints to `out`, which is a terminal or not.
    pub(in crate::chat) fn new(out: &'a mut dyn Write, aside: &'a mut dyn Write, terminal: bool) -> Self {
        Self { out, aside, clean: terminal.then(Clean::default), unfinished: false }
    }

    fn say(&mut self, text: &str) -> io::Result<()> {
        let cleaned = self.clean.as_mut().map(|clean| clean.text(text));
        let text = cleaned.as_deref().unwrap_or(text);
        self.out.write_all(text.as_bytes())?;
        if !text.is_empty() {
            self.unfinished = !text.ends_with('\n');
        }
        self.out.flush()
    }

    fn event(&mut self, event: &RunEvent) -> io::Result<()> {
        if let RunEvent::Step(StepEvent::Updated { headline, .. }) = event {
            return self.note(&Clean::default().text(headline));
        }
        if let RunEvent::Message(MessageEvent::Completed { .. }) = event { self.end_line() } else { Ok(()) }
    }

    fn end_line(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.unfinished) {
            self.out.write_all(b"\n")?;
            self.out.flush()?;
        }
        Ok(())
    }
}

impl View for Plain<'_> {
    fn see(&mut self, _session: &SessionId, run: &RunId, seen: &SessionUpdate) -> io::Result<()> {
        match seen {
            SessionUpdate::Delta { run: of, subject: StreamKind::Message(_), text } if of == run => {
                self.say(text)?
            }
            SessionUpdate::Delta { .. } => {}
            SessionUpdate::Entry(entry) => {
                if let SessionEvent::Run { run: of, event, .. } = &entry.event
                    && of == run
                {
                    self.event(event)?;
                }
            }
        }
        match ending(run, seen) {
            Some(RunEnding::Failed(failure)) => {
                self.end_line()?;
                let message = Clean::default().text(&failure.message);
                writeln!(self.aside, "failed: {message} ({})", failure.code)
            }
            Some(RunEnding::Stopped { cause, .. }) => {
                self.end_line()?;
                writeln!(self.aside, "stopped: {}", Clean::default().text(cause.reason()))
            }
            Some(RunEnding::Completed { .. }) => self.end_line(),
            None => Ok(()),
        }
    }

    fn note(&mut self, text: &str) -> io::Result<()> {
        self.end_line()?;
        writeln!(self.aside, "{text}")
    }
}
