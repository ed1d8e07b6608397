//! A registry that others visit too, with logs that can be read again from any place.
//!
//! It keeps the promises that those who watch rely on: what happens in a session is told in its order and
//! once, the events of a run are numbered without gaps, a text is shown in pieces before the event that
//! holds it. All else is choice: when it answers, what its runs do, and whether a session is deleted.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use parlor_vocab::{
    Entry, EventId, FileError, Media, MediaId, MessageEvent, NamedFile, NewSession, RegistryEvent,
    RegistryReply, RegistryRequest, RunEvent, RunId, Seq, SessionCommand, SessionEvent, SessionId,
    SessionRefusal, SessionReply, SessionUpdate, StopCause, StreamKind, WatchFrom,
};

use super::choices::Choices;
use super::fake_registry::Update;
use super::fake_session::FakeSession;
use crate::Ticket;

pub(super) struct SharedRegistry<'a> {
    pub(super) choices: Choices<'a>,
    requests: VecDeque<(Ticket, RegistryRequest)>,
    answers: Vec<(Ticket, Result<RegistryReply, SessionRefusal>)>,
    sessions: BTreeMap<SessionId, FakeSession>,
    watches: Vec<Watch>,
    /// How many inputs were accepted, and how many stops.
    pub(super) inputs: usize,
    pub(super) stops: usize,
    names: u64,
}

/// Somebody who watches a session.
struct Watch {
    session: SessionId,
    ticket: Ticket,
    /// It has heard that it watches.
    has_begun: bool,
    /// What was told, and how much of the text that is being written.
    place: usize,
    shown: usize,
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
            names: 0,
        }
    }

    /// Something happens before anybody comes.
    pub(super) fn live(&mut self, session: &SessionId) {
        let new_session = super::fake_registry::new_session();
        self.create(session.clone(), new_session);
        for _ in 0..self.choices.next() % 16 {
            let input = Default::default();
            let _ = self.command(session, SessionCommand::Send { input, when_busy: Default::default() });
            self.perform();
        }
        self.inputs = 0;
    }

    /// The events of a session's log.
    pub(super) fn log(&self, session: &SessionId) -> &[Arc<Entry>] {
        self.sessions.get(session).map_or(&[], |fake| &fake.log)
    }

    pub(super) fn ask(&mut self, ticket: Ticket, command: RegistryRequest) {
        self.requests.push_back((ticket, command));
    }

    /// Does anything, or nothing.
    pub(super) fn act(&mut self) -> Option<Update> {
        match self.choices.next() % 8 {
            0 | 1 => return self.oblige(),
            2 => self.carry_out(),
            3 => return self.answer(),
            4 => return self.tell(),
            5 | 6 => self.perform(),
            _ => self.disturb(),
        }
        None
    }

    /// Does the next thing that somebody waits for, if anybody does.
    pub(super) fn oblige(&mut self) -> Option<Update> {
        loop {
            if let Some(happening) = self.answer().or_else(|| self.tell()) {
                return Some(happening);
            }
            if self.requests.is_empty() {
                return None;
            }
            self.carry_out();
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

    /// Tells one who watches the next thing there is.
    fn tell(&mut self) -> Option<Update> {
        let start = self.choices.index(self.watches.len())?;
        let count = self.watches.len();
        (0..count).find_map(|offset| self.tell_at((start + offset) % count)).map(Update::Event)
    }

    fn tell_at(&mut self, index: usize) -> Option<RegistryEvent> {
        let watch = self.watches.get_mut(index).filter(|watch| watch.has_begun)?;
        let fake = self.sessions.get(&watch.session)?;
        let session = watch.session.clone();
        let next = fake.log.get(watch.place);
        let (run, message, text) = match next.map(|entry| &entry.event) {
            Some(SessionEvent::Run {
                run,
                event: RunEvent::Message(MessageEvent::Completed { message, text, .. }),
                ..
            }) => (run, message, text),
            Some(_) => return Some(watch.entry(session, next)),
            None => fake.speaking()?,
        };
        let rest = text.get(watch.shown..).unwrap_or_default();
        // A stop's last words are never being written.
        if !rest.is_empty() && fake.has_begun(message, watch.place) {
            watch.shown = text.len();
            let (run, subject) = (run.clone(), StreamKind::Message(message.clone()));
            return Some(RegistryEvent {
                session,
                seen: SessionUpdate::Delta { run, subject, text: rest.to_owned() },
            });
        }
        next.map(|_| watch.entry(session, next))
    }

    fn carry_out(&mut self) {
        let Some((ticket, command)) = self.requests.pop_front() else { return };
        let is_moody = self.choices.next() % 8 == 7 && !matches!(command, RegistryRequest::Watch { .. });
        let answer = if is_moody {
            Err(SessionRefusal::LogUnavailable { reason: "choice".to_owned() })
        } else {
            self.decide(ticket, command)
        };
        self.answers.push((ticket, answer));
    }

    fn decide(&mut self, ticket: Ticket, command: RegistryRequest) -> Result<RegistryReply, SessionRefusal> {
        Ok(match command {
            RegistryRequest::Watch { session, after } => self.watch(ticket, session, &after),
            RegistryRequest::Create { id, new_session } => {
                let id = id.expect("a visitor names its session");
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
            RegistryRequest::ReadMedia { ids, .. } => {
                let content = |_| (self.choices.next() % 4 != 3).then(|| b"kept".to_vec());
                RegistryReply::Contents(ids.iter().map(content).collect())
            }
            RegistryRequest::Fork { .. }
            | RegistryRequest::Look(_)
            | RegistryRequest::Unwatch(_)
            | RegistryRequest::Leave(_)
            | RegistryRequest::Delete(_)
            | RegistryRequest::ReadFiles { .. } => panic!("no visitor asks for {command:?}"),
        })
    }

    fn watch(&mut self, ticket: Ticket, session: SessionId, after: &WatchFrom) -> RegistryReply {
        let (log, head) = (self.log(&session), self.log(&session).len());
        let found = |event: &EventId| log.iter().position(|entry| entry.id == *event).map(|place| place + 1);
        let seen = match after {
            WatchFrom::Now => head,
            WatchFrom::At(seen) => usize::try_from(seen.0).unwrap_or(head),
            WatchFrom::Event(event) => found(event).unwrap_or(0),
        };
        let place = before_run(log, seen);
        let seq = |place: usize| Seq(place as u64);
        let reply = RegistryReply::Watching { seen: seq(seen), head: seq(head) };
        self.watches.push(Watch { session, ticket, has_begun: false, place, shown: 0 });
        reply
    }

    fn create(&mut self, id: SessionId, new_session: NewSession) {
        let mut fake = FakeSession::default();
        fake.append(&mut self.names, SessionEvent::Created(new_session));
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
            SessionCommand::Send { input, .. } => {
                let reply = fake.send(&mut self.names, input)?;
                self.inputs += 1;
                Ok(reply)
            }
            SessionCommand::Stop { run, reason } => {
                let reply = fake.stop(
                    &mut self.names,
                    run.as_ref(),
                    StopCause::Client { reason: reason.unwrap_or_default() },
                )?;
                self.stops += 1;
                Ok(reply)
            }
            SessionCommand::ClearQueue
            | SessionCommand::ClearHistory
            | SessionCommand::Compact { .. }
            | SessionCommand::Rename { .. }
            | SessionCommand::Choose(_) => panic!("no visitor asks for {command:?}"),
        }
    }

    fn perform(&mut self) {
        let Some(index) = self.choices.index(self.sessions.len()) else { return };
        if let Some(fake) = self.sessions.values_mut().nth(index) {
            fake.perform(&mut self.names, &mut self.choices);
        }
    }

    /// Somebody else does something: a session is renamed, or gone.
    fn disturb(&mut self) {
        let Some(index) = self.choices.index(self.sessions.len()) else { return };
        let Some((session, fake)) = self.sessions.iter_mut().nth(index) else { return };
        if self.choices.next() % 4 != 3 {
            return fake.append(&mut self.names, SessionEvent::Renamed { title: "t".to_owned() });
        }
        let session = session.clone();
        // Those who have not heard of its last events would miss them, which is how it is.
        let is_told =
            self.watches.iter().all(|watch| watch.session != session || watch.place == fake.log.len());
        if fake.is_idle() && is_told {
            self.sessions.remove(&session);
            let those = self.watches.iter_mut().filter(|watch| watch.session == session);
            those.for_each(|watch| (watch.place, watch.shown) = (0, 0));
        }
    }
}

impl Watch {
    fn entry(&mut self, session: SessionId, next: Option<&Arc<Entry>>) -> RegistryEvent {
        let entry = Arc::clone(next.expect("there is one"));
        self.place += 1;
        if let SessionEvent::Run { event: RunEvent::Message(MessageEvent::Started { .. }), .. } = &entry.event
        {
            self.shown = 0;
        }
        RegistryEvent { session, seen: SessionUpdate::Entry(entry) }
    }
}

/// The place before the run that is under way at `place`, or `place` itself.
fn before_run(log: &[Arc<Entry>], place: usize) -> usize {
    let mut open: Option<(RunId, usize)> = None;
    for (index, entry) in log.iter().take(place).enumerate() {
        let SessionEvent::Run { run, event, .. } = &entry.event else { continue };
        if matches!(event, RunEvent::Started { parent: None, .. }) {
            open = Some((run.clone(), index));
        } else if matches!(event, RunEvent::Ended { .. }) {
            open.take_if(|(running, _)| running == run);
        }
    }
    open.map_or(place, |(_, index)| index)
}

fn media(file: &NamedFile) -> Media {
    let id = MediaId::parse("m").expect("a short text");
    Media { id, name: file.name.clone(), mime: "text/plain".to_owned(), size: file.bytes.len() as u64 }
}
