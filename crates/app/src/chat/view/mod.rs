//! Prints the updates of a run: as plain text for a pipe ([`plain`]), for a person at a terminal ([`terminal`]), or as
//! JSON for a program ([`JsonView`]).

mod plain;
mod repeat;
mod terminal;

use std::io::{self, Write};

use parlor_vocab::{RunEnding, RunEvent, RunId, SessionEvent, SessionId, SessionUpdate};

use crate::json;

pub(super) use plain::PlainView;
pub(super) use terminal::TerminalView;

/// Prints the updates of a run.
pub(super) trait View {
    /// Prints one update. `run` is the run that answers. Other runs are those of its subagents, or of other clients if
    /// `shows_other_runs`.
    fn update(&mut self, session: &SessionId, run: &RunId, update: &SessionUpdate) -> io::Result<()>;

    /// Whether updates of other clients' runs are printed too.
    fn shows_other_runs(&self) -> bool {
        false
    }

    /// The user has pressed Ctrl-C, and the terminal has printed `^C` at the cursor.
    fn ctrl_c_echoed(&mut self) {}

    /// Prints a notice about the run that is not one of its events.
    fn notice(&mut self, text: &str) -> io::Result<()>;
}

/// Prints all updates as JSON lines to `out`, and notices to `notices`.
pub(super) struct JsonView<'a> {
    pub(super) out: &'a mut dyn Write,
    pub(super) notices: &'a mut dyn Write,
}

impl View for JsonView<'_> {
    fn update(&mut self, session: &SessionId, _run: &RunId, update: &SessionUpdate) -> io::Result<()> {
        json::write_update(self.out, session, update)
    }

    fn shows_other_runs(&self) -> bool {
        true
    }

    fn notice(&mut self, text: &str) -> io::Result<()> {
        writeln!(self.notices, "{text}")
    }
}

/// How `run` ended, if this update is its end.
pub(super) fn ending<'a>(run: &RunId, update: &'a SessionUpdate) -> Option<&'a RunEnding> {
    let SessionUpdate::Entry(entry) = update else { return None };
    match &entry.event {
        SessionEvent::Run { run: id, event: RunEvent::Ended { ending, .. }, .. } if id == run => Some(ending),
        SessionEvent::Run { .. }
        | SessionEvent::Created(_)
        | SessionEvent::Renamed { .. }
        | SessionEvent::AgentChosen(_)
        | SessionEvent::ModeChosen { .. }
        | SessionEvent::Queued(_)
        | SessionEvent::Unqueued { .. }
        | SessionEvent::Cleared
        | SessionEvent::Compacted { .. }
        | SessionEvent::MessageAdded(_) => None,
    }
}
