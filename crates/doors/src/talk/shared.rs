//! A house that others visit too, with logs that can be read again from any place.
//!
//! It keeps the promises that those who watch rely on: what happens in a session is told in its order and
//! once, the events of a run are numbered without gaps, a text is shown in pieces before the event that
//! holds it. All else is whim: when it answers, what its runs do, and whether a session is deleted.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use parlor_vocab::{
    Birth, Entry, EventId, File, FileFlaw, HouseCommand, HouseEvent, HouseReply, Media, MediaId, Place,
    Refusal, RunEvent, RunId, Seen, Seq, SessionCommand, SessionEvent, SessionId, SessionReply, Subject,
};

use super::house::Happening;
use super::room::Room;
use super::whims::Whims;
use crate::Ticket;

pub(super) struct SharedHouse<'a> {
    pub(super) whims: Whims<'a>,
    questions: VecDeque<(Ticket, HouseCommand)>,
    answers: Vec<(Ticket, Result<HouseReply, Refusal>)>,
    rooms: BTreeMap<SessionId, Room>,
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

impl<'a> SharedHouse<'a> {
    pub(super) fn new(whims: &'a [u8]) -> Self {
        Self {
            whims: Whims::new(whims),
            questions: VecDeque::new(),
            answers: Vec::new(),
            rooms: BTreeMap::new(),
            watches: Vec::new(),
            inputs: 0,
            stops: 0,
            names: 0,
        }
    }

    /// Something happens before anybody comes.
    pub(super) fn live(&mut self, session: &SessionId) {
        let birth = super::house::birth();
        self.create(session.clone(), birth);
        for _ in 0..self.whims.next() % 16 {
            let input = Default::default();
            let _ = self.command(session, SessionCommand::Send { input, when_busy: Default::default() });
            self.perform();
        }
        self.inputs = 0;
    }

    /// The events of a session's log.
    pub(super) fn log(&self, session: &SessionId) -> &[Arc<Entry>] {
        self.rooms.get(session).map_or(&[], |room| &room.log)
    }

    pub(super) fn ask(&mut self, ticket: Ticket, command: HouseCommand) {
        self.questions.push_back((ticket, command));
    }

    /// Does anything, or nothing.
    pub(super) fn act(&mut self) -> Option<Happening> {
        match self.whims.next() % 8 {
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
    pub(super) fn oblige(&mut self) -> Option<Happening> {
        loop {
            if let Some(happening) = self.answer().or_else(|| self.tell()) {
                return Some(happening);
            }
            if self.questions.is_empty() {
                return None;
            }
            self.carry_out();
        }
    }

    fn answer(&mut self) -> Option<Happening> {
        let index = self.whims.index(self.answers.len())?;
        let (ticket, answer) = self.answers.remove(index);
        self.watches
            .iter_mut()
            .filter(|watch| watch.ticket == ticket)
            .for_each(|watch| watch.has_begun = true);
        Some(Happening::Answer(ticket, answer))
    }

    /// Tells one who watches the next thing there is.
    fn tell(&mut self) -> Option<Happening> {
        let start = self.whims.index(self.watches.len())?;
        let count = self.watches.len();
        (0..count).find_map(|offset| self.tell_at((start + offset) % count)).map(Happening::Event)
    }

    fn tell_at(&mut self, index: usize) -> Option<HouseEvent> {
        let watch = self.watches.get_mut(index).filter(|watch| watch.has_begun)?;
        let room = self.rooms.get(&watch.session)?;
        let session = watch.session.clone();
        let next = room.log.get(watch.place);
        let (run, message, text) = match next.map(|entry| &entry.event) {
            Some(SessionEvent::Run {
                run, event: RunEvent::MessageCompleted { message, text, .. }, ..
            }) => (run, message, text),
            Some(_) => return Some(watch.entry(session, next)),
            None => room.speaking()?,
        };
        let rest = text.get(watch.shown..).unwrap_or_default();
        // A stop's last words are never being written.
        if !rest.is_empty() && room.has_begun(message, watch.place) {
            watch.shown = text.len();
            let (run, subject) = (run.clone(), Subject::Message(message.clone()));
            return Some(HouseEvent { session, seen: Seen::Delta { run, subject, text: rest.to_owned() } });
        }
        next.map(|_| watch.entry(session, next))
    }

    fn carry_out(&mut self) {
        let Some((ticket, command)) = self.questions.pop_front() else { return };
        let is_moody = self.whims.next() % 8 == 7 && !matches!(command, HouseCommand::Watch { .. });
        let answer = if is_moody {
            Err(Refusal::LogUnavailable { reason: "whim".to_owned() })
        } else {
            self.decide(ticket, command)
        };
        self.answers.push((ticket, answer));
    }

    fn decide(&mut self, ticket: Ticket, command: HouseCommand) -> Result<HouseReply, Refusal> {
        Ok(match command {
            HouseCommand::Watch { session, after } => self.watch(ticket, session, &after),
            HouseCommand::Create { id, birth } => {
                let id = id.expect("a visitor names its session");
                if self.rooms.contains_key(&id) {
                    return Err(Refusal::SessionExists(id));
                }
                self.create(id.clone(), *birth);
                HouseReply::Created(id)
            }
            HouseCommand::Session(session, command) => HouseReply::Session(self.command(&session, command)?),
            HouseCommand::Fetch { .. } => HouseReply::Files(vec![match self.whims.next() % 4 {
                0 | 1 => Ok(File { name: String::new(), bytes: b"fetched".to_vec() }),
                2 => Err(FileFlaw::Closed),
                _ => Err(FileFlaw::TooLarge),
            }]),
            HouseCommand::StoreMedia(files) => HouseReply::Stored(files.iter().map(media).collect()),
            HouseCommand::ReadMedia { ids, .. } => {
                let content = |_| (self.whims.next() % 4 != 3).then(|| b"kept".to_vec());
                HouseReply::Contents(ids.iter().map(content).collect())
            }
            HouseCommand::Fork { .. }
            | HouseCommand::Look(_)
            | HouseCommand::Unwatch(_)
            | HouseCommand::Leave(_)
            | HouseCommand::Delete(_)
            | HouseCommand::ReadFiles { .. } => panic!("no visitor asks for {command:?}"),
        })
    }

    fn watch(&mut self, ticket: Ticket, session: SessionId, after: &Place) -> HouseReply {
        let (log, head) = (self.log(&session), self.log(&session).len());
        let found = |event: &EventId| log.iter().position(|entry| entry.id == *event).map(|place| place + 1);
        let seen = match after {
            Place::Now => head,
            Place::At(seen) => usize::try_from(seen.0).unwrap_or(head),
            Place::Event(event) => found(event).unwrap_or(0),
        };
        let place = before_run(log, seen);
        let seq = |place: usize| Seq(place as u64);
        let reply = HouseReply::Watching { seen: seq(seen), head: seq(head) };
        self.watches.push(Watch { session, ticket, has_begun: false, place, shown: 0 });
        reply
    }

    fn create(&mut self, id: SessionId, birth: Birth) {
        let mut room = Room::default();
        room.append(&mut self.names, SessionEvent::Created(birth));
        self.rooms.insert(id, room);
    }

    fn command(&mut self, session: &SessionId, command: SessionCommand) -> Result<SessionReply, Refusal> {
        let room = self.rooms.get_mut(session).ok_or_else(|| Refusal::UnknownSession(session.clone()))?;
        match command {
            SessionCommand::Send { input, .. } => {
                let reply = room.send(&mut self.names, input)?;
                self.inputs += 1;
                Ok(reply)
            }
            SessionCommand::Stop { run, reason } => {
                let reply = room.stop(&mut self.names, run.as_ref(), reason)?;
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
        let Some(index) = self.whims.index(self.rooms.len()) else { return };
        if let Some(room) = self.rooms.values_mut().nth(index) {
            room.perform(&mut self.names, &mut self.whims);
        }
    }

    /// Somebody else does something: a session is renamed, or gone.
    fn disturb(&mut self) {
        let Some(index) = self.whims.index(self.rooms.len()) else { return };
        let Some((session, room)) = self.rooms.iter_mut().nth(index) else { return };
        if self.whims.next() % 4 != 3 {
            return room.append(&mut self.names, SessionEvent::Renamed { title: "t".to_owned() });
        }
        let session = session.clone();
        // Those who have not heard of its last events would miss them, which is how it is.
        let is_told =
            self.watches.iter().all(|watch| watch.session != session || watch.place == room.log.len());
        if room.is_idle() && is_told {
            self.rooms.remove(&session);
            let those = self.watches.iter_mut().filter(|watch| watch.session == session);
            those.for_each(|watch| (watch.place, watch.shown) = (0, 0));
        }
    }
}

impl Watch {
    fn entry(&mut self, session: SessionId, next: Option<&Arc<Entry>>) -> HouseEvent {
        let entry = Arc::clone(next.expect("there is one"));
        self.place += 1;
        if let SessionEvent::Run { event: RunEvent::MessageStarted { .. }, .. } = &entry.event {
            self.shown = 0;
        }
        HouseEvent { session, seen: Seen::Entry(entry) }
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

fn media(file: &File) -> Media {
    let id = MediaId::parse("m").expect("a short text");
    Media { id, name: file.name.clone(), mime: "text/plain".to_owned(), size: file.bytes.len() as u64 }
}
