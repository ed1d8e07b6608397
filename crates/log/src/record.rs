//! Session records: what a list shows of each session. A record is computed from the session's events alone.

use parlor_vocab::{
    AgentId, MessageEvent, NewEntry, RunEvent, RunId, Seq, SessionEvent, SessionId, Timestamp,
};

/// Facts about a session that are available without reading its events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionRecord {
    /// The session.
    pub id: SessionId,
    /// The title, if anybody set one.
    pub title: Option<String>,
    /// The door that created the session.
    pub door: String,
    /// The agent that was chosen for the session; `None` means the configured default.
    pub agent: Option<AgentId>,
    /// When the first event happened.
    pub created: Timestamp,
    /// When the last event happened.
    pub updated: Timestamp,
    /// The number of the last event.
    pub head: Seq,
    /// How many messages users and the agent exchanged since the start or the last clearing, without messages of
    /// subagents. Compaction does not lower the number.
    pub messages: u64,
    /// The size of all events in bytes: their ids and their stored form.
    pub bytes: u64,
    /// The active run according to the log. Runs of subagents are part of it.
    pub running: Option<RunId>,
}

impl SessionRecord {
    /// The record of a session without events.
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

/// Updates `record` by its session's next event. `stored` is the size of the event's stored form.
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
        SessionEvent::ModeChosen { .. }
        | SessionEvent::Queued(_)
        | SessionEvent::Unqueued { .. }
        | SessionEvent::Compacted { .. } => {}
        SessionEvent::Run { run, event, .. } => apply_run(record, run, event),
    }
}

fn apply_run(record: &mut SessionRecord, run: &RunId, event: &RunEvent) {
    if let RunEvent::Started { parent: None, .. } = event {
        record.running = Some(run.clone());
        record.messages += 1;
    }
    // Any other run belongs to a subagent and is not counted.
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
        | RunEvent::Question(_)
        | RunEvent::Subagent(_)
        | RunEvent::ErrorRaised { .. }
        | RunEvent::UsageAdded { .. } => {}
    }
}

/// Selects a page of the list of sessions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageRequest {
    /// The [`Page::next`] of the page before; `None` for the first page.
    pub after: Option<PageCursor>,
    /// The largest number of records, from 1 to [`MAX_PAGE`](crate::MAX_PAGE); other values are clamped.
    pub limit: usize,
}

impl PageRequest {
    /// The first page, with at most `limit` records.
    pub fn first(limit: usize) -> Self {
        Self { after: None, limit }
    }

    pub(crate) fn clamped_limit(&self) -> usize {
        self.limit.clamp(1, crate::MAX_PAGE)
    }
}

/// A page of the list of sessions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The records, the last updated session first.
    pub records: Vec<SessionRecord>,
    /// The cursor of the next page, if there is one.
    pub next: Option<PageCursor>,
}

impl Page {
    /// Makes a page of `limit` records from up to `limit + 1`. The extra record tells that there is a next page.
    pub(crate) fn from_extra(mut records: Vec<SessionRecord>, limit: usize) -> Self {
        let more = records.len() > limit;
        records.truncate(limit);
        let next = records.last().filter(|_| more).map(PageCursor::of);
        Self { records, next }
    }
}

/// A position between two sessions of the list. It stays valid when sessions change or are deleted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PageCursor {
    pub(crate) updated: Timestamp,
    pub(crate) id: SessionId,
}

impl PageCursor {
    /// The position right after `record`.
    pub fn of(record: &SessionRecord) -> Self {
        Self { updated: record.updated, id: record.id.clone() }
    }

    /// Parses the text that [`Display`](std::fmt::Display) writes.
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

    fn run_event(name: &str, event: RunEvent) -> SessionEvent {
        SessionEvent::Run { run: run(name), sequence: 1, event }
    }

    fn started(parent: Option<RunId>) -> RunEvent {
        let agent = AgentId::parse("local").unwrap();
        RunEvent::Started {
            parent,
            agent,
            model: None,
            missing_agent: None,
            input: UserInput::default(),
            message: message("m"),
        }
    }

    fn message_completed() -> RunEvent {
        RunEvent::Message(MessageEvent::Completed {
            message: message("m"),
            text: String::new(),
            media: Vec::new(),
        })
    }

    fn ended(ending: RunEnding) -> RunEvent {
        RunEvent::Ended { ending, duration_ms: 1 }
    }

    fn record_after(events: Vec<SessionEvent>) -> SessionRecord {
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
    fn title_and_agent_change_with_later_events() {
        let record = record_after(vec![new_session()]);
        assert_eq!((record.title.as_deref(), record.door.as_str()), (Some("first"), "supr"));
        let model = AgentChoice { model: Some("m".to_owned()), ..AgentChoice::default() };
        let agent = AgentChoice { agent: Some(AgentId::parse("b").unwrap()), ..AgentChoice::default() };
        let record = record_after(vec![new_session(), SessionEvent::AgentChosen(model.clone())]);
        assert_eq!(record.agent.unwrap().as_str(), "a");
        let renamed = SessionEvent::Renamed { title: "second".to_owned() };
        let record = record_after(vec![
            new_session(),
            SessionEvent::AgentChosen(agent),
            SessionEvent::AgentChosen(model),
            renamed,
        ]);
        assert_eq!((record.agent.unwrap().as_str(), record.title.as_deref()), ("b", Some("second")));
        assert_eq!((record.created, record.updated, record.head), (Timestamp(101), Timestamp(104), Seq(4)));
    }

    #[test]
    fn a_run_is_active_from_its_start_to_its_end() {
        let failure = Failure { code: "X".into(), message: String::new(), retryable: false };
        let mut events = vec![new_session(), run_event("r", started(None))];
        assert_eq!(record_after(events.clone()).running, Some(run("r")));
        events.push(run_event("r", ended(RunEnding::Failed(failure))));
        assert_eq!(record_after(events).running, None);
    }

    #[test]
    fn a_subagent_neither_replaces_the_active_run_nor_adds_messages() {
        let record = record_after(vec![
            run_event("r", started(None)),
            run_event("child", started(Some(run("r")))),
            run_event("child", message_completed()),
            run_event("child", ended(RunEnding::Completed { message: None })),
        ]);
        assert_eq!((record.running, record.messages), (Some(run("r")), 1));
    }

    #[test]
    fn messages_of_users_and_agents_are_counted_until_the_history_is_cleared() {
        let steered = RunEvent::Steered { input: UserInput::default(), message: message("m") };
        let stopped = RunEnding::Stopped { cause: StopCause::Shutdown, message: message("m") };
        let mut events = vec![
            run_event("r", started(None)),
            run_event("r", steered),
            run_event("r", message_completed()),
            run_event("r", ended(stopped)),
        ];
        assert_eq!(record_after(events.clone()).messages, 3);
        events.push(SessionEvent::Cleared);
        assert_eq!(record_after(events).messages, 0);
    }

    #[test]
    fn every_event_advances_the_head_and_the_time_and_adds_its_bytes() {
        let events = samples::all();
        let (count, record) = (events.len() as u64, record_after(events));
        assert_eq!((record.head, record.updated), (Seq(count), Timestamp(100 + count as i64)));
        assert_eq!(record.bytes, 10 * count);
    }

    #[test]
    fn a_cursor_is_parsed_from_its_own_text() {
        let cursor = PageCursor { updated: Timestamp(-7), id: SessionId::parse("a.b c").unwrap() };
        assert_eq!(PageCursor::parse(&cursor.to_string()), Some(cursor));
        for text in ["", "7", "x.y", ".", "1 .a"] {
            assert_eq!(PageCursor::parse(text), None, "{text:?}");
        }
    }
}
