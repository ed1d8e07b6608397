//! What happened, outside of a connection: entries of the log as the frames that a socket would show of them.

use std::collections::HashMap;

use parlor_vocab::{Entry, QueuedInput, RunEnding, RunEvent, RunId, SessionEvent, SessionId};
use serde_json::{Map, Value, json};

use super::activity::ActivityEvent;
use super::code::RUN_CANCELLED;
use super::frame::{self, object};
use super::run::Run;

const RENAMED: &str = "session.renamed";
const QUEUED: &str = "run.queued";
const UNQUEUED: &str = "run.unqueued";

/// Makes frames of the entries of a session, for who looks back. It is to be shown them in order, from the start
/// of a run or from between two.
pub struct Replay {
    session: SessionId,
    /// The runs under way.
    runs: HashMap<RunId, Run>,
}

impl Replay {
    /// Of a session of which nothing was shown yet.
    pub fn new(session: SessionId) -> Self {
        Self { session, runs: HashMap::new() }
    }

    /// The frame of the next entry, as a client with `stream=1` gets it; none if it would get none.
    pub fn frame(&mut self, entry: &Entry) -> Option<Vec<u8>> {
        let SessionEvent::Run { run: id, sequence, event } = &entry.event else {
            let (kind, payload) = aside(&entry.event)?;
            return Some(frame::typed(kind, None, Some(self.session.to_string()), payload, entry.at));
        };
        if let Some(run) = Run::begun_by(event) {
            self.runs.insert(id.clone(), run);
        }
        let run = self.runs.get_mut(id)?;
        run.note(event);
        let (session, sequence) = (self.session.as_str(), *sequence);
        let activity = ActivityEvent { session, id, run, sequence, event, entry, replay: true }.activity();
        if matches!(event, RunEvent::Ended { .. }) {
            self.runs.remove(id);
        }
        Some(frame::bytes(&activity))
    }
}

/// What an entry is called: as the frame that is made of it, or by a name of its own if there is none.
pub fn event_type(entry: &Entry) -> &'static str {
    match &entry.event {
        SessionEvent::Run { run: id, sequence, event } => {
            let run = Run::refused(false, String::new(), None);
            let happening =
                ActivityEvent { session: "", id, run: &run, sequence: *sequence, event, entry, replay: true };
            happening.kind()
        }
        SessionEvent::Renamed { .. } => RENAMED,
        SessionEvent::Queued(_) => QUEUED,
        SessionEvent::Unqueued { .. } => UNQUEUED,
        SessionEvent::Created(_) => "session.created",
        SessionEvent::Chosen(_) => "session.chosen",
        SessionEvent::Cleared => "session.cleared",
        SessionEvent::Compacted { .. } => "session.compacted",
        SessionEvent::MessageAdded(_) => "message.added",
    }
}

/// Why the run that an entry ends did not come to its own end: as `error_code` of the frame that is made of it.
pub fn error_code(entry: &Entry) -> Option<&str> {
    let SessionEvent::Run { event: RunEvent::Ended { ending, .. }, .. } = &entry.event else { return None };
    match ending {
        RunEnding::Completed { .. } => None,
        RunEnding::Failed(failure) => Some(failure.code.as_str()),
        RunEnding::Stopped { .. } => Some(RUN_CANCELLED),
    }
}

/// What happens beside runs, as far as clients that want to know more hear of it.
pub(super) fn aside(event: &SessionEvent) -> Option<(&'static str, Map<String, Value>)> {
    let (kind, payload) = match event {
        SessionEvent::Renamed { title } => (RENAMED, json!({"title": title})),
        SessionEvent::Queued(queued) => {
            let QueuedInput { run, input } = queued;
            (QUEUED, json!({"run_id": run.as_str(), "text": input.text, "key": input.key}))
        }
        SessionEvent::Unqueued { runs } => {
            let runs: Vec<&str> = runs.iter().map(RunId::as_str).collect();
            (UNQUEUED, json!({"run_ids": runs}))
        }
        SessionEvent::Created(_)
        | SessionEvent::Chosen(_)
        | SessionEvent::Cleared
        | SessionEvent::Compacted { .. }
        | SessionEvent::MessageAdded(_)
        | SessionEvent::Run { .. } => return None,
    };
    Some((kind, object(payload)))
}
