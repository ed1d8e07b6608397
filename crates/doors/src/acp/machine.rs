//! The state machine of one connection. `dispatch` routes requests, answers and events; the files beside it carry them
//! out.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use agent_client_protocol_schema::v1::{Error, PromptResponse, RequestId};
use parlor_vocab::{
    FrontendEvent, FrontendReply, FrontendRequest, RegistryReply, RegistryRequest, Sender, SessionCommand,
    SessionId, SessionRefusal, UserInput,
};
use serde::Serialize;

use super::open_session::{Effect, EndingKind, Gates, OpenSession};
use super::params::AcpParams;
use super::pending::{Deletion, Pending};
use super::permission::AskedQuestion;
use super::updates::Context;
use super::{DOOR, MAX_FRAME_BYTES, MAX_PENDING, code, encode};
use crate::{Input, InputOf, Machine, Output, Ticket};

/// How long the door waits before it tries again to delete a session whose run has been told to stop.
pub(super) const DELETE_RETRY: Duration = Duration::from_millis(50);

/// The server's side of a connection.
pub struct AcpMachine {
    pub(super) params: AcpParams,
    pub(super) is_initialized: bool,
    pub(super) gates: Gates,
    /// The name that the client gave itself.
    pub(super) client: Option<String>,
    pub(super) sessions: HashMap<SessionId, OpenSession>,
    /// Requests of this door that the client has not answered: the login that each of them is for.
    pub(super) asked: HashMap<i64, AskedLogin>,
    /// Questions that the client has not answered, by the number of their request.
    pub(super) questions: HashMap<i64, AskedQuestion>,
    pub(super) next_asked: i64,
    /// Sessions to delete once their runs have stopped, and when to try again.
    pub(super) deletions: Vec<(Instant, Deletion)>,
    next_key: u64,
    pub(super) out: Outgoing,
}

/// A request to the client to open an address for a login.
#[derive(Debug)]
pub(super) struct AskedLogin {
    /// The client's `authenticate`.
    pub(super) request: RequestId,
    pub(super) provider: String,
    pub(super) elicitation: String,
}

/// The outgoing side of the machine: frames for the client and requests to the backend.
#[derive(Default)]
pub(super) struct Outgoing {
    outbox: VecDeque<Output<FrontendRequest>>,
    pub(super) pending: HashMap<Ticket, Pending>,
    next_ticket: u64,
}

impl AcpMachine {
    /// A connection on which nothing has been said.
    pub fn new(params: AcpParams) -> Self {
        Self {
            params,
            is_initialized: false,
            gates: Gates::default(),
            client: None,
            sessions: HashMap::new(),
            asked: HashMap::new(),
            questions: HashMap::new(),
            next_asked: 0,
            deletions: Vec::new(),
            next_key: 0,
            out: Outgoing::default(),
        }
    }
}

impl Machine for AcpMachine {
    type Request = FrontendRequest;
    type Reply = FrontendReply;
    type Event = FrontendEvent;
    type Error = SessionRefusal;

    fn handle(&mut self, now: Instant, input: InputOf<'_, Self>) {
        match input {
            Input::Frame(frame) => self.on_frame(now, frame),
            Input::Oversize { .. } => self.out.error(&RequestId::Null, &code::oversize()),
            Input::Answer(ticket, answer) => {
                if let Some(pending) = self.out.pending.remove(&ticket) {
                    self.on_answer(now, pending, answer);
                }
            }
            Input::Event(event) => self.on_event(now, event),
            Input::Deadline => self.on_deadline(now),
        }
    }

    fn poll(&mut self) -> Option<Output<FrontendRequest>> {
        let output = self.out.outbox.pop_front();
        if output.is_none() {
            // Frees the buffer, which a long history may have made large.
            self.out.outbox = VecDeque::new();
        }
        output
    }

    fn wants_frame(&self) -> bool {
        self.out.quick_requests() < MAX_PENDING
    }

    fn has_answered_all(&self) -> bool {
        self.out.quick_requests() == 0
            && self.deletions.is_empty()
            && self.sessions.values().all(|session| session.opening.is_none() && session.ending.is_none())
    }

    fn has_work_in_progress(&self) -> bool {
        self.out.quick_requests() > 0
    }

    fn max_line_bytes(&self) -> usize {
        MAX_FRAME_BYTES
    }
}

impl AcpMachine {
    /// Lets `change` act on an open session, and sends what it makes to send. `None` if the session is not open.
    pub(super) fn with_session<T>(
        &mut self,
        now: Instant,
        id: &SessionId,
        change: impl FnOnce(&mut OpenSession, &Context<'_>, &mut Vec<Effect>) -> T,
    ) -> Option<T> {
        let session = self.sessions.get_mut(id)?;
        let context = Context { params: &self.params, gates: self.gates, now };
        let mut effects = Vec::new();
        let result = change(session, &context, &mut effects);
        let (due, stops) = (session.next_output_at(), session.take_stops(id));
        for effect in effects {
            match effect {
                Effect::Update(update) => self.out.send(encode::update(id.as_str(), *update)),
                Effect::Ask(question) => self.ask(id, &question),
                Effect::Settled(question) => self.take_back(&question),
                Effect::Answer(request, Ok(reason)) => {
                    self.out.result(&request, &PromptResponse::new(reason))
                }
                Effect::Answer(request, Err(error)) => self.out.error(&request, &error),
            }
        }
        for stop in stops {
            self.out.submit(stop, Pending::Ignored);
        }
        if let Some(due) = due {
            self.wake_at(due);
        }
        self.end_if_ready(id);
        Some(result)
    }

    /// Leaves or deletes a session that the client has closed, once all of its prompts are answered.
    fn end_if_ready(&mut self, id: &SessionId) {
        let is_ready = |session: &OpenSession| session.prompts.is_empty() && session.ending.is_some();
        if !self.sessions.get(id).is_some_and(is_ready) {
            return;
        }
        let Some((request, kind)) = self.sessions.remove(id).and_then(|session| session.ending) else {
            return;
        };
        // Questions of other clients' runs stay with those clients, and with this one if it opens the session again.
        self.take_back_all(id);
        let leave = RegistryRequest::Release(id.clone());
        match kind {
            EndingKind::Close => self.out.registry(leave, Pending::Release(request)),
            EndingKind::Delete => {
                self.out.registry(leave, Pending::Ignored);
                self.delete(Deletion { id: request, session: id.clone(), refusals: 0 });
            }
        }
    }

    fn on_deadline(&mut self, now: Instant) {
        let is_due = |at: Instant| at <= now;
        let due = self.deletions.extract_if(.., |(at, _)| is_due(*at)).map(|(_, deletion)| deletion);
        for deletion in due.collect::<Vec<_>>() {
            self.delete(deletion);
        }
        let ids: Vec<SessionId> = self.sessions.keys().cloned().collect();
        for id in ids {
            self.with_session(now, &id, |session, _, effects| session.show_outputs(now, effects));
        }
        if let Some(next) = self.deletions.iter().map(|(at, _)| *at).min() {
            self.wake_at(next);
        }
    }

    /// Makes the driver call back at the earliest moment that anything waits for.
    pub(super) fn wake_at(&mut self, at: Instant) {
        let outputs = self.sessions.values().filter_map(OpenSession::next_output_at);
        let deletions = self.deletions.iter().map(|(at, _)| *at);
        let earliest = outputs.chain(deletions).fold(at, Instant::min);
        self.out.outbox.push_back(Output::WakeAt(earliest));
    }

    /// A key for an input of this connection.
    pub(super) fn new_key(&mut self) -> String {
        self.next_key += 1;
        format!("{}-{}", self.params.key_prefix, self.next_key)
    }

    /// An input of this client.
    pub(super) fn input(&mut self, text: String, traceparent: Option<String>) -> UserInput {
        UserInput {
            text,
            key: Some(self.new_key()),
            traceparent,
            by: Some(Sender { client: self.client.clone(), ..Sender::at(DOOR) }),
            can_answer: true,
            is_attended: true,
            ..UserInput::default()
        }
    }

    /// The open session that the client names.
    pub(super) fn open_session(&self, id: &str) -> Result<SessionId, Error> {
        let session = SessionId::parse(id).ok().filter(|session| self.sessions.contains_key(session));
        session.ok_or_else(|| code::unknown_session(id))
    }
}

impl Outgoing {
    pub(super) fn send(&mut self, frame: Vec<u8>) {
        self.outbox.push_back(Output::Send(frame));
    }

    /// Answers request `id`.
    pub(super) fn result(&mut self, id: &RequestId, result: &impl Serialize) {
        self.send(encode::result(id, result));
    }

    /// Answers request `id` with an error.
    pub(super) fn error(&mut self, id: &RequestId, error: &Error) {
        self.send(encode::error(id, error));
    }

    /// Submits a request to the backend.
    pub(super) fn submit(&mut self, request: FrontendRequest, pending: Pending) {
        self.next_ticket += 1;
        let ticket = Ticket(self.next_ticket);
        self.pending.insert(ticket, pending);
        self.outbox.push_back(Output::Request(ticket, request));
    }

    /// Submits a request to the session registry.
    pub(super) fn registry(&mut self, request: RegistryRequest, pending: Pending) {
        self.submit(FrontendRequest::Registry(request), pending);
    }

    /// Sends a command to a session.
    pub(super) fn command(&mut self, session: &SessionId, command: SessionCommand, pending: Pending) {
        self.registry(RegistryRequest::Session(session.clone(), command), pending);
    }

    /// Whether MCP servers of the session are starting.
    pub(super) fn starts_servers_of(&self, session: &SessionId) -> bool {
        self.pending.values().any(|pending| matches!(pending, Pending::UseServers(of, _) if of == session))
    }

    /// How many requests to the backend are pending, without those that may take seconds or minutes: logins and the start of
    /// MCP servers.
    fn quick_requests(&self) -> usize {
        let is_slow = |pending: &Pending| matches!(pending, Pending::Login(..) | Pending::UseServers(..));
        self.pending.values().filter(|pending| !is_slow(pending)).count()
    }
}

/// The registry's reply in an answer.
pub(super) fn registry_reply(answer: Answer) -> Result<RegistryReply, Error> {
    match answer {
        Ok(FrontendReply::Registry(reply)) => Ok(reply),
        other => Err(answer_error(other)),
    }
}

/// The error for an answer that is a refusal, a failure or of the wrong kind.
pub(super) fn answer_error(answer: Answer) -> Error {
    match answer {
        Ok(FrontendReply::Failed(reason)) => code::internal(&reason),
        Ok(_) => code::refused(&SessionRefusal::Internal),
        Err(refusal) => code::refused(&refusal),
    }
}

/// The backend's answer to a request.
pub(super) type Answer = Result<FrontendReply, SessionRefusal>;
