//! The state machine of one server: it carries out requests concurrently, decides what it waits for when the client closes
//! its input, and sends `state.changed`. `dispatch.rs` routes the requests.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use parlor_vocab::{
    Clock, FrontendEvent, FrontendReply, FrontendRequest, IdSource, RegistryReply, Sender, SessionId,
    SessionRefusal, Timestamp,
};
use serde_json::{Value, json};

use super::chat::Chat;
use super::code::{self, FrameError};
use super::decode::{self, Line};
use super::extension_methods::ReplayBuffer;
use super::pending::{Pending, ReplyTo, TurnKey};
use super::session_events::OrphanedTurn;
use super::state::State;
use super::text::uuid;
use super::{DOOR, MAX_LINE_BYTES, MAX_PENDING_REQUESTS, ServerParams, encode};
use crate::lines::Lines;
use crate::{Input, InputOf, Machine, Output, Ticket};

/// The server's side of the connection.
pub struct LoafMachine {
    pub(super) state: State,
    pub(super) chats: HashMap<String, Chat>,
    /// The ids of the sessions, in the order of their creation.
    pub(super) order: Vec<String>,
    /// The running turns, by their sessions of the engine.
    pub(super) running_turns: HashMap<SessionId, TurnKey>,
    /// Sessions that are watched between turns, for the turns of other clients. The one that was used longest ago is the
    /// first.
    pub(super) idle_watches: VecDeque<SessionId>,
    /// Turns that were taken out of their chats, until their runs have ended.
    pub(super) orphans: HashMap<SessionId, OrphanedTurn>,
    /// The number of running logins.
    pub(super) active_logins: usize,
    /// The server is shutting down and starts nothing new.
    pub(super) is_closing: bool,
    pub(super) out: Outgoing,
}

/// The outgoing side of the machine: lines for the client and requests to the backend.
pub(super) struct Outgoing {
    clock: Arc<dyn Clock>,
    ids: Arc<dyn IdSource>,
    outbox: VecDeque<Output<FrontendRequest>>,
    pending: HashMap<Ticket, Pending>,
    next_ticket: u64,
    /// The number of messages so far, in all sessions. Message ids come from this.
    pub(super) messages: u64,
    /// Whether the client has enabled the additional members of events in `rpc.handshake`.
    pub(super) extensions: bool,
    /// The name that the client gave itself in `rpc.handshake`.
    pub(super) client_name: Option<String>,
    pub(super) replay: ReplayBuffer,
}

impl LoafMachine {
    /// A new server without sessions.
    pub fn new(params: ServerParams) -> Self {
        Self {
            out: Outgoing {
                clock: Arc::clone(&params.clock),
                ids: Arc::clone(&params.ids),
                outbox: VecDeque::new(),
                pending: HashMap::new(),
                next_ticket: 0,
                messages: 0,
                extensions: false,
                client_name: None,
                replay: ReplayBuffer::default(),
            },
            state: State::new(params),
            chats: HashMap::new(),
            order: Vec::new(),
            running_turns: HashMap::new(),
            idle_watches: VecDeque::new(),
            orphans: HashMap::new(),
            active_logins: 0,
            is_closing: false,
        }
    }
}

impl Machine for LoafMachine {
    type Request = FrontendRequest;
    type Reply = FrontendReply;
    type Event = FrontendEvent;
    type Error = SessionRefusal;

    fn handle(&mut self, _now: Instant, input: InputOf<'_, Self>) {
        match input {
            Input::Frame(line) => self.on_frame(&String::from_utf8_lossy(line)),
            Input::Oversize { .. } => self.out.send_error("null", &code::too_large()),
            Input::Answer(ticket, answer) => {
                if let Some(pending) = self.out.pending.remove(&ticket) {
                    self.on_answer(pending, answer);
                }
            }
            Input::Event(event) => self.on_event(event),
            Input::Deadline => {}
        }
    }

    fn poll(&mut self) -> Option<Output<FrontendRequest>> {
        self.out.outbox.pop_front()
    }

    fn wants_frame(&self) -> bool {
        self.out.pending_quick_requests() < MAX_PENDING_REQUESTS && !self.is_closing
    }

    fn has_answered_all(&self) -> bool {
        self.out.pending_quick_requests() == 0
    }

    fn has_work_in_progress(&self) -> bool {
        !self.out.pending.is_empty()
    }

    fn max_line_bytes(&self) -> usize {
        MAX_LINE_BYTES
    }

    fn lines(&self) -> Lines {
        Lines::new(MAX_LINE_BYTES).ending_at_return()
    }
}

impl LoafMachine {
    fn on_frame(&mut self, line: &str) {
        if self.is_closing {
            return;
        }
        match decode::decode(line) {
            Ok(Line::Ignored) => {}
            Ok(Line::Request(request)) => self.on_request(&request),
            Err(error) => self.out.send_error("null", &error),
        }
    }

    /// Sends `state.changed`: something that all sessions share has changed.
    pub(super) fn send_state_changed(&mut self, reason: &str, session: Option<&str>) {
        let mut payload = json!({"reason": reason, "snapshot": self.state.snapshot(&self.order)});
        if let Some(session) = session {
            payload["session_id"] = Value::from(session);
        }
        self.out.send_event("state.changed", &payload);
    }

    /// The session with this id.
    pub(super) fn chat(&mut self, id: &str) -> Result<&mut Chat, FrameError> {
        self.chats.get_mut(id).ok_or_else(|| code::unknown_session(id))
    }
}

impl Outgoing {
    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// A new UUID, the form of id that clients expect.
    pub(super) fn new_id(&self) -> String {
        uuid(self.ids.next())
    }

    /// Who sends the inputs of this connection.
    pub(super) fn sender(&self) -> Sender {
        Sender { client: self.client_name.clone(), ..Sender::at(DOOR) }
    }

    /// Sends an event, and stores it for `events.replay`.
    pub(super) fn send_event(&mut self, kind: &str, payload: &Value) {
        let event = encode::event_params(kind, self.now().rfc3339(), payload);
        let session = payload.get("session_id").and_then(Value::as_str);
        let sequence = self.replay.push(&event, session);
        let frame = encode::event_frame(&event, self.extensions.then_some(sequence));
        self.outbox.push_back(Output::Send(frame));
    }

    /// Sends the successful answer to a request.
    pub(super) fn send_result(&mut self, reply_to: &ReplyTo, result: Value) {
        let result =
            if reply_to.is_command_output { json!({"handled": true, "output": result}) } else { result };
        self.outbox.push_back(Output::Send(encode::result(&reply_to.id, &result)));
    }

    /// Sends an answer without building a JSON tree of it. Not for the output of commands.
    pub(super) fn send_serialized(&mut self, reply_to: &ReplyTo, result: &impl serde::Serialize) {
        self.outbox.push_back(Output::Send(encode::result(&reply_to.id, result)));
    }

    /// Sends the error that answers a request.
    pub(super) fn send_error(&mut self, id: &str, error: &FrameError) {
        self.outbox.push_back(Output::Send(encode::error(id, error)));
    }

    /// Submits a request to the backend.
    pub(super) fn submit(&mut self, request: FrontendRequest, pending: Pending) {
        self.next_ticket += 1;
        let ticket = Ticket(self.next_ticket);
        self.pending.insert(ticket, pending);
        self.outbox.push_back(Output::Request(ticket, request));
    }

    /// Closes the connection.
    pub(super) fn close(&mut self) {
        self.outbox.push_back(Output::Close);
    }

    /// The number of pending requests, except those that may take minutes.
    fn pending_quick_requests(&self) -> usize {
        let is_quick = |pending: &&Pending| !matches!(pending, Pending::Login(..) | Pending::Summary(_));
        self.pending.values().filter(is_quick).count()
    }
}

/// The registry's reply in an answer; an error if the answer is of another kind.
pub(super) fn registry_reply(
    answer: Result<FrontendReply, SessionRefusal>,
) -> Result<RegistryReply, SessionRefusal> {
    if let FrontendReply::Registry(reply) = answer? { Ok(reply) } else { Err(unexpected()) }
}

/// The refusal for an answer of the wrong kind, which would be a bug of the backend.
fn unexpected() -> SessionRefusal {
    SessionRefusal::LogUnavailable { reason: "unexpected reply of the frontend backend".to_owned() }
}

/// The error for an answer that is a refusal, a failure or of the wrong kind.
pub(super) fn answer_error(answer: Result<FrontendReply, SessionRefusal>) -> FrameError {
    match answer {
        Ok(FrontendReply::Failed(reason)) => code::not_done(&reason),
        Ok(_) => code::refused(&unexpected()),
        Err(refusal) => code::refused(&refusal),
    }
}
