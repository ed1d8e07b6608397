//! A fake front-end backend, for the loaf and ACP doors. It keeps the guarantees of the real one and takes all other decisions from its choices.
//!
//! It carries out registry requests in their order and all others in any order; it answers in any order. It reports the
//! events of a watched session in their order, and the deltas of a text before the event that contains the text.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use parlor_vocab::{
    AgentChoice, ChatSummary, CompletedLogin, Credentials, Entry, FileError, FrontendEvent, FrontendReply,
    FrontendRequest, HistoryItem, LoginFailure, LoginStep, Media, MediaId, Message, MessageId, NamedFile,
    RegistryEvent, RegistryReply, RegistryRequest, Role, RunEvent, RunId, SavedChat, Seq, SessionCommand,
    SessionEvent, SessionId, SessionOverview, SessionRefusal, SessionReply, SkillList, SkillSummary,
    StopCause, Timestamp, Usage, WhenBusy,
};

use super::choices::Choices;
use super::fake_session::{FakeSession, LogCursor};
use crate::Ticket;

/// What the backend passes to the machine.
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
    watches: BTreeMap<SessionId, LogCursor>,
    /// Steps of logins that were not reported yet.
    steps: VecDeque<FrontendEvent>,
    is_closed: bool,
    id_counter: u64,
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
            id_counter: 0,
        }
    }

    pub(super) fn burst(&mut self) -> u8 {
        self.choices.burst()
    }

    /// Accepts a request, or refuses it because the connection has ended.
    pub(super) fn submit(&mut self, ticket: Ticket, request: FrontendRequest) -> Option<SessionRefusal> {
        if self.is_closed {
            return Some(SessionRefusal::TooManyRequests { limit: 0 });
        }
        if let FrontendRequest::Registry(request) = request {
            self.requests.push_back((ticket, request));
        } else {
            self.background.push((ticket, request));
        }
        None
    }

    /// Takes one action of its choice.
    pub(super) fn act(&mut self) -> Option<Update> {
        match self.choices.next() % 8 {
            0 | 1 => self.serve_next(),
            2 => {
                self.carry_out_next();
                None
            }
            3 => self.answer(),
            4 => self.next_event(),
            _ => {
                let index = self.choices.index(self.sessions.len())?;
                let fake = self.sessions.values_mut().nth(index)?;
                fake.advance_run(&mut self.id_counter, &mut self.choices);
                None
            }
        }
    }

    /// Takes the next action that the machine waits for; `None` if it waits for nothing.
    pub(super) fn serve_next(&mut self) -> Option<Update> {
        loop {
            if let Some(update) = self.answer().or_else(|| self.next_event()) {
                return Some(update);
            }
            if self.requests.is_empty() && self.background.is_empty() {
                return None;
            }
            self.carry_out_next();
        }
    }

    /// Stops all runs, as the end of a connection does.
    pub(super) fn close(&mut self) {
        self.is_closed = true;
        while !self.requests.is_empty() || !self.background.is_empty() {
            self.carry_out_next();
        }
        for fake in self.sessions.values_mut() {
            while !fake.is_idle() {
                let stopped = fake.stop(&mut self.id_counter, None, StopCause::Shutdown);
                assert!(stopped.is_ok(), "a running session can be stopped");
            }
        }
    }

    fn answer(&mut self) -> Option<Update> {
        let index = self.choices.index(self.answers.len())?;
        let (ticket, answer) = self.answers.remove(index);
        Some(Update::Answer(ticket, answer))
    }

    fn next_event(&mut self) -> Option<Update> {
        if let Some(step) = self.steps.pop_front() {
            return Some(Update::Event(step));
        }
        let sessions: Vec<SessionId> = self.watches.keys().cloned().collect();
        let start = self.choices.index(sessions.len())?;
        let event = (0..sessions.len()).find_map(|offset| {
            let session = sessions.get((start + offset) % sessions.len())?;
            let (watch, fake) = (self.watches.get_mut(session)?, self.sessions.get(session)?);
            watch.next(fake).map(|update| RegistryEvent { session: session.clone(), update })
        });
        event.map(|event| Update::Event(FrontendEvent::Registry(event)))
    }

    fn carry_out_next(&mut self) {
        let background_request = if self.choices.next().is_multiple_of(2) || self.requests.is_empty() {
            self.choices.index(self.background.len())
        } else {
            None
        };
        if let Some(index) = background_request {
            let (ticket, request) = self.background.remove(index);
            let reply = self.run(request);
            return self.answers.push((ticket, Ok(reply)));
        }
        let Some((ticket, request)) = self.requests.pop_front() else { return };
        let is_stop = matches!(request, RegistryRequest::Session(_, SessionCommand::Stop { .. }));
        let is_watch = matches!(request, RegistryRequest::Watch { .. } | RegistryRequest::Unwatch(_));
        let answer = if self.choices.next() % 16 == 15 && !is_stop && !is_watch {
            Err(SessionRefusal::LogUnavailable { reason: "choice".to_owned() })
        } else {
            self.answer_to(request)
        };
        self.answers.push((ticket, answer.map(FrontendReply::Registry)));
    }

    fn answer_to(&mut self, request: RegistryRequest) -> Result<RegistryReply, SessionRefusal> {
        Ok(match request {
            RegistryRequest::Create { id, new_session } => {
                let id = id.unwrap_or_else(|| {
                    self.id_counter += 1;
                    SessionId::parse(&format!("fake-{}", self.id_counter)).expect("a short id")
                });
                let mut fake = FakeSession::default();
                fake.append(&mut self.id_counter, SessionEvent::Created(*new_session));
                assert!(self.sessions.insert(id.clone(), fake).is_none(), "a session is created once");
                RegistryReply::Created(id)
            }
            RegistryRequest::Watch { session, after, .. } => {
                let parlor_vocab::WatchFrom::At(seen) = after else {
                    panic!("this door watches from a position")
                };
                let position = usize::try_from(seen.0).unwrap_or(usize::MAX);
                self.watches.insert(session, LogCursor::at(position));
                RegistryReply::Watching { seen, head: seen }
            }
            RegistryRequest::Unwatch(session) | RegistryRequest::Release(session) => {
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
            RegistryRequest::DiscardMedia(_) => RegistryReply::Done,
            RegistryRequest::ReadMedia { ids, .. } => {
                RegistryReply::Contents(ids.iter().map(|_| Some(b"kept".to_vec())).collect())
            }
            RegistryRequest::Fork { .. }
            | RegistryRequest::GetOverview(_)
            | RegistryRequest::GetTotals(_)
            | RegistryRequest::DeleteIfUnused(_)
            | RegistryRequest::ReadFiles { .. }
            | RegistryRequest::Fetch { .. } => panic!("this door never submits {request:?}"),
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
                fake.append(&mut self.id_counter, SessionEvent::Run { run: run.clone(), sequence: 0, event });
                Ok(SessionReply::Steered(run))
            }
            SessionCommand::Send { input, .. } => fake.send(&mut self.id_counter, input),
            SessionCommand::Stop { run, reason } => fake.stop(
                &mut self.id_counter,
                run.as_ref(),
                StopCause::Client { reason: reason.unwrap_or_default() },
            ),
            SessionCommand::Compact { .. } if self.choices.next() % 4 != 3 => {
                let summary = message(Role::User);
                let event = SessionEvent::Compacted { summary: summary.clone(), kept_from: None };
                fake.append(&mut self.id_counter, event);
                Ok(SessionReply::Compacted(summary))
            }
            SessionCommand::Compact { .. } => {
                Err(SessionRefusal::NotCompacted { reason: "choice".to_owned() })
            }
            SessionCommand::Rename { .. }
            | SessionCommand::ChooseAgent(_)
            | SessionCommand::ChooseMode(_) => Ok(SessionReply::Done),
            SessionCommand::AnswerQuestion { question, .. } => Err(SessionRefusal::UnknownQuestion(question)),
            SessionCommand::ClearQueue | SessionCommand::Unqueue(_) | SessionCommand::ClearHistory => {
                panic!("this door never submits {command:?}")
            }
        }
    }

    fn run(&mut self, request: FrontendRequest) -> FrontendReply {
        let choice = self.choices.next();
        match request {
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
            FrontendRequest::ListModels(_) => FrontendReply::Models(super::loaf::models()),
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
            FrontendRequest::ListSessions { .. } => {
                FrontendReply::Sessions { sessions: Vec::new(), next: None }
            }
            FrontendRequest::DescribeSession(_) => FrontendReply::Description(None),
            FrontendRequest::CheckFolder(_) if choice % 4 == 3 => FrontendReply::Failed("choice".to_owned()),
            FrontendRequest::CheckFolder(_) => FrontendReply::Done,
            FrontendRequest::UseMcpServers { .. } => FrontendReply::McpServers(vec!["choice".to_owned()]),
            FrontendRequest::Registry(_) => panic!("registry requests are handled elsewhere"),
        }
    }
}

/// The run that is active at the end of a log.
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
    let summary = chat(id);
    let mut prompt = message(Role::User);
    prompt.media.push(media(&NamedFile { name: "f".to_owned(), bytes: Vec::new() }));
    let head = Seq(fake.map_or(0, |fake| fake.log.len() as u64));
    let history = vec![HistoryItem::Message(prompt), HistoryItem::Message(message(Role::Assistant))];
    let (queue, active, usage) = (Vec::new(), None, Usage::default());
    let (id, choice) = (summary.id.clone(), AgentChoice::default());
    SavedChat {
        summary,
        overview: SessionOverview {
            id,
            head,
            title: None,
            choice,
            history,
            usage,
            queue,
            active,
            mode: None,
            question: None,
        },
    }
}
