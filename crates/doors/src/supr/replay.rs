//! Log entries as frames, without a connection: the same frames that a socket would send.

use std::collections::HashMap;

use parlor_vocab::{
    Entry, QueuedInput, RunEnding, RunEvent, RunId, SessionEvent, SessionId, StreamKind, Timestamp,
};
use serde_json::{Map, Value, json};

use super::activity::{ActivityEvent, PlainText};
use super::code::RUN_CANCELLED;
use super::encode::{self, object};
use super::run::Run;

const RENAMED: &str = "session.renamed";
const QUEUED: &str = "run.queued";
const UNQUEUED: &str = "run.unqueued";

/// Makes frames of the log entries of a session. Pass the entries in order, and begin at the start of a run or between
/// two runs.
pub struct Replay {
    session: SessionId,
    /// The runs that have not ended yet.
    runs: HashMap<RunId, Run>,
}

impl Replay {
    /// Begins with no run active.
    pub fn new(session: SessionId) -> Self {
        Self { session, runs: HashMap::new() }
    }

    /// The frame of the next entry, as a client with `stream=1` gets it; `None` if the entry has no frame.
    pub fn frame(&mut self, entry: &Entry) -> Option<Vec<u8>> {
        let SessionEvent::Run { run: id, sequence, event } = &entry.event else {
            let (kind, payload) = session_frame(&entry.event)?;
            return Some(encode::typed(kind, None, Some(self.session.to_string()), payload, entry.at));
        };
        if let Some(run) = Run::from_start_event(event) {
            self.runs.insert(id.clone(), run);
        }
        let run = self.runs.get_mut(id)?;
        run.record(event);
        let (session, sequence) = (self.session.as_str(), *sequence);
        let (replay, plain_text) = (true, PlainText::AsPlain);
        let activity =
            ActivityEvent { session, id, run, sequence, event, entry, replay, plain_text }.activity();
        if matches!(event, RunEvent::Ended { .. }) {
            self.runs.remove(id);
        }
        Some(encode::bytes(&activity))
    }

    /// The frame of live text, as a client with `stream=1` gets it at the time `now`.
    pub fn delta(&self, run: &RunId, stream: &StreamKind, text: &str, now: Timestamp) -> Vec<u8> {
        let (kind, payload) = delta_frame(run, stream, text);
        encode::typed(kind, None, Some(self.session.to_string()), payload, now)
    }
}

/// The type and payload of the frame of live text. Only clients with `stream=1` get these frames.
pub(super) fn delta_frame(
    run: &RunId,
    stream: &StreamKind,
    text: &str,
) -> (&'static str, Map<String, Value>) {
    let (kind, payload) = match stream {
        StreamKind::Message(id) => ("message.delta", json!({"message_id": id.as_str()})),
        StreamKind::Reasoning(id) => ("reasoning.delta", json!({"step_id": id.as_str()})),
        StreamKind::ToolOutput(id) => ("tool.output", json!({"tool_call_id": id.as_str()})),
        StreamKind::ToolInput { call, tool } => {
            ("tool.input", json!({"tool_call_id": call.as_str(), "tool_name": tool}))
        }
    };
    let mut payload = object(payload);
    payload.insert("run_id".to_owned(), Value::from(run.as_str()));
    payload.insert("text".to_owned(), Value::from(text));
    (kind, payload)
}

/// The type of an entry: that of its frame, or a name of its own if the entry has no frame.
pub fn event_type(entry: &Entry) -> &'static str {
    match &entry.event {
        SessionEvent::Run { run: id, sequence, event } => {
            let run = Run::refused(false, String::new(), None);
            let (run, sequence, replay, plain_text) = (&run, *sequence, true, PlainText::AsPlain);
            ActivityEvent { session: "", id, run, sequence, event, entry, replay, plain_text }.kind()
        }
        SessionEvent::Renamed { .. } => RENAMED,
        SessionEvent::Queued(_) => QUEUED,
        SessionEvent::Unqueued { .. } => UNQUEUED,
        SessionEvent::Created(_) => "session.created",
        SessionEvent::AgentChosen(_) => "session.chosen",
        SessionEvent::ModeChosen { .. } => "session.mode",
        SessionEvent::Cleared => "session.cleared",
        SessionEvent::Compacted { .. } => "session.compacted",
        SessionEvent::MessageAdded(_) => "message.added",
    }
}

/// The `error_code` of an entry that ends a run; `None` if the run completed or the entry ends no run.
pub fn error_code(entry: &Entry) -> Option<&str> {
    let SessionEvent::Run { event: RunEvent::Ended { ending, .. }, .. } = &entry.event else { return None };
    match ending {
        RunEnding::Completed { .. } => None,
        RunEnding::Failed(failure) => Some(failure.code.as_str()),
        RunEnding::Stopped { .. } => Some(RUN_CANCELLED),
    }
}

/// The type and payload of a session event that belongs to no run. Only clients with `stream=1` get these frames.
pub(super) fn session_frame(event: &SessionEvent) -> Option<(&'static str, Map<String, Value>)> {
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
        | SessionEvent::AgentChosen(_)
        | SessionEvent::ModeChosen { .. }
        | SessionEvent::Cleared
        | SessionEvent::Compacted { .. }
        | SessionEvent::MessageAdded(_)
        | SessionEvent::Run { .. } => return None,
    };
    Some((kind, object(payload)))
}
