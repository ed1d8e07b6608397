//! A fake session registry with one client, for the synaps door. It keeps the guarantees of the real one and takes all other decisions from
//! its choices.
//!
//! It carries out requests in their order and answers in any order. It reports the events of a watched session in their
//! order. A run starts after a `Send`, ends once, and ends as stopped after a `Stop`.

use std::collections::VecDeque;
use std::sync::Arc;

use parlor_vocab::{
    AgentChoice, AgentId, Entry, EventId, Failure, FileError, HistoryItem, Media, MediaId, Message,
    MessageId, NamedFile, NewSession, RegistryEvent, RegistryReply, RegistryRequest, Role, RunEnding,
    RunEvent, RunId, Seq, SessionCommand, SessionEvent, SessionId, SessionOverview, SessionRefusal,
    SessionReply, SessionTotals, SessionUpdate, StepEvent, StepId, StepKind, StopCause, StreamKind,
    SubagentEvent, Timestamp, ToolCallId, ToolEvent, ToolUse, Usage, UserInput, WhenBusy,
};

use super::choices::Choices;
use crate::Ticket;

/// What the backend passes to the machine.
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
    id_counter: u32,
}

struct Run {
    session: SessionId,
    id: RunId,
    calls: Vec<(RunId, ToolCallId)>,
    /// Calls whose inputs the model is still writing.
    open_inputs: Vec<(RunId, ToolCallId)>,
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
            id_counter: 0,
        }
    }

    /// Accepts a request, or refuses it because the connection has ended.
    pub(super) fn submit(&mut self, ticket: Ticket, request: RegistryRequest) -> Option<SessionRefusal> {
        if self.is_closed {
            return Some(SessionRefusal::TooManyRequests { limit: 0 });
        }
        self.requests.push_back((ticket, request));
        None
    }

    pub(super) fn burst(&mut self) -> u8 {
        self.choices.burst()
    }

    /// How many seconds pass.
    pub(super) fn seconds(&mut self) -> u64 {
        [0, 0, 1, 20][usize::from(self.choices.next() % 4)]
    }

    /// Takes one action of its choice.
    pub(super) fn act(&mut self) -> Option<Update> {
        match self.choices.next() % 8 {
            0 | 1 => self.serve_next(),
            2 => self.carry_out_next(),
            3 => self.answer(),
            4 => self.next_event(),
            5 | 6 => self.advance_run(),
            _ => self.end(),
        }
    }

    /// Takes the next action that the machine waits for; `None` if it waits for nothing.
    pub(super) fn serve_next(&mut self) -> Option<Update> {
        self.carry_out_next();
        loop {
            if let Some(update) = self.answer().or_else(|| self.next_event()) {
                return Some(update);
            }
            if !self.requests.is_empty() {
                self.carry_out_next();
            } else if self.run.as_ref().is_some_and(|run| run.is_stopped) {
                self.end();
            } else {
                return None;
            }
        }
    }

    /// Stops the run and the compaction, as the end of a connection does.
    pub(super) fn close(&mut self) {
        self.is_closed = true;
        while !self.requests.is_empty() {
            self.carry_out_next();
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

    fn next_event(&mut self) -> Option<Update> {
        self.events.pop_front().map(Update::Event)
    }

    fn carry_out_next(&mut self) -> Option<Update> {
        let (ticket, request) = self.requests.pop_front()?;
        let choice = self.choices.next();
        if let RegistryRequest::Session(_, SessionCommand::Compact { .. }) = &request
            && choice % 4 != 3
        {
            self.compacting = Some(ticket);
            return None;
        }
        let answer = self.answer_to(request, choice);
        self.answers.push((ticket, answer));
        None
    }

    fn answer_to(&mut self, request: RegistryRequest, choice: u8) -> Result<RegistryReply, SessionRefusal> {
        let unavailable = SessionRefusal::LogUnavailable { reason: "choice".to_owned() };
        // Watching never fails: the harness could not check a session that is not watched.
        let fails = choice % 8 == 7
            && !matches!(
                request,
                RegistryRequest::Watch { .. } | RegistryRequest::Session(_, SessionCommand::Stop { .. })
            );
        if fails {
            return Err(unavailable);
        }
        Ok(match request {
            RegistryRequest::Watch { session, .. } => {
                self.watched.push(session);
                RegistryReply::Watching { seen: Seq::START, head: Seq::START }
            }
            RegistryRequest::Create { .. } => RegistryReply::Created(self.new_id(SessionId::parse)),
            RegistryRequest::GetOverview(id) => RegistryReply::Overview(Box::new(self.overview(id))),
            RegistryRequest::GetTotals(_) => RegistryReply::Totals(SessionTotals::default()),
            RegistryRequest::Session(session, command) => return self.command(session, command),
            RegistryRequest::ReadFiles { paths, .. } => {
                RegistryReply::Files(paths.iter().map(|_| self.file()).collect())
            }
            RegistryRequest::Fetch { .. } => RegistryReply::Files(vec![self.file()]),
            RegistryRequest::StoreMedia(files) => {
                RegistryReply::Stored(files.into_iter().map(|file| self.stored(file)).collect())
            }
            RegistryRequest::DiscardMedia(_) => RegistryReply::Done,
            RegistryRequest::ReadMedia { ids, .. } => {
                let content = |_| (self.choices.next() % 4 != 3).then(|| b"%PDF-stored".to_vec());
                RegistryReply::Contents(ids.iter().map(content).collect())
            }
            RegistryRequest::Release(_) | RegistryRequest::DeleteIfUnused(_) => RegistryReply::Done,
            RegistryRequest::Fork { .. } | RegistryRequest::Unwatch(_) | RegistryRequest::Delete(_) => {
                panic!("no door with this backend submits {request:?}")
            }
        })
    }

    fn command(
        &mut self,
        session: SessionId,
        command: SessionCommand,
    ) -> Result<RegistryReply, SessionRefusal> {
        Ok(RegistryReply::Session(match command {
            SessionCommand::Send { when_busy: WhenBusy::Steer, .. } => match &self.run {
                Some(run) => SessionReply::Steered(run.id.clone()),
                None => return Err(SessionRefusal::NoActiveRun),
            },
            SessionCommand::Send { input, .. } => {
                if let Some(run) = &self.run {
                    return Err(SessionRefusal::Busy { active: run.id.clone() });
                }
                let id = self.new_id(RunId::parse);
                let (calls, open_inputs, children, is_stopped) = (Vec::new(), Vec::new(), Vec::new(), false);
                self.run = Some(Run { session, id: id.clone(), calls, open_inputs, children, is_stopped });
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
            SessionCommand::ChooseAgent(_) | SessionCommand::ChooseMode(_) => SessionReply::Done,
            SessionCommand::AnswerQuestion { question, .. } => {
                return Err(SessionRefusal::UnknownQuestion(question));
            }
            SessionCommand::Compact { .. } => {
                return Err(SessionRefusal::NotCompacted { reason: "choice".to_owned() });
            }
            SessionCommand::ClearQueue
            | SessionCommand::Unqueue(_)
            | SessionCommand::ClearHistory
            | SessionCommand::Rename { .. } => {
                panic!("no door with this backend submits {command:?}")
            }
        }))
    }

    fn end_compaction(&mut self, succeeds: bool) {
        let Some(ticket) = self.compacting.take() else { return };
        let (id, text) = (self.new_id(MessageId::parse), "sum".to_owned());
        let summary = Message { id, role: Role::User, text, media: Vec::new() };
        let answer = if succeeds {
            Ok(RegistryReply::Session(SessionReply::Compacted(summary)))
        } else {
            Err(SessionRefusal::NotCompacted { reason: "it was stopped".to_owned() })
        };
        self.answers.push((ticket, answer));
    }

    /// Adds one event or delta to the active run.
    fn advance_run(&mut self) -> Option<Update> {
        let run = self.run.as_ref()?;
        let (own, children, calls) = (run.id.clone(), run.children.clone(), run.calls.clone());
        let choice = self.choices.next();
        let mut run_ids: Vec<RunId> = vec![own.clone()];
        run_ids.extend(children.iter().cloned());
        let run_id = self.choices.index(run_ids.len()).map_or(own.clone(), |index| run_ids[index].clone());
        let text = ["a", "\u{e4}\u{1f600}", "\n\"", ""][usize::from(choice >> 6)].to_owned();
        match choice % 11 {
            0 => self.delta(run_id, StreamKind::Message(self.fixed_id(MessageId::parse)), text),
            1 => self.delta(run_id, StreamKind::Reasoning(self.fixed_id(StepId::parse)), text),
            2 => self.delta(run_id, StreamKind::ToolOutput(self.fixed_id(ToolCallId::parse)), text),
            3 => {
                let open_call = self.run.as_mut()?.open_inputs.pop().filter(|_| choice.is_multiple_of(2));
                let (run_id, call) = open_call.unwrap_or_else(|| (run_id, self.new_id(ToolCallId::parse)));
                let step = self.fixed_id(StepId::parse);
                let input = ["{}", "{\"a\":[1]}", "no json", ""][usize::from(choice >> 6)].to_owned();
                self.run.as_mut()?.calls.push((run_id.clone(), call.clone()));
                self.record(
                    run_id,
                    RunEvent::Tool(ToolEvent::Called { step, call, tool: "shell".to_owned(), input }),
                );
            }
            4 | 5 => {
                let (run_id, call) = calls.get(self.choices.index(calls.len())?)?.clone();
                self.run.as_mut()?.calls.retain(|(_, open)| *open != call);
                let event = if choice % 11 == 4 {
                    RunEvent::Tool(ToolEvent::Completed { call, output: text, details: None, duration_ms: 1 })
                } else {
                    RunEvent::Tool(ToolEvent::Failed { call, failure: failure(&text), duration_ms: 1 })
                };
                self.record(run_id, event);
            }
            6 => {
                let child = self.new_id(RunId::parse);
                self.run.as_mut()?.children.push(child.clone());
                let (name, task) = ("worker".to_owned(), text.repeat(100));
                self.record(
                    run_id.clone(),
                    RunEvent::Subagent(SubagentEvent::Started { child: child.clone(), name, task }),
                );
                self.start(child, Some(run_id), UserInput::default());
            }
            7 => {
                let child = children.get(self.choices.index(children.len())?)?.clone();
                self.record(own, RunEvent::Subagent(SubagentEvent::Updated { child, status: text }));
            }
            8 => {
                let child = children.get(self.choices.index(children.len())?)?.clone();
                let result = if choice > 127 { Ok("Error: none".to_owned()) } else { Err(failure(&text)) };
                self.run.as_mut()?.children.retain(|open| *open != child);
                self.run.as_mut()?.open_inputs.retain(|(of, _)| *of != child);
                self.record(child.clone(), ended(RunEnding::Completed { message: None }));
                self.record(
                    own,
                    RunEvent::Subagent(SubagentEvent::Done { child, result, duration_ms: choice.into() }),
                );
            }
            9 => {
                let open_call =
                    self.run.as_ref()?.open_inputs.first().cloned().filter(|_| choice.is_multiple_of(2));
                let (run_id, call) = open_call.unwrap_or_else(|| (run_id, self.new_id(ToolCallId::parse)));
                let open_inputs = &mut self.run.as_mut()?.open_inputs;
                if !open_inputs.contains(&(run_id.clone(), call.clone())) {
                    open_inputs.push((run_id.clone(), call.clone()));
                }
                self.delta(run_id, StreamKind::ToolInput { call, tool: "shell".to_owned() }, text);
            }
            _ => {
                self.run.as_mut()?.open_inputs.retain(|(of, _)| *of != run_id);
                let usage =
                    Usage { input_tokens: choice.into(), output_tokens: u64::MAX, ..Usage::default() };
                let model = (choice > 127).then(|| "m".to_owned());
                self.record(run_id.clone(), RunEvent::UsageAdded { usage, model });
                let (step, kind) = (self.fixed_id(StepId::parse), StepKind::Planning);
                self.record(run_id, RunEvent::Step(StepEvent::Started { step, kind, title: String::new() }));
            }
        }
        None
    }

    /// Ends the active run and the compaction.
    fn end(&mut self) -> Option<Update> {
        let choice = self.choices.next();
        self.end_compaction(choice < 128);
        let run = self.run.take()?;
        let message = self.new_id(MessageId::parse);
        let ending = match choice % 4 {
            _ if run.is_stopped => RunEnding::Stopped { cause: StopCause::Shutdown, message },
            0 | 1 => RunEnding::Completed { message: None },
            _ => RunEnding::Failed(failure("choice")),
        };
        self.push_event(&run.session, SessionEvent::Run { run: run.id, sequence: 1, event: ended(ending) });
        None
    }

    fn start(&mut self, run: RunId, parent: Option<RunId>, input: UserInput) {
        let model = (self.choices.next() % 2 == 1).then(|| "chosen".to_owned());
        let (agent, message) = (self.fixed_id(AgentId::parse), self.new_id(MessageId::parse));
        let missing_agent = (self.choices.next() % 4 == 1).then(|| self.fixed_id(AgentId::parse));
        self.record(run, RunEvent::Started { parent, agent, model, missing_agent, input, message });
    }

    fn record(&mut self, run: RunId, event: RunEvent) {
        if let Some(session) = self.run.as_ref().map(|run| run.session.clone()) {
            self.push_event(&session, SessionEvent::Run { run, sequence: 1, event });
        }
    }

    fn push_event(&mut self, session: &SessionId, event: SessionEvent) {
        let (seq, at) = (Seq(u64::from(self.id_counter)), Timestamp(0));
        let entry = Entry { seq, id: self.fixed_id(EventId::parse), at, event };
        self.push_update(session.clone(), SessionUpdate::Entry(Arc::new(entry)));
    }

    fn delta(&mut self, run: RunId, stream: StreamKind, text: String) {
        if let Some(session) = self.run.as_ref().map(|run| run.session.clone()) {
            self.push_update(session, SessionUpdate::Delta { run, stream, text });
        }
    }

    fn push_update(&mut self, session: SessionId, update: SessionUpdate) {
        assert!(self.watched.contains(&session), "{session} has a run and is not watched");
        self.events.push_back(RegistryEvent { session, update });
    }

    fn overview(&mut self, id: SessionId) -> SessionOverview {
        let choice = self.choices.next();
        let file = NamedFile { name: "f".to_owned(), bytes: Vec::new() };
        let media = if choice & 1 == 1 { vec![self.stored(file)] } else { Vec::new() };
        let message = |role, media| {
            let (id, text) = (MessageId::parse("m").expect("a short text"), "\u{e4}".to_owned());
            HistoryItem::Message(Message { id, role, text, media })
        };
        let tool_use = HistoryItem::ToolUse(ToolUse {
            call: self.fixed_id(ToolCallId::parse),
            tool: "shell".to_owned(),
            input: "no json".to_owned(),
            result: (choice & 2 == 2).then(|| Err(failure("no"))),
        });
        let unfinished = HistoryItem::UnfinishedRun { input: None, ending: RunEnding::Failed(failure("no")) };
        let mut history =
            vec![message(Role::User, media), message(Role::Assistant, Vec::new()), tool_use, unfinished];
        history.truncate(usize::from(choice >> 5));
        let (queue, active) = (Vec::new(), self.run.as_ref().map(|run| run.id.clone()));
        let (choice, usage) = (AgentChoice::default(), Usage { cost_micros: u64::MAX, ..Usage::default() });
        let (head, title, mode, question) = (Seq::START, None, None, None);
        SessionOverview { id, head, title, choice, history, usage, queue, active, mode, question }
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
        let (id, size) = (self.new_id(MediaId::parse), file.bytes.len() as u64);
        Media { id, name: file.name, mime: "text/plain".to_owned(), size }
    }

    /// A new id.
    fn new_id<T, E: std::fmt::Debug>(&mut self, parse: impl Fn(&str) -> Result<T, E>) -> T {
        self.id_counter += 1;
        parse(&format!("n{}", self.id_counter)).expect("a short text")
    }

    /// An id that is the same in every call.
    fn fixed_id<T, E: std::fmt::Debug>(&self, parse: impl Fn(&str) -> Result<T, E>) -> T {
        parse("same").expect("a short text")
    }
}

/// The parameters of a new session.
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
    Failure { code: "CHOICE".into(), message: text.to_owned(), retryable: false }
}

fn ended(ending: RunEnding) -> RunEvent {
    RunEvent::Ended { ending, duration_ms: 1 }
}
