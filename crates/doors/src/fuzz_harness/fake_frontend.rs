//! An frontend that keeps its promises and is moody in everything else.
//!
//! Questions to the registry are carried out in the order in which they were put, all others whenever; answers come
//! when they come. What happens in a watched session is told in its order, and a text in pieces before the event
//! that holds it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use parlor_vocab::{
    AgentChoice, ChatSummary, CompletedLogin, Credentials, Entry, FileError, FrontendEvent, FrontendReply,
    FrontendRequest, HistoryItem, LoginFailure, LoginStep, Media, MediaId, Message, MessageEvent, MessageId,
    NamedFile, RegistryEvent, RegistryReply, RegistryRequest, Role, RunEvent, RunId, SavedChat, Seq,
    SessionCommand, SessionEvent, SessionId, SessionOverview, SessionRefusal, SessionReply, SessionUpdate,
    SkillList, SkillSummary, StopCause, StreamKind, Timestamp, Usage, WhenBusy,
};

use super::choices::Choices;
use super::fake_session::FakeSession;
use crate::Ticket;

pub(super) enum Update {
    Answer(Ticket, Result<FrontendReply, SessionRefusal>),
    Event(FrontendEvent),
}

pub(super) struct FakeFrontend<'a> {
    choices: Choices<'a>,
    requests: VecDeque<(Ticket, RegistryRequest)>,
    background: Vec<(Ticket, FrontendRequest)>,
    answers: Vec<(Ticket, Result<FrontendReply, SessionRefusal>)>,
    sessions: BTreeMap<SessionId, FakeSession>,
    watches: BTreeMap<SessionId, Watch>,
    /// Steps of logins that were not told yet.
    steps: VecDeque<FrontendEvent>,
    is_closed: bool,
    names: u64,
}

#[derive(Default)]
struct Watch {
    /// What was told, and how much of the text that is being written.
    place: usize,
    shown: usize,
}

impl<'a> FakeFrontend<'a> {
    pub(super) fn new(choices: &'a [u8]) -> Self {
        Self {
            choices: Choices::new(choices),
            requests: VecDeque::new(),
            background: Vec::new(),
            answers: Vec::new(),
            sessions: BTreeMap::new(),
            watches: BTreeMap::new(),
            steps: VecDeque::new(),
            is_closed: false,
            names: 0,
        }
    }

    pub(super) fn burst(&mut self) -> u8 {
        self.choices.burst()
    }

    /// Takes a question, or turns it down because it is too late.
    pub(super) fn ask(&mut self, ticket: Ticket, command: FrontendRequest) -> Option<SessionRefusal> {
        if self.is_closed {
            return Some(SessionRefusal::TooManyRequests { limit: 0 });
        }
        if let FrontendRequest::Registry(command) = command {
            self.requests.push_back((ticket, command));
        } else {
            self.background.push((ticket, command));
        }
        None
    }

    /// Does anything, or nothing.
    pub(super) fn act(&mut self) -> Option<Update> {
        match self.choices.next() % 8 {
            0 | 1 => self.oblige(),
            2 => {
                self.carry_out();
                None
            }
            3 => self.answer(),
            4 => self.tell(),
            _ => {
                let index = self.choices.index(self.sessions.len())?;
                let fake = self.sessions.values_mut().nth(index)?;
                fake.perform(&mut self.names, &mut self.choices);
                None
            }
        }
    }

    /// Does the next thing that somebody waits for, if anybody does.
    pub(super) fn oblige(&mut self) -> Option<Update> {
        loop {
            if let Some(happening) = self.answer().or_else(|| self.tell()) {
                return Some(happening);
            }
            if self.requests.is_empty() && self.background.is_empty() {
                return None;
            }
            self.carry_out();
        }
    }

    /// Stops what is at work, as the end of the connection does.
    pub(super) fn close(&mut self) {
        self.is_closed = true;
        while !self.requests.is_empty() || !self.background.is_empty() {
            self.carry_out();
        }
        for fake in self.sessions.values_mut() {
            while !fake.is_idle() {
                let stopped = fake.stop(&mut self.names, None, StopCause::Shutdown);
                assert!(stopped.is_ok(), "what runs can be stopped");
            }
        }
    }

    fn answer(&mut self) -> Option<Update> {
        let index = self.choices.index(self.answers.len())?;
        let (ticket, answer) = self.answers.remove(index);
        Some(Update::Answer(ticket, answer))
    }

    fn tell(&mut self) -> Option<Update> {
        if let Some(step) = self.steps.pop_front() {
            return Some(Update::Event(step));
        }
        let sessions: Vec<SessionId> = self.watches.keys().cloned().collect();
        let start = self.choices.index(sessions.len())?;
        let told = (0..sessions.len()).find_map(|offset| {
            let session = sessions.get((start + offset) % sessions.len())?;
            let (watch, fake) = (self.watches.get_mut(session)?, self.sessions.get(session)?);
            watch.next(fake).map(|seen| RegistryEvent { session: session.clone(), seen })
        });
        told.map(|event| Update::Event(FrontendEvent::Registry(event)))
    }

    fn carry_out(&mut self) {
        let errand = if self.choices.next().is_multiple_of(2) || self.requests.is_empty() {
            self.choices.index(self.background.len())
        } else {
            None
        };
        if let Some(index) = errand {
            let (ticket, command) = self.background.remove(index);
            let reply = self.run(command);
            return self.answers.push((ticket, Ok(reply)));
        }
        let Some((ticket, command)) = self.requests.pop_front() else { return };
        let is_stop = matches!(command, RegistryRequest::Session(_, SessionCommand::Stop { .. }));
        let is_watch = matches!(command, RegistryRequest::Watch { .. } | RegistryRequest::Unwatch(_));
        let answer = if self.choices.next() % 16 == 15 && !is_stop && !is_watch {
            Err(SessionRefusal::LogUnavailable { reason: "choice".to_owned() })
        } else {
            self.decide(command)
        };
        self.answers.push((ticket, answer.map(FrontendReply::Registry)));
    }

    fn decide(&mut self, command: RegistryRequest) -> Result<RegistryReply, SessionRefusal> {
        Ok(match command {
            RegistryRequest::Create { id, new_session } => {
                let id = id.expect("this door names its sessions");
                let mut fake = FakeSession::default();
                fake.append(&mut self.names, SessionEvent::Created(*new_session));
                assert!(self.sessions.insert(id.clone(), fake).is_none(), "a session is created once");
                RegistryReply::Created(id)
            }
            RegistryRequest::Watch { session, after } => {
                let parlor_vocab::WatchFrom::At(seen) = after else { panic!("this door knows its place") };
                let place = usize::try_from(seen.0).unwrap_or(usize::MAX);
                self.watches.insert(session, Watch { place, shown: 0 });
                RegistryReply::Watching { seen, head: seen }
            }
            RegistryRequest::Unwatch(session) | RegistryRequest::Leave(session) => {
                self.watches.remove(&session);
                RegistryReply::Done
            }
            RegistryRequest::Delete(session) => {
                self.sessions.remove(&session);
                RegistryReply::Done
            }
            RegistryRequest::Session(session, command) => {
                RegistryReply::Session(self.command(&session, command)?)
            }
            RegistryRequest::StoreMedia(files) => RegistryReply::Stored(files.iter().map(media).collect()),
            RegistryRequest::ReadMedia { ids, .. } => {
                RegistryReply::Contents(ids.iter().map(|_| Some(b"kept".to_vec())).collect())
            }
            RegistryRequest::Fork { .. }
            | RegistryRequest::Look(_)
            | RegistryRequest::ReadFiles { .. }
            | RegistryRequest::Fetch { .. } => panic!("this door does not ask for {command:?}"),
        })
    }

    fn command(
        &mut self,
        session: &SessionId,
        command: SessionCommand,
    ) -> Result<SessionReply, SessionRefusal> {
        let fake =
            self.sessions.get_mut(session).ok_or_else(|| SessionRefusal::UnknownSession(session.clone()))?;
        match command {
            SessionCommand::Send { input, when_busy: WhenBusy::Steer } => {
                let run = active(&fake.log).ok_or(SessionRefusal::NoActiveRun)?;
                let message = MessageId::parse("m").expect("a short text");
                let event = RunEvent::Steered { input, message };
                fake.append(&mut self.names, SessionEvent::Run { run: run.clone(), sequence: 0, event });
                Ok(SessionReply::Steered(run))
            }
            SessionCommand::Send { input, .. } => fake.send(&mut self.names, input),
            SessionCommand::Stop { run, reason } => fake.stop(
                &mut self.names,
                run.as_ref(),
                StopCause::Client { reason: reason.unwrap_or_default() },
            ),
            SessionCommand::Compact { .. } if self.choices.next() % 4 != 3 => {
                let summary = message(Role::User);
                let event = SessionEvent::Compacted { summary: summary.clone(), kept_from: None };
                fake.append(&mut self.names, event);
                Ok(SessionReply::Compacted(summary))
            }
            SessionCommand::Compact { .. } => {
                Err(SessionRefusal::NotCompacted { reason: "choice".to_owned() })
            }
            SessionCommand::Rename { .. } | SessionCommand::Choose(_) => Ok(SessionReply::Done),
            SessionCommand::ClearQueue | SessionCommand::ClearHistory => {
                panic!("this door does not ask for {command:?}")
            }
        }
    }

    fn run(&mut self, command: FrontendRequest) -> FrontendReply {
        let choice = self.choices.next();
        match command {
            FrontendRequest::ListChats { .. } => FrontendReply::Chats { total: 3, chats: vec![chat("c")] },
            FrontendRequest::ReadChat(_) => {
                let id = self.sessions.keys().nth(usize::from(choice % 4)).map_or("c", SessionId::as_str);
                let found = saved(id, self.sessions.values().nth(usize::from(choice % 4)));
                FrontendReply::Chat((choice < 200).then(|| Box::new(found)))
            }
            FrontendRequest::ReadFiles { paths, .. } => {
                let file = |_| match self.choices.next() % 4 {
                    0 | 1 => Ok(NamedFile { name: "f".to_owned(), bytes: b"x".to_vec() }),
                    2 => Err(FileError::Missing),
                    _ => Err(FileError::TooLarge { bytes: 1 << 30 }),
                };
                FrontendReply::Files(paths.iter().map(file).collect())
            }
            FrontendRequest::ListModels => FrontendReply::Models(super::loaf::offers()),
            FrontendRequest::ListRoutes(_) => FrontendReply::Routes(Ok(vec!["A_b".to_owned()])),
            FrontendRequest::ListSkills => {
                let line =
                    SkillSummary { name: "x".to_owned(), description: "y".to_owned(), file: "/x".into() };
                FrontendReply::Skills(SkillList { skills: vec![line], ..SkillList::default() })
            }
            FrontendRequest::SavePreferences(_) | FrontendRequest::ForgetAll if choice % 16 == 15 => {
                FrontendReply::Failed("choice".to_owned())
            }
            FrontendRequest::SavePreferences(_) | FrontendRequest::ForgetAll => FrontendReply::Done,
            FrontendRequest::ListCredentials => FrontendReply::Credentials(Credentials::default()),
            FrontendRequest::SetKey { .. } => FrontendReply::KeySet { models: usize::from(choice) },
            FrontendRequest::Login { provider, .. } => {
                self.steps.push_back(FrontendEvent::Login { provider, step: LoginStep::Url("u".to_owned()) });
                FrontendReply::LoggedIn(if choice.is_multiple_of(2) {
                    Ok((CompletedLogin { by_device: true, account: None }, Credentials::default()))
                } else {
                    Err(LoginFailure::StateMismatch)
                })
            }
            FrontendRequest::CancelLogin(_) => FrontendReply::Cancelled(0),
            FrontendRequest::Logout(_) => FrontendReply::LoggedOut(true, Credentials::default()),
            FrontendRequest::Registry(_) => panic!("that is for the registry"),
        }
    }
}

impl Watch {
    fn next(&mut self, fake: &FakeSession) -> Option<SessionUpdate> {
        let next = fake.log.get(self.place);
        let (run, message, text) = match next.map(|entry| &entry.event) {
            Some(SessionEvent::Run {
                run,
                event: RunEvent::Message(MessageEvent::Completed { message, text, .. }),
                ..
            }) => (run, message, text),
            Some(_) => return self.entry(next),
            None => fake.speaking()?,
        };
        let rest = text.get(self.shown..).unwrap_or_default();
        if !rest.is_empty() && fake.has_begun(message, self.place) {
            self.shown = text.len();
            let (run, subject) = (run.clone(), StreamKind::Message(message.clone()));
            return Some(SessionUpdate::Delta { run, subject, text: rest.to_owned() });
        }
        self.entry(next)
    }

    fn entry(&mut self, next: Option<&Arc<Entry>>) -> Option<SessionUpdate> {
        let entry = Arc::clone(next?);
        self.place += 1;
        if let SessionEvent::Run { event: RunEvent::Message(MessageEvent::Started { .. }), .. } = &entry.event
        {
            self.shown = 0;
        }
        Some(SessionUpdate::Entry(entry))
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

fn media(file: &NamedFile) -> Media {
    let id = MediaId::parse("m").expect("a short text");
    Media { id, name: file.name.clone(), mime: "image/png".to_owned(), size: file.bytes.len() as u64 }
}

fn chat(id: &str) -> ChatSummary {
    let id = SessionId::parse(id).expect("a short text");
    let at = Timestamp(0);
    ChatSummary { id, title: None, choice: AgentChoice::default(), created: at, updated: at, messages: 1 }
}

fn saved(id: &str, fake: Option<&FakeSession>) -> SavedChat {
    let about = chat(id);
    let mut spoken = message(Role::User);
    spoken.media.push(media(&NamedFile { name: "f".to_owned(), bytes: Vec::new() }));
    let head = Seq(fake.map_or(0, |fake| fake.log.len() as u64));
    let history = vec![HistoryItem::Message(spoken), HistoryItem::Message(message(Role::Assistant))];
    let (queue, active, usage) = (Vec::new(), None, Usage::default());
    let (id, choice) = (about.id.clone(), AgentChoice::default());
    SavedChat {
        about,
        overview: SessionOverview { id, head, title: None, choice, history, usage, queue, active },
    }
}
