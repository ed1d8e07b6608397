//! A registry of sessions that keeps its promises and is moody in everything else.
//!
//! Questions are carried out in the order in which they were put; their answers come when they come.
//! What happens in a watched session is told in its order. A run starts once it was asked for, and
//! ends once; one that was told to stop ends as stopped.

use std::collections::VecDeque;
use std::sync::Arc;

use parlor_vocab::{
    AgentChoice, AgentId, Entry, EventId, Failure, FileError, HistoryItem, Media, MediaId, Message,
    MessageId, NamedFile, NewSession, RegistryEvent, RegistryReply, RegistryRequest, Role, RunEnding,
    RunEvent, RunId, Seq, SessionCommand, SessionEvent, SessionId, SessionOverview, SessionRefusal,
    SessionReply, SessionUpdate, StepEvent, StepId, StepKind, StopCause, StreamKind, SubagentEvent,
    Timestamp, ToolCallId, ToolEvent, ToolUse, Usage, UserInput,
};

use super::choices::Choices;
use crate::Ticket;

pub(super) enum Update {
    Answer(Ticket, Result<RegistryReply, SessionRefusal>),
    Event(RegistryEvent),
}

pub(super) struct FakeRegistry<'a> {
    choices: Choices<'a>,
    requests: VecDeque<(Ticket, RegistryRequest)>,
    answers: Vec<(Ticket, Result<RegistryReply, SessionRefusal>)>,
    events: VecDeque<RegistryEvent>,
    watched: Vec<SessionId>,
    run: Option<Run>,
    compacting: Option<Ticket>,
    is_closed: bool,
    names: u32,
}

struct Run {
    session: SessionId,
    id: RunId,
    calls: Vec<(RunId, ToolCallId)>,
    /// Calls whose inputs are being written.
    writing: Vec<(RunId, ToolCallId)>,
    children: Vec<RunId>,
    is_stopped: bool,
}

impl<'a> FakeRegistry<'a> {
    pub(super) fn new(choices: &'a [u8]) -> Self {
        Self {
            choices: Choices::new(choices),
            requests: VecDeque::new(),
            answers: Vec::new(),
            events: VecDeque::new(),
            watched: Vec::new(),
            run: None,
            compacting: None,
            is_closed: false,
            names: 0,
        }
    }

    /// Takes a question, or turns it down because it is too late.
    pub(super) fn ask(&mut self, ticket: Ticket, command: RegistryRequest) -> Option<SessionRefusal> {
        if self.is_closed {
            return Some(SessionRefusal::TooManyRequests { limit: 0 });
        }
        self.requests.push_back((ticket, command));
        None
    }

    pub(super) fn burst(&mut self) -> u8 {
        self.choices.burst()
    }

    /// How many seconds pass.
    pub(super) fn seconds(&mut self) -> u64 {
        [0, 0, 1, 20][usize::from(self.choices.next() % 4)]
    }

    /// Does anything, or nothing.
    pub(super) fn act(&mut self) -> Option<Update> {
        match self.choices.next() % 8 {
            0 | 1 => self.oblige(),
            2 => self.carry_out(),
            3 => self.answer(),
            4 => self.tell(),
            5 | 6 => self.perform(),
            _ => self.end(),
        }
    }

    /// Does the next thing that somebody waits for, if anybody does.
    pub(super) fn oblige(&mut self) -> Option<Update> {
        self.carry_out();
        loop {
            if let Some(happening) = self.answer().or_else(|| self.tell()) {
                return Some(happening);
            }
            if !self.requests.is_empty() {
                self.carry_out();
            } else if self.run.as_ref().is_some_and(|run| run.is_stopped) {
                self.end();
            } else {
                return None;
            }
        }
    }

    /// Stops what is at work, as the end of the connection does.
    pub(super) fn close(&mut self) {
        self.is_closed = true;
        while !self.requests.is_empty() {
            self.carry_out();
        }
        if let Some(run) = &mut self.run {
            run.is_stopped = true;
            self.end();
        }
        self.end_compaction(false);
    }

    fn answer(&mut self) -> Option<Update> {
        let index = self.choices.index(self.answers.len())?;
        let (ticket, answer) = self.answers.remove(index);
        Some(Update::Answer(ticket, answer))
    }

    fn tell(&mut self) -> Option<Update> {
        self.events.pop_front().map(Update::Event)
    }

    fn carry_out(&mut self) -> Option<Update> {
        let (ticket, command) = self.requests.pop_front()?;
        let choice = self.choices.next();
        if let RegistryRequest::Session(_, SessionCommand::Compact { .. }) = &command
            && choice % 4 != 3
        {
            self.compacting = Some(ticket);
            return None;
        }
        let answer = self.decide(command, choice);
        self.answers.push((ticket, answer));
        None
    }

    fn decide(&mut self, command: RegistryRequest, choice: u8) -> Result<RegistryReply, SessionRefusal> {
        let moody = SessionRefusal::LogUnavailable { reason: "choice".to_owned() };
        // Watching always works: what is not seen cannot be told of.
        let is_moody = choice % 8 == 7
            && !matches!(
                command,
                RegistryRequest::Watch { .. } | RegistryRequest::Session(_, SessionCommand::Stop { .. })
            );
        if is_moody {
            return Err(moody);
        }
        Ok(match command {
            RegistryRequest::Watch { session, .. } => {
                self.watched.push(session);
                RegistryReply::Watching { seen: Seq::START, head: Seq::START }
            }
            RegistryRequest::Create { .. } => RegistryReply::Created(self.name(SessionId::parse)),
            RegistryRequest::Look(id) => RegistryReply::Overview(Box::new(self.overview(id))),
            RegistryRequest::Session(session, command) => return self.command(session, command),
            RegistryRequest::ReadFiles { paths, .. } => {
                RegistryReply::Files(paths.iter().map(|_| self.file()).collect())
            }
            RegistryRequest::Fetch { .. } => RegistryReply::Files(vec![self.file()]),
            RegistryRequest::StoreMedia(files) => {
                RegistryReply::Stored(files.into_iter().map(|file| self.stored(file)).collect())
            }
            RegistryRequest::ReadMedia { ids, .. } => {
                let content = |_| (self.choices.next() % 4 != 3).then(|| b"%PDF-kept".to_vec());
                RegistryReply::Contents(ids.iter().map(content).collect())
            }
            RegistryRequest::Leave(_) => RegistryReply::Done,
            RegistryRequest::Fork { .. } | RegistryRequest::Unwatch(_) | RegistryRequest::Delete(_) => {
                panic!("no door that is played here asks for {command:?}")
            }
        })
    }

    fn command(
        &mut self,
        session: SessionId,
        command: SessionCommand,
    ) -> Result<RegistryReply, SessionRefusal> {
        Ok(RegistryReply::Session(match command {
            SessionCommand::Send { input, .. } => {
                if let Some(run) = &self.run {
                    return Err(SessionRefusal::Busy { active: run.id.clone() });
                }
                let id = self.name(RunId::parse);
                let (calls, writing, children, is_stopped) = (Vec::new(), Vec::new(), Vec::new(), false);
                self.run = Some(Run { session, id: id.clone(), calls, writing, children, is_stopped });
                self.start(id.clone(), None, input);
                SessionReply::Started(id)
            }
            SessionCommand::Stop { .. } => match &mut self.run {
                Some(run) => {
                    run.is_stopped = true;
                    SessionReply::Stopping(run.id.clone())
                }
                None if self.compacting.is_some() => {
                    self.end_compaction(false);
                    SessionReply::Done
                }
                None => return Err(SessionRefusal::NoActiveRun),
            },
            SessionCommand::Choose(_) => SessionReply::Done,
            SessionCommand::Compact { .. } => {
                return Err(SessionRefusal::NotCompacted { reason: "choice".to_owned() });
            }
            SessionCommand::ClearQueue | SessionCommand::ClearHistory | SessionCommand::Rename { .. } => {
                panic!("no door that is played here asks for {command:?}")
            }
        }))
    }

    fn end_compaction(&mut self, well: bool) {
        let Some(ticket) = self.compacting.take() else { return };
        let (id, text) = (self.name(MessageId::parse), "sum".to_owned());
        let summary = Message { id, role: Role::User, text, media: Vec::new() };
        let answer = if well {
            Ok(RegistryReply::Session(SessionReply::Compacted(summary)))
        } else {
            Err(SessionRefusal::NotCompacted { reason: "it was stopped".to_owned() })
        };
        self.answers.push((ticket, answer));
    }

    /// The run does something that runs do.
    fn perform(&mut self) -> Option<Update> {
        let run = self.run.as_ref()?;
        let (own, children, calls) = (run.id.clone(), run.children.clone(), run.calls.clone());
        let choice = self.choices.next();
        let mut who: Vec<RunId> = vec![own.clone()];
        who.extend(children.iter().cloned());
        let who = self.choices.index(who.len()).map_or(own.clone(), |index| who[index].clone());
        let text = ["a", "\u{e4}\u{1f600}", "\n\"", ""][usize::from(choice >> 6)].to_owned();
        match choice % 11 {
            0 => self.delta(who, StreamKind::Message(self.fixed(MessageId::parse)), text),
            1 => self.delta(who, StreamKind::Thought(self.fixed(StepId::parse)), text),
            2 => self.delta(who, StreamKind::Tool(self.fixed(ToolCallId::parse)), text),
            3 => {
                let written = self.run.as_mut()?.writing.pop().filter(|_| choice.is_multiple_of(2));
                let (who, call) = written.unwrap_or_else(|| (who, self.name(ToolCallId::parse)));
                let step = self.fixed(StepId::parse);
                let input = ["{}", "{\"a\":[1]}", "no json", ""][usize::from(choice >> 6)].to_owned();
                self.run.as_mut()?.calls.push((who.clone(), call.clone()));
                self.record(
                    who,
                    RunEvent::Tool(ToolEvent::Called { step, call, tool: "shell".to_owned(), input }),
                );
            }
            4 | 5 => {
                let (who, call) = calls.get(self.choices.index(calls.len())?)?.clone();
                self.run.as_mut()?.calls.retain(|(_, open)| *open != call);
                let event = if choice % 11 == 4 {
                    RunEvent::Tool(ToolEvent::Completed { call, output: text, duration_ms: 1 })
                } else {
                    RunEvent::Tool(ToolEvent::Failed { call, failure: failure(&text), duration_ms: 1 })
                };
                self.record(who, event);
            }
            6 => {
                let child = self.name(RunId::parse);
                self.run.as_mut()?.children.push(child.clone());
                let (name, task) = ("worker".to_owned(), text.repeat(100));
                self.record(
                    who.clone(),
                    RunEvent::Subagent(SubagentEvent::Started { child: child.clone(), name, task }),
                );
                self.start(child, Some(who), UserInput::default());
            }
            7 => {
                let child = children.get(self.choices.index(children.len())?)?.clone();
                self.record(own, RunEvent::Subagent(SubagentEvent::Updated { child, status: text }));
            }
            8 => {
                let child = children.get(self.choices.index(children.len())?)?.clone();
                let result = if choice > 127 { Ok("Error: none".to_owned()) } else { Err(failure(&text)) };
                self.run.as_mut()?.children.retain(|open| *open != child);
                self.run.as_mut()?.writing.retain(|(of, _)| *of != child);
                self.record(child.clone(), ended(RunEnding::Completed { message: None }));
                self.record(
                    own,
                    RunEvent::Subagent(SubagentEvent::Done { child, result, duration_ms: choice.into() }),
                );
            }
            9 => {
                let known = self.run.as_ref()?.writing.first().cloned().filter(|_| choice.is_multiple_of(2));
                let (who, call) = known.unwrap_or_else(|| (who, self.name(ToolCallId::parse)));
                let writing = &mut self.run.as_mut()?.writing;
                if !writing.contains(&(who.clone(), call.clone())) {
                    writing.push((who.clone(), call.clone()));
                }
                self.delta(who, StreamKind::Input { call, tool: "shell".to_owned() }, text);
            }
            _ => {
                self.run.as_mut()?.writing.retain(|(of, _)| *of != who);
                let usage =
                    Usage { input_tokens: choice.into(), output_tokens: u64::MAX, ..Usage::default() };
                let model = (choice > 127).then(|| "m".to_owned());
                self.record(who.clone(), RunEvent::Consumed { usage, model });
                let (step, kind) = (self.fixed(StepId::parse), StepKind::Planning);
                self.record(who, RunEvent::Step(StepEvent::Started { step, kind, title: String::new() }));
            }
        }
        None
    }

    /// What is at work comes to its end.
    fn end(&mut self) -> Option<Update> {
        let choice = self.choices.next();
        self.end_compaction(choice < 128);
        let run = self.run.take()?;
        let message = self.name(MessageId::parse);
        let ending = match choice % 4 {
            _ if run.is_stopped => RunEnding::Stopped { cause: StopCause::Shutdown, message },
            0 | 1 => RunEnding::Completed { message: None },
            _ => RunEnding::Failed(failure("it broke")),
        };
        self.tell_of(&run.session, SessionEvent::Run { run: run.id, sequence: 1, event: ended(ending) });
        None
    }

    fn start(&mut self, run: RunId, parent: Option<RunId>, input: UserInput) {
        let model = (self.choices.next() % 2 == 1).then(|| "chosen".to_owned());
        let (agent, message) = (self.fixed(AgentId::parse), self.name(MessageId::parse));
        self.record(run, RunEvent::Started { parent, agent, model, input, message });
    }

    fn record(&mut self, run: RunId, event: RunEvent) {
        if let Some(session) = self.run.as_ref().map(|run| run.session.clone()) {
            self.tell_of(&session, SessionEvent::Run { run, sequence: 1, event });
        }
    }

    fn tell_of(&mut self, session: &SessionId, event: SessionEvent) {
        let (seq, at) = (Seq(u64::from(self.names)), Timestamp(0));
        let entry = Entry { seq, id: self.fixed(EventId::parse), at, event };
        self.see(session.clone(), SessionUpdate::Entry(Arc::new(entry)));
    }

    fn delta(&mut self, run: RunId, subject: StreamKind, text: String) {
        if let Some(session) = self.run.as_ref().map(|run| run.session.clone()) {
            self.see(session, SessionUpdate::Delta { run, subject, text });
        }
    }

    fn see(&mut self, session: SessionId, seen: SessionUpdate) {
        assert!(self.watched.contains(&session), "{session} has a run and is not watched");
        self.events.push_back(RegistryEvent { session, seen });
    }

    fn overview(&mut self, id: SessionId) -> SessionOverview {
        let choice = self.choices.next();
        let file = NamedFile { name: "f".to_owned(), bytes: Vec::new() };
        let media = if choice & 1 == 1 { vec![self.stored(file)] } else { Vec::new() };
        let spoken = |role, media| {
            let (id, text) = (MessageId::parse("m").expect("a short text"), "\u{e4}".to_owned());
            HistoryItem::Message(Message { id, role, text, media })
        };
        let used = HistoryItem::ToolUse(ToolUse {
            call: self.fixed(ToolCallId::parse),
            tool: "shell".to_owned(),
            input: "no json".to_owned(),
            result: (choice & 2 == 2).then(|| Err(failure("no"))),
        });
        let broken = HistoryItem::BrokenOff(RunEnding::Failed(failure("no")));
        let mut history = vec![spoken(Role::User, media), spoken(Role::Assistant, Vec::new()), used, broken];
        history.truncate(usize::from(choice >> 5));
        let (queue, active) = (Vec::new(), self.run.as_ref().map(|run| run.id.clone()));
        let (choice, usage) = (AgentChoice::default(), Usage { cost_micros: u64::MAX, ..Usage::default() });
        SessionOverview { id, head: Seq::START, title: None, choice, history, usage, queue, active }
    }

    fn file(&mut self) -> Result<NamedFile, FileError> {
        let choice = self.choices.next();
        let content: &[u8] = match choice % 8 {
            0 => b"plain",
            1 => b"%PDF-1 %%EOF",
            2 => b"\x89PNG\r\n\x1a\n",
            3 => b"\xff",
            4 => return Err(FileError::Unreadable),
            5 => return Err(FileError::NotRegular),
            6 => return Err(FileError::Empty),
            _ => return Err(FileError::TooLarge { bytes: 1 << 30 }),
        };
        Ok(NamedFile { name: "f".to_owned(), bytes: content.to_vec() })
    }

    fn stored(&mut self, file: NamedFile) -> Media {
        let (id, size) = (self.name(MediaId::parse), file.bytes.len() as u64);
        Media { id, name: file.name, mime: "text/plain".to_owned(), size }
    }

    /// A new id.
    fn name<T, E: std::fmt::Debug>(&mut self, parse: impl Fn(&str) -> Result<T, E>) -> T {
        self.names += 1;
        parse(&format!("n{}", self.names)).expect("a short text")
    }

    /// An id that stays the same.
    fn fixed<T, E: std::fmt::Debug>(&self, parse: impl Fn(&str) -> Result<T, E>) -> T {
        parse("same").expect("a short text")
    }
}

/// What a session begins with.
pub(super) fn new_session() -> NewSession {
    let (title, system, forked_from) = (None, None, None);
    NewSession {
        title,
        door: "any".to_owned(),
        folder: "/".into(),
        choice: AgentChoice::default(),
        system,
        forked_from,
    }
}

pub(super) fn failure(text: &str) -> Failure {
    Failure { code: "WHIM".into(), message: text.to_owned(), retryable: false }
}

fn ended(ending: RunEnding) -> RunEvent {
    RunEvent::Ended { ending, duration_ms: 1 }
}
