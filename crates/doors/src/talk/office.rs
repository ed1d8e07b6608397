//! An office that keeps its promises and is moody in everything else.
//!
//! Questions to the house are carried out in the order in which they were put, all others whenever; answers come
//! when they come. What happens in a watched session is told in its order, and a text in pieces before the event
//! that holds it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use parlor_vocab::{
    Chat, Choice, Entry, File, HouseCommand, HouseEvent, HouseReply, LoggedIn, LoginFlaw, LoginStep, Logins,
    Media, MediaId, Message, MessageId, OfficeCommand, OfficeEvent, OfficeReply, Overview, PROGRAM_ENDS,
    Passage, PathFlaw, Refusal, Role, RunEvent, RunId, SavedChat, Seen, Seq, SessionCommand, SessionEvent,
    SessionId, SessionReply, SkillLine, Skills, Subject, Timestamp, Usage, WhenBusy,
};

use super::room::Room;
use super::whims::Whims;
use crate::Ticket;

pub(super) enum Happening {
    Answer(Ticket, Result<OfficeReply, Refusal>),
    Event(OfficeEvent),
}

pub(super) struct Office<'a> {
    whims: Whims<'a>,
    questions: VecDeque<(Ticket, HouseCommand)>,
    errands: Vec<(Ticket, OfficeCommand)>,
    answers: Vec<(Ticket, Result<OfficeReply, Refusal>)>,
    rooms: BTreeMap<SessionId, Room>,
    watches: BTreeMap<SessionId, Watch>,
    /// Steps of logins that were not told yet.
    steps: VecDeque<OfficeEvent>,
    is_closed: bool,
    names: u64,
}

#[derive(Default)]
struct Watch {
    /// What was told, and how much of the text that is being written.
    place: usize,
    shown: usize,
}

impl<'a> Office<'a> {
    pub(super) fn new(whims: &'a [u8]) -> Self {
        Self {
            whims: Whims::new(whims),
            questions: VecDeque::new(),
            errands: Vec::new(),
            answers: Vec::new(),
            rooms: BTreeMap::new(),
            watches: BTreeMap::new(),
            steps: VecDeque::new(),
            is_closed: false,
            names: 0,
        }
    }

    pub(super) fn zeal(&mut self) -> u8 {
        self.whims.zeal()
    }

    /// Takes a question, or turns it down because it is too late.
    pub(super) fn ask(&mut self, ticket: Ticket, command: OfficeCommand) -> Option<Refusal> {
        if self.is_closed {
            return Some(Refusal::TooManyQuestions { limit: 0 });
        }
        if let OfficeCommand::House(command) = command {
            self.questions.push_back((ticket, command));
        } else {
            self.errands.push((ticket, command));
        }
        None
    }

    /// Does anything, or nothing.
    pub(super) fn act(&mut self) -> Option<Happening> {
        match self.whims.next() % 8 {
            0 | 1 => self.oblige(),
            2 => {
                self.carry_out();
                None
            }
            3 => self.answer(),
            4 => self.tell(),
            _ => {
                let index = self.whims.index(self.rooms.len())?;
                let room = self.rooms.values_mut().nth(index)?;
                room.perform(&mut self.names, &mut self.whims);
                None
            }
        }
    }

    /// Does the next thing that somebody waits for, if anybody does.
    pub(super) fn oblige(&mut self) -> Option<Happening> {
        loop {
            if let Some(happening) = self.answer().or_else(|| self.tell()) {
                return Some(happening);
            }
            if self.questions.is_empty() && self.errands.is_empty() {
                return None;
            }
            self.carry_out();
        }
    }

    /// Stops what is at work, as the end of the connection does.
    pub(super) fn close(&mut self) {
        self.is_closed = true;
        while !self.questions.is_empty() || !self.errands.is_empty() {
            self.carry_out();
        }
        for room in self.rooms.values_mut() {
            while !room.is_idle() {
                let stopped = room.stop(&mut self.names, None, Some(PROGRAM_ENDS.to_owned()));
                assert!(stopped.is_ok(), "what runs can be stopped");
            }
        }
    }

    fn answer(&mut self) -> Option<Happening> {
        let index = self.whims.index(self.answers.len())?;
        let (ticket, answer) = self.answers.remove(index);
        Some(Happening::Answer(ticket, answer))
    }

    fn tell(&mut self) -> Option<Happening> {
        if let Some(step) = self.steps.pop_front() {
            return Some(Happening::Event(step));
        }
        let sessions: Vec<SessionId> = self.watches.keys().cloned().collect();
        let start = self.whims.index(sessions.len())?;
        let told = (0..sessions.len()).find_map(|offset| {
            let session = sessions.get((start + offset) % sessions.len())?;
            let (watch, room) = (self.watches.get_mut(session)?, self.rooms.get(session)?);
            watch.next(room).map(|seen| HouseEvent { session: session.clone(), seen })
        });
        told.map(|event| Happening::Event(OfficeEvent::House(event)))
    }

    fn carry_out(&mut self) {
        let errand = if self.whims.next().is_multiple_of(2) || self.questions.is_empty() {
            self.whims.index(self.errands.len())
        } else {
            None
        };
        if let Some(index) = errand {
            let (ticket, command) = self.errands.remove(index);
            let reply = self.run(command);
            return self.answers.push((ticket, Ok(reply)));
        }
        let Some((ticket, command)) = self.questions.pop_front() else { return };
        let is_stop = matches!(command, HouseCommand::Session(_, SessionCommand::Stop { .. }));
        let is_watch = matches!(command, HouseCommand::Watch { .. } | HouseCommand::Unwatch(_));
        let answer = if self.whims.next() % 16 == 15 && !is_stop && !is_watch {
            Err(Refusal::LogUnavailable { reason: "whim".to_owned() })
        } else {
            self.decide(command)
        };
        self.answers.push((ticket, answer.map(OfficeReply::House)));
    }

    fn decide(&mut self, command: HouseCommand) -> Result<HouseReply, Refusal> {
        Ok(match command {
            HouseCommand::Create { id, birth } => {
                let id = id.expect("this door names its sessions");
                let mut room = Room::default();
                room.append(&mut self.names, SessionEvent::Created(*birth));
                assert!(self.rooms.insert(id.clone(), room).is_none(), "a session is created once");
                HouseReply::Created(id)
            }
            HouseCommand::Watch { session, after } => {
                let parlor_vocab::Place::At(seen) = after else { panic!("this door knows its place") };
                let place = usize::try_from(seen.0).unwrap_or(usize::MAX);
                self.watches.insert(session, Watch { place, shown: 0 });
                HouseReply::Watching { seen, head: seen }
            }
            HouseCommand::Unwatch(session) | HouseCommand::Leave(session) => {
                self.watches.remove(&session);
                HouseReply::Done
            }
            HouseCommand::Delete(session) => {
                self.rooms.remove(&session);
                HouseReply::Done
            }
            HouseCommand::Session(session, command) => HouseReply::Session(self.command(&session, command)?),
            HouseCommand::StoreMedia(files) => HouseReply::Stored(files.iter().map(media).collect()),
            HouseCommand::ReadMedia { ids, .. } => {
                HouseReply::Contents(ids.iter().map(|_| Some(b"kept".to_vec())).collect())
            }
            HouseCommand::Fork { .. }
            | HouseCommand::Look(_)
            | HouseCommand::ReadFiles { .. }
            | HouseCommand::Fetch { .. } => panic!("this door does not ask for {command:?}"),
        })
    }

    fn command(&mut self, session: &SessionId, command: SessionCommand) -> Result<SessionReply, Refusal> {
        let room = self.rooms.get_mut(session).ok_or_else(|| Refusal::UnknownSession(session.clone()))?;
        match command {
            SessionCommand::Send { input, when_busy: WhenBusy::Steer } => {
                let run = active(&room.log).ok_or(Refusal::NoActiveRun)?;
                let message = MessageId::parse("m").expect("a short text");
                let event = RunEvent::Steered { input, message };
                room.append(&mut self.names, SessionEvent::Run { run: run.clone(), sequence: 0, event });
                Ok(SessionReply::Steered(run))
            }
            SessionCommand::Send { input, .. } => room.send(&mut self.names, input),
            SessionCommand::Stop { run, reason } => room.stop(&mut self.names, run.as_ref(), reason),
            SessionCommand::Compact { .. } if self.whims.next() % 4 != 3 => {
                let summary = message(Role::User);
                let event = SessionEvent::Compacted { summary: summary.clone(), kept_from: None };
                room.append(&mut self.names, event);
                Ok(SessionReply::Compacted(summary))
            }
            SessionCommand::Compact { .. } => Err(Refusal::NotCompacted { reason: "whim".to_owned() }),
            SessionCommand::Rename { .. } | SessionCommand::Choose(_) => Ok(SessionReply::Done),
            SessionCommand::ClearQueue | SessionCommand::ClearHistory => {
                panic!("this door does not ask for {command:?}")
            }
        }
    }

    fn run(&mut self, command: OfficeCommand) -> OfficeReply {
        let whim = self.whims.next();
        match command {
            OfficeCommand::ListChats { .. } => OfficeReply::Chats { total: 3, chats: vec![chat("c")] },
            OfficeCommand::ReadChat(_) => {
                let id = self.rooms.keys().nth(usize::from(whim % 4)).map_or("c", SessionId::as_str);
                let found = saved(id, self.rooms.values().nth(usize::from(whim % 4)));
                OfficeReply::Chat((whim < 200).then(|| Box::new(found)))
            }
            OfficeCommand::ReadFiles { paths, .. } => {
                let file = |_| match self.whims.next() % 4 {
                    0 | 1 => Ok(File { name: "f".to_owned(), bytes: b"x".to_vec() }),
                    2 => Err(PathFlaw::Missing),
                    _ => Err(PathFlaw::TooLarge(1 << 30)),
                };
                OfficeReply::Files(paths.iter().map(file).collect())
            }
            OfficeCommand::ListModels => OfficeReply::Models(super::loaf::offers()),
            OfficeCommand::ListRoutes(_) => OfficeReply::Routes(Ok(vec!["A_b".to_owned()])),
            OfficeCommand::ListSkills => {
                let line = SkillLine { name: "x".to_owned(), description: "y".to_owned(), file: "/x".into() };
                OfficeReply::Skills(Skills { skills: vec![line], ..Skills::default() })
            }
            OfficeCommand::Keep(_) | OfficeCommand::ForgetAll if whim % 16 == 15 => {
                OfficeReply::Failed("whim".to_owned())
            }
            OfficeCommand::Keep(_) | OfficeCommand::ForgetAll => OfficeReply::Done,
            OfficeCommand::LookAtLogins => OfficeReply::Logins(Logins::default()),
            OfficeCommand::SetKey { .. } => OfficeReply::KeySet { models: usize::from(whim) },
            OfficeCommand::Login { provider, .. } => {
                self.steps.push_back(OfficeEvent::Login { provider, step: LoginStep::Url("u".to_owned()) });
                OfficeReply::LoggedIn(if whim.is_multiple_of(2) {
                    Ok((LoggedIn { by_device: true, account: None }, Logins::default()))
                } else {
                    Err(LoginFlaw::StateMismatch)
                })
            }
            OfficeCommand::CancelLogin(_) => OfficeReply::Cancelled(0),
            OfficeCommand::Logout(_) => OfficeReply::LoggedOut(true, Logins::default()),
            OfficeCommand::House(_) => panic!("that is for the house"),
        }
    }
}

impl Watch {
    fn next(&mut self, room: &Room) -> Option<Seen> {
        let next = room.log.get(self.place);
        let (run, message, text) = match next.map(|entry| &entry.event) {
            Some(SessionEvent::Run {
                run, event: RunEvent::MessageCompleted { message, text, .. }, ..
            }) => (run, message, text),
            Some(_) => return self.entry(next),
            None => room.speaking()?,
        };
        let rest = text.get(self.shown..).unwrap_or_default();
        if !rest.is_empty() && room.has_begun(message, self.place) {
            self.shown = text.len();
            let (run, subject) = (run.clone(), Subject::Message(message.clone()));
            return Some(Seen::Delta { run, subject, text: rest.to_owned() });
        }
        self.entry(next)
    }

    fn entry(&mut self, next: Option<&Arc<Entry>>) -> Option<Seen> {
        let entry = Arc::clone(next?);
        self.place += 1;
        if let SessionEvent::Run { event: RunEvent::MessageStarted { .. }, .. } = &entry.event {
            self.shown = 0;
        }
        Some(Seen::Entry(entry))
    }
}

/// The run that is under way at the end of a log.
fn active(log: &[Arc<Entry>]) -> Option<RunId> {
    let mut open = None;
    for entry in log {
        if let SessionEvent::Run { run, event, .. } = &entry.event {
            if matches!(event, RunEvent::Started { parent: None, .. }) {
                open = Some(run.clone());
            } else if matches!(event, RunEvent::Ended { .. }) {
                open.take_if(|open| open == run);
            }
        }
    }
    open
}

fn message(role: Role) -> Message {
    let (id, text) = (MessageId::parse("m").expect("a short text"), "\u{e4}".to_owned());
    Message { id, role, text, media: Vec::new() }
}

fn media(file: &File) -> Media {
    let id = MediaId::parse("m").expect("a short text");
    Media { id, name: file.name.clone(), mime: "image/png".to_owned(), size: file.bytes.len() as u64 }
}

fn chat(id: &str) -> Chat {
    let id = SessionId::parse(id).expect("a short text");
    let at = Timestamp(0);
    Chat { id, title: None, choice: Choice::default(), created: at, updated: at, messages: 1 }
}

fn saved(id: &str, room: Option<&Room>) -> SavedChat {
    let about = chat(id);
    let mut spoken = message(Role::User);
    spoken.media.push(media(&File { name: "f".to_owned(), bytes: Vec::new() }));
    let head = Seq(room.map_or(0, |room| room.log.len() as u64));
    let history = vec![Passage::Message(spoken), Passage::Message(message(Role::Assistant))];
    let (queue, active, usage) = (Vec::new(), None, Usage::default());
    let (id, choice) = (about.id.clone(), Choice::default());
    SavedChat { about, overview: Overview { id, head, title: None, choice, history, usage, queue, active } }
}
