//! A fake session registry that other clients use too, for the supr door, with logs that can be read from any position.
//!
//! It keeps the guarantees that watchers rely on: it reports the events of a session once and in order, numbers the events
//! of a run without gaps, and sends the deltas of a text before the event that contains the text. It takes all other
//! decisions from its choices: when it answers, what its runs do, and whether a session is deleted.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use parlor_vocab::{
    Entry, EventId, FileError, Media, MediaId, NamedFile, NewSession, RegistryEvent, RegistryReply,
    RegistryRequest, RunEvent, RunId, Seq, SessionCommand, SessionEvent, SessionId, SessionRefusal,
    SessionReply, StopCause, WatchFrom, WhenBusy,
};

use super::choices::Choices;
use super::fake_registry::Update;
use super::fake_session::{FakeSession, LogCursor};
use crate::Ticket;

pub(super) struct SharedRegistry<'a> {
    pub(super) choices: Choices<'a>,
    requests: VecDeque<(Ticket, RegistryRequest)>,
    answers: Vec<(Ticket, Result<RegistryReply, SessionRefusal>)>,
    sessions: BTreeMap<SessionId, FakeSession>,
    watches: Vec<Watch>,
    /// The numbers of accepted inputs and stops.
    pub(super) inputs: usize,
    pub(super) stops: usize,
    id_counter: u64,
}

/// A watch of a session.
struct Watch {
    session: SessionId,
    ticket: Ticket,
    /// Whether the machine has received the answer to its `Watch`.
    has_begun: bool,
    cursor: LogCursor,
}

impl<'a> SharedRegistry<'a> {
    pub(super) fn new(choices: &'a [u8]) -> Self {
        Self {
            choices: Choices::new(choices),
            requests: VecDeque::new(),
            answers: Vec::new(),
            sessions: BTreeMap::new(),
            watches: Vec::new(),
            inputs: 0,
            stops: 0,
            id_counter: 0,
        }
    }

    /// Creates a session with some events before the connection begins.
    pub(super) fn create_with_events(&mut self, session: &SessionId) {
        let new_session = super::fake_registry::new_session();
        self.create(session.clone(), new_session);
        for _ in 0..self.choices.next() % 16 {
            let input = Default::default();
            let _ = self.command(session, SessionCommand::Send { input, when_busy: Default::default() });
            self.advance_run();
        }
        self.inputs = 0;
    }

    /// The log of a session.
    pub(super) fn log(&self, session: &SessionId) -> &[Arc<Entry>] {
        self.sessions.get(session).map_or(&[], |fake| &fake.log)
    }

    pub(super) fn submit(&mut self, ticket: Ticket, request: RegistryRequest) {
        self.requests.push_back((ticket, request));
    }

    /// Takes one action of its choice.
    pub(super) fn act(&mut self) -> Option<Update> {
        match self.choices.next() % 8 {
            0 | 1 => return self.serve_next(),
            2 => self.carry_out_next(),
            3 => return self.answer(),
            4 => return self.next_event(),
            5 | 6 => self.advance_run(),
            _ => self.change_from_outside(),
        }
        None
    }

    /// Takes the next action that the machine waits for; `None` if it waits for nothing.
    pub(super) fn serve_next(&mut self) -> Option<Update> {
        loop {
            if let Some(update) = self.answer().or_else(|| self.next_event()) {
                return Some(update);
            }
            if self.requests.is_empty() {
                return None;
            }
            self.carry_out_next();
        }
    }

    fn answer(&mut self) -> Option<Update> {
        let index = self.choices.index(self.answers.len())?;
        let (ticket, answer) = self.answers.remove(index);
        self.watches
            .iter_mut()
            .filter(|watch| watch.ticket == ticket)
            .for_each(|watch| watch.has_begun = true);
        Some(Update::Answer(ticket, answer))
    }

    /// The next event or delta of a watched session.
    fn next_event(&mut self) -> Option<Update> {
        let start = self.choices.index(self.watches.len())?;
        let count = self.watches.len();
        (0..count).find_map(|offset| self.next_event_of((start + offset) % count)).map(Update::Event)
    }

    fn next_event_of(&mut self, index: usize) -> Option<RegistryEvent> {
        let watch = self.watches.get_mut(index).filter(|watch| watch.has_begun)?;
        let update = watch.cursor.next(self.sessions.get(&watch.session)?)?;
        Some(RegistryEvent { session: watch.session.clone(), update })
    }

    fn carry_out_next(&mut self) {
        let Some((ticket, request)) = self.requests.pop_front() else { return };
        let fails = self.choices.next() % 8 == 7 && !matches!(request, RegistryRequest::Watch { .. });
        let answer = if fails {
            Err(SessionRefusal::LogUnavailable { reason: "choice".to_owned() })
        } else {
            self.answer_to(ticket, request)
        };
        self.answers.push((ticket, answer));
    }

    fn answer_to(
        &mut self,
        ticket: Ticket,
        request: RegistryRequest,
    ) -> Result<RegistryReply, SessionRefusal> {
        Ok(match request {
            RegistryRequest::Watch { session, after, .. } => self.watch(ticket, session, &after),
            RegistryRequest::Create { id, new_session } => {
                let id = id.expect("the client names its session");
                if self.sessions.contains_key(&id) {
                    return Err(SessionRefusal::SessionExists(id));
                }
                self.create(id.clone(), *new_session);
                RegistryReply::Created(id)
            }
            RegistryRequest::Session(session, command) => {
                RegistryReply::Session(self.command(&session, command)?)
            }
            RegistryRequest::Fetch { .. } => RegistryReply::Files(vec![match self.choices.next() % 4 {
                0 | 1 => Ok(NamedFile { name: String::new(), bytes: b"fetched".to_vec() }),
                2 => Err(FileError::Unreadable),
                _ => Err(FileError::TooLarge { bytes: 1 << 30 }),
            }]),
            RegistryRequest::StoreMedia(files) => RegistryReply::Stored(files.iter().map(media).collect()),
            RegistryRequest::DiscardMedia(_) => RegistryReply::Done,
            RegistryRequest::ReadMedia { ids, .. } => {
                let content = |_| (self.choices.next() % 4 != 3).then(|| b"kept".to_vec());
                RegistryReply::Contents(ids.iter().map(content).collect())
            }
            RegistryRequest::Fork { .. }
            | RegistryRequest::GetOverview(_)
            | RegistryRequest::GetTotals(_)
            | RegistryRequest::DeleteIfUnused(_)
            | RegistryRequest::Unwatch(_)
            | RegistryRequest::Release(_)
            | RegistryRequest::Delete(_)
            | RegistryRequest::ReadFiles { .. } => panic!("the supr door never submits {request:?}"),
        })
    }

    fn watch(&mut self, ticket: Ticket, session: SessionId, after: &WatchFrom) -> RegistryReply {
        let (log, head) = (self.log(&session), self.log(&session).len());
        let found =
            |event: &EventId| log.iter().position(|entry| entry.id == *event).map(|position| position + 1);
        let seen = match after {
            WatchFrom::Now => head,
            WatchFrom::At(seen) => usize::try_from(seen.0).unwrap_or(head),
            WatchFrom::Event(event) => found(event).unwrap_or(0),
        };
        let position = before_run(log, seen);
        let seq = |position: usize| Seq(position as u64);
        let reply = RegistryReply::Watching { seen: seq(seen), head: seq(head) };
        self.watches.push(Watch { session, ticket, has_begun: false, cursor: LogCursor::at(position) });
        reply
    }

    fn create(&mut self, id: SessionId, new_session: NewSession) {
        let mut fake = FakeSession::default();
        fake.append(&mut self.id_counter, SessionEvent::Created(new_session));
        self.sessions.insert(id, fake);
    }

    fn command(
        &mut self,
        session: &SessionId,
        command: SessionCommand,
    ) -> Result<SessionReply, SessionRefusal> {
        let fake =
            self.sessions.get_mut(session).ok_or_else(|| SessionRefusal::UnknownSession(session.clone()))?;
        match command {
            // With a run, this one queues a message that should steer it.
            SessionCommand::Send { when_busy: WhenBusy::Steer, .. } if fake.is_idle() => {
                Err(SessionRefusal::NoActiveRun)
            }
            SessionCommand::Send { input, .. } => {
                let reply = fake.send(&mut self.id_counter, input)?;
                self.inputs += 1;
                Ok(reply)
            }
            SessionCommand::Stop { run, reason } => {
                let reply = fake.stop(
                    &mut self.id_counter,
                    run.as_ref(),
                    StopCause::Client { reason: reason.unwrap_or_default() },
                )?;
                self.stops += 1;
                Ok(reply)
            }
            SessionCommand::AnswerQuestion { question, .. } => Err(SessionRefusal::UnknownQuestion(question)),
            SessionCommand::ClearQueue
            | SessionCommand::Unqueue(_)
            | SessionCommand::ClearHistory
            | SessionCommand::Compact { .. }
            | SessionCommand::Rename { .. }
            | SessionCommand::ChooseMode(_)
            | SessionCommand::ChooseAgent(_) => panic!("the supr door never submits {command:?}"),
        }
    }

    fn advance_run(&mut self) {
        let Some(index) = self.choices.index(self.sessions.len()) else { return };
        if let Some(fake) = self.sessions.values_mut().nth(index) {
            fake.advance_run(&mut self.id_counter, &mut self.choices);
        }
    }

    /// Another client renames or deletes a session.
    fn change_from_outside(&mut self) {
        let Some(index) = self.choices.index(self.sessions.len()) else { return };
        let Some((session, fake)) = self.sessions.iter_mut().nth(index) else { return };
        if self.choices.next() % 4 != 3 {
            return fake.append(&mut self.id_counter, SessionEvent::Renamed { title: "t".to_owned() });
        }
        let session = session.clone();
        // A session is deleted only when all its events were reported, as the harness expects all of them.
        let is_reported = self
            .watches
            .iter()
            .all(|watch| watch.session != session || watch.cursor.position == fake.log.len());
        if fake.is_idle() && is_reported {
            self.sessions.remove(&session);
            let watches = self.watches.iter_mut().filter(|watch| watch.session == session);
            watches.for_each(|watch| watch.cursor = LogCursor::default());
        }
    }
}

/// The position before the run that is active at `position`, or `position` itself.
fn before_run(log: &[Arc<Entry>], position: usize) -> usize {
    let mut open: Option<(RunId, usize)> = None;
    for (index, entry) in log.iter().take(position).enumerate() {
        let SessionEvent::Run { run, event, .. } = &entry.event else { continue };
        if matches!(event, RunEvent::Started { parent: None, .. }) {
            open = Some((run.clone(), index));
        } else if matches!(event, RunEvent::Ended { .. }) {
            open.take_if(|(running, _)| running == run);
        }
    }
    open.map_or(position, |(_, index)| index)
}

fn media(file: &NamedFile) -> Media {
    let id = MediaId::parse("m").expect("a short text");
    Media { id, name: file.name.clone(), mime: "text/plain".to_owned(), size: file.bytes.len() as u64 }
}
