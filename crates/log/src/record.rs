//! A line about each session: what a list shows of it. Follows from the events alone.

use parlor_vocab::{
    AgentId, MessageEvent, NewEntry, RunEvent, RunId, Seq, SessionEvent, SessionId, Timestamp,
};

/// What is known of a session without reading its events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionRecord {
    /// The session.
    pub id: SessionId,
    /// What people call it.
    pub title: Option<String>,
    /// The door it came through.
    pub door: String,
    /// The agent that was chosen for it, if any was.
    pub agent: Option<AgentId>,
    /// When its first event was appended.
    pub created: Timestamp,
    /// When its last event was appended.
    pub updated: Timestamp,
    /// The place of its last event.
    pub head: Seq,
    /// How many messages its people and its agent have exchanged since the start or the last
    /// clearing. Compacting forgets none of them, and those of subagents are not among them.
    pub messages: u64,
    /// How much its events take: the bytes of their ids and of what is stored of them.
    pub bytes: u64,
    /// The run that is under way, as far as the log knows. Subagents run within it.
    pub running: Option<RunId>,
}

impl SessionRecord {
    /// Of a session without events.
    pub fn new(id: SessionId) -> Self {
        Self {
            id,
            title: None,
            door: String::new(),
            agent: None,
            created: Timestamp::default(),
            updated: Timestamp::default(),
            head: Seq::START,
            messages: 0,
            bytes: 0,
            running: None,
        }
    }
}

/// What `record` becomes by its session's next event, of which `stored` bytes are kept beside its id.
pub(crate) fn apply(record: &mut SessionRecord, next: &NewEntry, stored: usize) {
    if record.head == Seq::START {
        record.created = next.at;
    }
    record.head = Seq(record.head.0 + 1);
    record.updated = next.at;
    record.bytes += (next.id.as_str().len() + stored) as u64;
    match &next.event {
        SessionEvent::Created(new_session) => {
            record.title.clone_from(&new_session.title);
            record.door.clone_from(&new_session.door);
            record.agent.clone_from(&new_session.choice.agent);
        }
        SessionEvent::Renamed { title } => record.title = Some(title.clone()),
        SessionEvent::AgentChosen(choice) => {
            if choice.agent.is_some() {
                record.agent.clone_from(&choice.agent);
            }
        }
        SessionEvent::Cleared => record.messages = 0,
        SessionEvent::MessageAdded(_) => record.messages += 1,
        SessionEvent::Queued(_) | SessionEvent::Unqueued { .. } | SessionEvent::Compacted { .. } => {}
        SessionEvent::Run { run, event, .. } => apply_run(record, run, event),
    }
}

fn apply_run(record: &mut SessionRecord, run: &RunId, event: &RunEvent) {
    if let RunEvent::Started { parent: None, .. } = event {
        record.running = Some(run.clone());
        record.messages += 1;
    }
    // What remains to be counted is the running run's: others are subagents.
    if record.running.as_ref() != Some(run) {
        return;
    }
    match event {
        RunEvent::Steered { .. } | RunEvent::Message(MessageEvent::Completed { .. }) => record.messages += 1,
        RunEvent::Ended { .. } => record.running = None,
        RunEvent::Started { .. }
        | RunEvent::Message(MessageEvent::Started { .. })
        | RunEvent::Step(_)
        | RunEvent::Tool(_)
        | RunEvent::Subagent(_)
        | RunEvent::ErrorRaised { .. }
        | RunEvent::UsageAdded { .. } => {}
    }
}

/// Which part of the list of sessions is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageRequest {
    /// Where the page before ended; `None` for the first.
    pub after: Option<PageCursor>,
    /// How many at most. Capped at [`MAX_PAGE`](crate::MAX_PAGE), and at least one.
    pub limit: usize,
}

impl PageRequest {
    /// The first page.
    pub fn first(limit: usize) -> Self {
        Self { after: None, limit }
    }

    pub(crate) fn bounded(&self) -> usize {
        self.limit.clamp(1, crate::MAX_PAGE)
    }
}

/// A part of the list of sessions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The last updated first.
    pub records: Vec<SessionRecord>,
    /// Where the next page begins, if there is one.
    pub next: Option<PageCursor>,
}

impl Page {
    /// The page of which one record too many was fetched, if there was one.
    pub(crate) fn cut(mut records: Vec<SessionRecord>, limit: usize) -> Self {
        let more = records.len() > limit;
        records.truncate(limit);
        let next = records.last().filter(|_| more).map(PageCursor::of);
        Self { records, next }
    }
}

/// A place in the list of sessions, between two of them. Stays valid whatever happens to them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PageCursor {
    pub(crate) updated: Timestamp,
    pub(crate) id: SessionId,
}

impl PageCursor {
    /// Right after `record`.
    pub(crate) fn of(record: &SessionRecord) -> Self {
        Self { updated: record.updated, id: record.id.clone() }
    }

    /// Reads what [`Display`](std::fmt::Display) wrote.
    pub fn parse(text: &str) -> Option<Self> {
        let (updated, id) = text.split_once('.')?;
        Some(Self { updated: Timestamp(updated.parse().ok()?), id: SessionId::parse(id).ok()? })
    }
}

impl std::fmt::Display for PageCursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.updated.0, self.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::samples;
    use parlor_vocab::{
        AgentChoice, EventId, Failure, MessageId, NewSession, RunEnding, StopCause, UserInput,
    };

    fn run(name: &str) -> RunId {
        RunId::parse(name).unwrap()
    }

    fn message(name: &str) -> MessageId {
        MessageId::parse(name).unwrap()
    }

    fn of(name: &str, event: RunEvent) -> SessionEvent {
        SessionEvent::Run { run: run(name), sequence: 1, event }
    }

    fn started(parent: Option<RunId>) -> RunEvent {
        let agent = AgentId::parse("local").unwrap();
        RunEvent::Started { parent, agent, model: None, input: UserInput::default(), message: message("m") }
    }

    fn said() -> RunEvent {
        RunEvent::Message(MessageEvent::Completed {
            message: message("m"),
            text: String::new(),
            media: Vec::new(),
        })
    }

    fn ended(ending: RunEnding) -> RunEvent {
        RunEvent::Ended { ending, duration_ms: 1 }
    }

    fn after(events: Vec<SessionEvent>) -> SessionRecord {
        let mut record = SessionRecord::new(SessionId::parse("s").unwrap());
        for (event, at) in events.into_iter().zip(101..) {
            apply(&mut record, &NewEntry { id: EventId::parse("e").unwrap(), at: Timestamp(at), event }, 9);
        }
        record
    }

    fn new_session() -> SessionEvent {
        SessionEvent::Created(NewSession {
            title: Some("first".to_owned()),
            door: "supr".to_owned(),
            folder: "/".into(),
            choice: AgentChoice { agent: Some(AgentId::parse("a").unwrap()), ..AgentChoice::default() },
            system: None,
            forked_from: None,
        })
    }

    #[test]
    fn a_session_is_what_it_was_created_with_until_something_else_is_chosen() {
        let record = after(vec![new_session()]);
        assert_eq!((record.title.as_deref(), record.door.as_str()), (Some("first"), "supr"));
        let model = AgentChoice { model: Some("m".to_owned()), ..AgentChoice::default() };
        let agent = AgentChoice { agent: Some(AgentId::parse("b").unwrap()), ..AgentChoice::default() };
        let record = after(vec![new_session(), SessionEvent::AgentChosen(model.clone())]);
        assert_eq!(record.agent.unwrap().as_str(), "a");
        let renamed = SessionEvent::Renamed { title: "second".to_owned() };
        let record =
            after(vec![new_session(), SessionEvent::AgentChosen(agent), SessionEvent::AgentChosen(model), renamed]);
        assert_eq!((record.agent.unwrap().as_str(), record.title.as_deref()), ("b", Some("second")));
        assert_eq!((record.created, record.updated, record.head), (Timestamp(101), Timestamp(104), Seq(4)));
    }

    #[test]
    fn a_run_is_running_from_its_start_to_its_end() {
        let failure = Failure { code: "X".into(), message: String::new(), retryable: false };
        let mut events = vec![new_session(), of("r", started(None))];
        assert_eq!(after(events.clone()).running, Some(run("r")));
        events.push(of("r", ended(RunEnding::Failed(failure))));
        assert_eq!(after(events).running, None);
    }

    #[test]
    fn a_subagent_neither_runs_in_the_place_of_its_parent_nor_adds_messages() {
        let record = after(vec![
            of("r", started(None)),
            of("child", started(Some(run("r")))),
            of("child", said()),
            of("child", ended(RunEnding::Completed { message: None })),
        ]);
        assert_eq!((record.running, record.messages), (Some(run("r")), 1));
    }

    #[test]
    fn what_people_and_agent_say_is_counted_until_it_is_cleared() {
        let steered = RunEvent::Steered { input: UserInput::default(), message: message("m") };
        let stopped = RunEnding::Stopped { cause: StopCause::Shutdown, message: message("m") };
        let mut events =
            vec![of("r", started(None)), of("r", steered), of("r", said()), of("r", ended(stopped))];
        assert_eq!(after(events.clone()).messages, 3);
        events.push(SessionEvent::Cleared);
        assert_eq!(after(events).messages, 0);
    }

    #[test]
    fn every_event_moves_the_head_and_the_time_and_adds_its_bytes() {
        let events = samples::all();
        let (count, record) = (events.len() as u64, after(events));
        assert_eq!((record.head, record.updated), (Seq(count), Timestamp(100 + count as i64)));
        assert_eq!(record.bytes, 10 * count);
    }

    #[test]
    fn a_cursor_survives_being_written_down() {
        let cursor = PageCursor { updated: Timestamp(-7), id: SessionId::parse("a.b c").unwrap() };
        assert_eq!(PageCursor::parse(&cursor.to_string()), Some(cursor));
        for text in ["", "7", "x.y", ".", "1 .a"] {
            assert_eq!(PageCursor::parse(text), None, "{text:?}");
        }
    }
}
