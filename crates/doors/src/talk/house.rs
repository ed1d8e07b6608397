//! A house of sessions that keeps its promises and is moody in everything else.
//!
//! Questions are carried out in the order in which they were put; their answers come when they come.
//! What happens in a watched session is told in its order. A run starts once it was asked for, and
//! ends once; one that was told to stop ends as stopped.

use std::collections::VecDeque;
use std::sync::Arc;

use parlor_vocab::{
    AgentId, Birth, Choice, Entry, EventId, Failure, File, FileFlaw, HouseCommand, HouseEvent, HouseReply,
    Input, Media, MediaId, Message, MessageId, Overview, PROGRAM_ENDS, Passage, Refusal, Role, RunEnding,
    RunEvent, RunId, Seen, Seq, SessionCommand, SessionEvent, SessionId, SessionReply, StepId, StepKind,
    Subject, Timestamp, ToolCallId, ToolUse, Usage,
};

use super::whims::Whims;
use crate::Ticket;

pub(super) enum Happening {
    Answer(Ticket, Result<HouseReply, Refusal>),
    Event(HouseEvent),
}

pub(super) struct House<'a> {
    whims: Whims<'a>,
    questions: VecDeque<(Ticket, HouseCommand)>,
    answers: Vec<(Ticket, Result<HouseReply, Refusal>)>,
    events: VecDeque<HouseEvent>,
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

impl<'a> House<'a> {
    pub(super) fn new(whims: &'a [u8]) -> Self {
        Self {
            whims: Whims::new(whims),
            questions: VecDeque::new(),
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
    pub(super) fn ask(&mut self, ticket: Ticket, command: HouseCommand) -> Option<Refusal> {
        if self.is_closed {
            return Some(Refusal::TooManyQuestions { limit: 0 });
        }
        self.questions.push_back((ticket, command));
        None
    }

    pub(super) fn zeal(&mut self) -> u8 {
        self.whims.zeal()
    }

    /// How many seconds pass.
    pub(super) fn seconds(&mut self) -> u64 {
        [0, 0, 1, 20][usize::from(self.whims.next() % 4)]
    }

    /// Does anything, or nothing.
    pub(super) fn act(&mut self) -> Option<Happening> {
        match self.whims.next() % 8 {
            0 | 1 => self.oblige(),
            2 => self.carry_out(),
            3 => self.answer(),
            4 => self.tell(),
            5 | 6 => self.perform(),
            _ => self.end(),
        }
    }

    /// Does the next thing that somebody waits for, if anybody does.
    pub(super) fn oblige(&mut self) -> Option<Happening> {
        self.carry_out();
        loop {
            if let Some(happening) = self.answer().or_else(|| self.tell()) {
                return Some(happening);
            }
            if !self.questions.is_empty() {
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
        while !self.questions.is_empty() {
            self.carry_out();
        }
        if let Some(run) = &mut self.run {
            run.is_stopped = true;
            self.end();
        }
        self.end_compaction(false);
    }

    fn answer(&mut self) -> Option<Happening> {
        let index = self.whims.index(self.answers.len())?;
        let (ticket, answer) = self.answers.remove(index);
        Some(Happening::Answer(ticket, answer))
    }

    fn tell(&mut self) -> Option<Happening> {
        self.events.pop_front().map(Happening::Event)
    }

    fn carry_out(&mut self) -> Option<Happening> {
        let (ticket, command) = self.questions.pop_front()?;
        let whim = self.whims.next();
        if let HouseCommand::Session(_, SessionCommand::Compact { .. }) = &command
            && whim % 4 != 3
        {
            self.compacting = Some(ticket);
            return None;
        }
        let answer = self.decide(command, whim);
        self.answers.push((ticket, answer));
        None
    }

    fn decide(&mut self, command: HouseCommand, whim: u8) -> Result<HouseReply, Refusal> {
        let moody = Refusal::LogUnavailable { reason: "whim".to_owned() };
        // Watching always works: what is not seen cannot be told of.
        let is_moody = whim % 8 == 7
            && !matches!(
                command,
                HouseCommand::Watch { .. } | HouseCommand::Session(_, SessionCommand::Stop { .. })
            );
        if is_moody {
            return Err(moody);
        }
        Ok(match command {
            HouseCommand::Watch { session, .. } => {
                self.watched.push(session);
                HouseReply::Watching { seen: Seq::START, head: Seq::START }
            }
            HouseCommand::Create { .. } => HouseReply::Created(self.name(SessionId::parse)),
            HouseCommand::Look(id) => HouseReply::Overview(Box::new(self.overview(id))),
            HouseCommand::Session(session, command) => return self.command(session, command),
            HouseCommand::ReadFiles { paths, .. } => {
                HouseReply::Files(paths.iter().map(|_| self.file()).collect())
            }
            HouseCommand::Fetch { .. } => HouseReply::Files(vec![self.file()]),
            HouseCommand::StoreMedia(files) => {
                HouseReply::Stored(files.into_iter().map(|file| self.stored(file)).collect())
            }
            HouseCommand::ReadMedia { ids, .. } => {
                let content = |_| (self.whims.next() % 4 != 3).then(|| b"%PDF-kept".to_vec());
                HouseReply::Contents(ids.iter().map(content).collect())
            }
            HouseCommand::Leave(_) => HouseReply::Done,
            HouseCommand::Fork { .. } | HouseCommand::Unwatch(_) | HouseCommand::Delete(_) => {
                panic!("no door that is played here asks for {command:?}")
            }
        })
    }

    fn command(&mut self, session: SessionId, command: SessionCommand) -> Result<HouseReply, Refusal> {
        Ok(HouseReply::Session(match command {
            SessionCommand::Send { input, .. } => {
                if let Some(run) = &self.run {
                    return Err(Refusal::Busy { active: run.id.clone() });
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
                None => return Err(Refusal::NoActiveRun),
            },
            SessionCommand::Choose(_) => SessionReply::Done,
            SessionCommand::Compact { .. } => {
                return Err(Refusal::NotCompacted { reason: "whim".to_owned() });
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
            Ok(HouseReply::Session(SessionReply::Compacted(summary)))
        } else {
            Err(Refusal::NotCompacted { reason: "it was stopped".to_owned() })
        };
        self.answers.push((ticket, answer));
    }

    /// The run does something that runs do.
    fn perform(&mut self) -> Option<Happening> {
        let run = self.run.as_ref()?;
        let (own, children, calls) = (run.id.clone(), run.children.clone(), run.calls.clone());
        let whim = self.whims.next();
        let mut who: Vec<RunId> = vec![own.clone()];
        who.extend(children.iter().cloned());
        let who = self.whims.index(who.len()).map_or(own.clone(), |index| who[index].clone());
        let text = ["a", "\u{e4}\u{1f600}", "\n\"", ""][usize::from(whim >> 6)].to_owned();
        match whim % 11 {
            0 => self.delta(who, Subject::Message(self.fixed(MessageId::parse)), text),
            1 => self.delta(who, Subject::Thought(self.fixed(StepId::parse)), text),
            2 => self.delta(who, Subject::Tool(self.fixed(ToolCallId::parse)), text),
            3 => {
                let written = self.run.as_mut()?.writing.pop().filter(|_| whim.is_multiple_of(2));
                let (who, call) = written.unwrap_or_else(|| (who, self.name(ToolCallId::parse)));
                let step = self.fixed(StepId::parse);
                let input = ["{}", "{\"a\":[1]}", "no json", ""][usize::from(whim >> 6)].to_owned();
                self.run.as_mut()?.calls.push((who.clone(), call.clone()));
                self.record(who, RunEvent::ToolCalled { step, call, tool: "shell".to_owned(), input });
            }
            4 | 5 => {
                let (who, call) = calls.get(self.whims.index(calls.len())?)?.clone();
                self.run.as_mut()?.calls.retain(|(_, open)| *open != call);
                let event = if whim % 11 == 4 {
                    RunEvent::ToolCompleted { call, output: text, duration_ms: 1 }
                } else {
                    RunEvent::ToolFailed { call, failure: failure(&text), duration_ms: 1 }
                };
                self.record(who, event);
            }
            6 => {
                let child = self.name(RunId::parse);
                self.run.as_mut()?.children.push(child.clone());
                let (name, task) = ("worker".to_owned(), text.repeat(100));
                self.record(who.clone(), RunEvent::SubagentStarted { child: child.clone(), name, task });
                self.start(child, Some(who), Input::default());
            }
            7 => {
                let child = children.get(self.whims.index(children.len())?)?.clone();
                self.record(own, RunEvent::SubagentUpdated { child, status: text });
            }
            8 => {
                let child = children.get(self.whims.index(children.len())?)?.clone();
                let result = if whim > 127 { Ok("Error: none".to_owned()) } else { Err(failure(&text)) };
                self.run.as_mut()?.children.retain(|open| *open != child);
                self.run.as_mut()?.writing.retain(|(of, _)| *of != child);
                self.record(child.clone(), ended(RunEnding::Completed { message: None }));
                self.record(own, RunEvent::SubagentDone { child, result, duration_ms: whim.into() });
            }
            9 => {
                let known = self.run.as_ref()?.writing.first().cloned().filter(|_| whim.is_multiple_of(2));
                let (who, call) = known.unwrap_or_else(|| (who, self.name(ToolCallId::parse)));
                let writing = &mut self.run.as_mut()?.writing;
                if !writing.contains(&(who.clone(), call.clone())) {
                    writing.push((who.clone(), call.clone()));
                }
                self.delta(who, Subject::Input { call, tool: "shell".to_owned() }, text);
            }
            _ => {
                self.run.as_mut()?.writing.retain(|(of, _)| *of != who);
                let usage = Usage { input_tokens: whim.into(), output_tokens: u64::MAX, ..Usage::default() };
                let model = (whim > 127).then(|| "m".to_owned());
                self.record(who.clone(), RunEvent::Consumed { usage, model });
                let (step, kind) = (self.fixed(StepId::parse), StepKind::Planning);
                self.record(who, RunEvent::StepStarted { step, kind, title: String::new() });
            }
        }
        None
    }

    /// What is at work comes to its end.
    fn end(&mut self) -> Option<Happening> {
        let whim = self.whims.next();
        self.end_compaction(whim < 128);
        let run = self.run.take()?;
        let message = self.name(MessageId::parse);
        let ending = match whim % 4 {
            _ if run.is_stopped => RunEnding::Stopped { reason: PROGRAM_ENDS.to_owned(), message },
            0 | 1 => RunEnding::Completed { message: None },
            _ => RunEnding::Failed(failure("it broke")),
        };
        self.tell_of(&run.session, SessionEvent::Run { run: run.id, sequence: 1, event: ended(ending) });
        None
    }

    fn start(&mut self, run: RunId, parent: Option<RunId>, input: Input) {
        let model = (self.whims.next() % 2 == 1).then(|| "chosen".to_owned());
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
        self.see(session.clone(), Seen::Entry(Arc::new(entry)));
    }

    fn delta(&mut self, run: RunId, subject: Subject, text: String) {
        if let Some(session) = self.run.as_ref().map(|run| run.session.clone()) {
            self.see(session, Seen::Delta { run, subject, text });
        }
    }

    fn see(&mut self, session: SessionId, seen: Seen) {
        assert!(self.watched.contains(&session), "{session} has a run and is not watched");
        self.events.push_back(HouseEvent { session, seen });
    }

    fn overview(&mut self, id: SessionId) -> Overview {
        let whim = self.whims.next();
        let file = File { name: "f".to_owned(), bytes: Vec::new() };
        let media = if whim & 1 == 1 { vec![self.stored(file)] } else { Vec::new() };
        let spoken = |role, media| {
            let (id, text) = (MessageId::parse("m").expect("a short text"), "\u{e4}".to_owned());
            Passage::Message(Message { id, role, text, media })
        };
        let used = Passage::ToolUse(ToolUse {
            call: self.fixed(ToolCallId::parse),
            tool: "shell".to_owned(),
            input: "no json".to_owned(),
            result: (whim & 2 == 2).then(|| Err(failure("no"))),
        });
        let broken = Passage::BrokenOff(RunEnding::Failed(failure("no")));
        let mut history = vec![spoken(Role::User, media), spoken(Role::Assistant, Vec::new()), used, broken];
        history.truncate(usize::from(whim >> 5));
        let (queue, active) = (Vec::new(), self.run.as_ref().map(|run| run.id.clone()));
        let (choice, usage) = (Choice::default(), Usage { cost_micros: u64::MAX, ..Usage::default() });
        Overview { id, head: Seq::START, title: None, choice, history, usage, queue, active }
    }

    fn file(&mut self) -> Result<File, FileFlaw> {
        let whim = self.whims.next();
        let content: &[u8] = match whim % 8 {
            0 => b"plain",
            1 => b"%PDF-1 %%EOF",
            2 => b"\x89PNG\r\n\x1a\n",
            3 => b"\xff",
            4 => return Err(FileFlaw::Closed),
            5 => return Err(FileFlaw::NotRegular),
            6 => return Err(FileFlaw::Empty),
            _ => return Err(FileFlaw::TooLarge),
        };
        Ok(File { name: "f".to_owned(), bytes: content.to_vec() })
    }

    fn stored(&mut self, file: File) -> Media {
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
pub(super) fn birth() -> Birth {
    let (title, system, forked_from) = (None, None, None);
    Birth {
        title,
        door: "any".to_owned(),
        folder: "/".into(),
        choice: Choice::default(),
        system,
        forked_from,
    }
}

pub(super) fn failure(text: &str) -> Failure {
    Failure { code: "WHIM".to_owned(), message: text.to_owned(), retryable: false }
}

fn ended(ending: RunEnding) -> RunEvent {
    RunEvent::Ended { ending, duration_ms: 1 }
}
