//! Prints the answer alone, for pipes and for `parlor chat MESSAGE`.

use std::io::{self, Write};

use parlor_vocab::{
    MessageEvent, RunEnding, RunEvent, RunId, SessionEvent, SessionId, SessionUpdate, StepEvent, StreamKind,
};

use super::{View, ending};
use crate::text::TerminalSanitizer;

/// Prints the answer to `out` as it comes, and progress, failures and stops to `notices`.
pub(in crate::chat) struct PlainView<'a> {
    out: &'a mut dyn Write,
    notices: &'a mut dyn Write,
    /// Set if `out` is a terminal; a pipe gets every byte.
    sanitizer: Option<TerminalSanitizer>,
    /// Whether the last text on `out` did not end in a line break.
    in_line: bool,
}

impl<'a> PlainView<'a> {
    /// `is_terminal` says whether `out` is a terminal.
    pub(in crate::chat) fn new(
        out: &'a mut dyn Write,
        notices: &'a mut dyn Write,
        is_terminal: bool,
    ) -> Self {
        Self { out, notices, sanitizer: is_terminal.then(TerminalSanitizer::default), in_line: false }
    }

    fn write_answer(&mut self, text: &str) -> io::Result<()> {
        let sanitized = self.sanitizer.as_mut().map(|sanitizer| sanitizer.sanitize(text));
        let text = sanitized.as_deref().unwrap_or(text);
        self.out.write_all(text.as_bytes())?;
        if !text.is_empty() {
            self.in_line = !text.ends_with('\n');
        }
        self.out.flush()
    }

    fn run_event(&mut self, event: &RunEvent) -> io::Result<()> {
        if let RunEvent::Step(StepEvent::Updated { headline, .. }) = event {
            return self.notice(&TerminalSanitizer::default().sanitize(headline));
        }
        if let RunEvent::Message(MessageEvent::Completed { .. }) = event { self.end_line() } else { Ok(()) }
    }

    fn end_line(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.in_line) {
            self.out.write_all(b"\n")?;
            self.out.flush()?;
        }
        Ok(())
    }
}

impl View for PlainView<'_> {
    fn update(&mut self, _session: &SessionId, run: &RunId, update: &SessionUpdate) -> io::Result<()> {
        match update {
            SessionUpdate::Delta { run: of, stream: StreamKind::Message(_), text } if of == run => {
                self.write_answer(text)?
            }
            SessionUpdate::Delta { .. } => {}
            SessionUpdate::Entry(entry) => {
                if let SessionEvent::Run { run: of, event, .. } = &entry.event
                    && of == run
                {
                    self.run_event(event)?;
                }
            }
        }
        match ending(run, update) {
            Some(RunEnding::Failed(failure)) => {
                self.end_line()?;
                let message = TerminalSanitizer::default().sanitize(&failure.message);
                writeln!(self.notices, "failed: {message} ({})", failure.code)
            }
            Some(RunEnding::Stopped { cause, .. }) => {
                self.end_line()?;
                writeln!(self.notices, "stopped: {}", TerminalSanitizer::default().sanitize(cause.reason()))
            }
            Some(RunEnding::Completed { .. }) => self.end_line(),
            None => Ok(()),
        }
    }

    fn notice(&mut self, text: &str) -> io::Result<()> {
        self.end_line()?;
        writeln!(self.notices, "{text}")
    }
}
