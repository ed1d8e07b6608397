//! What is shown of a run, to whom: a pipe ([`plain`]), a person ([`talk`]) or a program
//! ([`Json`]).

mod plain;
mod repeat;
mod talk;

use std::io::{self, Write};

use parlor_vocab::{RunEnding, RunEvent, RunId, SessionEvent, SessionId, SessionUpdate};

use crate::json;

pub(super) use plain::Plain;
pub(super) use talk::Talk;

/// Somebody to whom a run is shown.
pub(super) trait View {
    /// Shows one thing that was seen. `run` is the run that answers; others are its subagents.
    fn see(&mut self, session: &SessionId, run: &RunId, seen: &SessionUpdate) -> io::Result<()>;

    /// The user has pressed Ctrl-C, which a terminal shows where it stands.
    fn pressed(&mut self) {}

    /// Says something about the run that is not in its events.
    fn note(&mut self, text: &str) -> io::Result<()>;
}

/// Everything, for a program.
pub(super) struct Json<'a> {
    pub(super) out: &'a mut dyn Write,
    pub(super) aside: &'a mut dyn Write,
}

impl View for Json<'_> {
    fn see(&mut self, session: &SessionId, _run: &RunId, seen: &SessionUpdate) -> io::Result<()> {
        json::write_seen(self.out, session, seen)
    }

    fn note(&mut self, text: &str) -> io::Result<()> {
        writeln!(self.aside, "{text}")
    }
}

/// How `run` ended, if this is its end.
pub(super) fn ending<'a>(run: &RunId, seen: &'a SessionUpdate) -> Option<&'a RunEnding> {
    let SessionUpdate::Entry(entry) = seen else { return None };
    match &entry.event {
        SessionEvent::Run { run: of, event: RunEvent::Ended { ending, .. }, .. } if of == run => Some(ending),
        SessionEvent::Run { .. }
        | SessionEvent::Created(_)
        | SessionEvent::Renamed { .. }
        | SessionEvent::Chosen(_)
        | SessionEvent::Queued(_)
        | SessionEvent::Unqueued { .. }
        | SessionEvent::Cleared
        | SessionEvent::Compacted { .. }
        | SessionEvent::MessageAdded(_) => None,
    }
}
