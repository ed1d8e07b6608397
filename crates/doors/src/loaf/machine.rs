//! One server: requests go in, and are carried out side by side.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use parlor_vocab::{
    Clock, FrontendEvent, FrontendReply, FrontendRequest, IdSource, RegistryReply, SessionId, SessionRefusal,
    Timestamp,
};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::chat::Chat;
use super::code::{self, FrameError};
use super::envelope::{self, Line, Request};
use super::extras::Replay;
use super::pending::{Pending, Place, To};
use super::state::State;
use super::text::uuid;
use super::watch::Dropped;
use super::{MAX_ASKED, MAX_LINE_BYTES, Server, frame};
use crate::lines::Lines;
use crate::{Input, InputOf, Machine, Output, Ticket};

/// The server's side of the connection.
pub struct LoafMachine {
    pub(super) state: State,
    pub(super) chats: HashMap<String, Chat>,
    /// The sessions in the order of their creation.
    pub(super) order: Vec<String>,
    /// Which turn is at work in which session of the engine.
    pub(super) running: HashMap<SessionId, Place>,
    /// Turns that nobody hears of any more, until they have ended.
    pub(super) dropped: HashMap<SessionId, Dropped>,
    /// How many logins are under way.
    pub(super) logins: usize,
    /// The server is ending: nothing more is begun.
    pub(super) is_closing: bool,
    pub(super) out: Out,
}

/// The way out of the machine: lines for the client and questions to the office.
pub(super) struct Out {
    clock: Arc<dyn Clock>,
    ids: Arc<dyn IdSource>,
    outbox: VecDeque<Output<FrontendRequest>>,
    pending: HashMap<Ticket, Pending>,
    next_ticket: u64,
    /// How many messages were shown, in all sessions.
    pub(super) messages: u64,
    /// Whether the client wants more in events than others know.
    pub(super) extensions: bool,
    pub(super) replay: Replay,
}

impl LoafMachine {
    /// A server of which the client has heard nothing yet.
    pub fn new(server: Server) -> Self {
        Self {
            out: Out {
                clock: Arc::clone(&server.clock),
                ids: Arc::clone(&server.ids),
                outbox: VecDeque::new(),
                pending: HashMap::new(),
                next_ticket: 0,
                messages: 0,
                extensions: false,
                replay: Replay::default(),
            },
            state: State::new(server),
            chats: HashMap::new(),
            order: Vec::new(),
            running: HashMap::new(),
            dropped: HashMap::new(),
            logins: 0,
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
            Input::Frame(line) => self.on_line(&String::from_utf8_lossy(line)),
            Input::Oversize { .. } => self.out.refuse("null", &code::too_large()),
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
        self.out.questions() < MAX_ASKED && !self.is_closing
    }

    fn is_settled(&self) -> bool {
        self.out.questions() == 0
    }

    fn is_at_work(&self) -> bool {
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
    fn on_line(&mut self, line: &str) {
        if self.is_closing {
            return;
        }
        match envelope::read(line) {
            Ok(Line::Nothing) => {}
            Ok(Line::Request(request)) => self.on_request(&request),
            Err(flaw) => self.out.refuse("null", &flaw),
        }
    }

    fn on_request(&mut self, request: &Request<'_>) {
        let to = To { id: request.id.into(), is_output: false };
        if let Err(flaw) = self.dispatch(&to, &request.method, request.params) {
            self.out.refuse(&to.id, &flaw);
        }
    }

    fn dispatch(&mut self, to: &To, method: &str, params: Option<&RawValue>) -> Result<(), FrameError> {
        match method {
            "system.ping" => self.ping(to),
            "rpc.handshake" => self.handshake(to, params)?,
            "system.shutdown" => self.shutdown(to, params)?,
            "state.get" => self.tell_state(to),
            "debug.set" => self.set_debug(to, params)?,
            "auth.status" => self.ask_logins(to),
            "auth.connect.openai" => self.connect_openai(to, params)?,
            "auth.connect.antigravity" => {
                self.connect(to, "antigravity", parlor_vocab::LoginMethod::Browser, None)?
            }
            "auth.set.openrouter_key" => self.set_router_key(to, params)?,
            "auth.set.exa_key" => self.set_exa_key(to, params)?,
            "onboarding.status" => self.out.answer(to, json!({"completed": self.state.kept.setup_done})),
            "onboarding.complete" => self.complete_onboarding(to),
            "model.list" => self.list_models(to, params)?,
            "model.select" => self.select_model(to, params)?,
            "model.openrouter.providers" => self.list_routes(to, params)?,
            "limits.get" => self.tell_limits(to)?,
            "skills.list" => self.ask_skills(to),
            "tools.list" => self.tell_tools(to),
            "session.create" => self.create_session(to, params)?,
            "session.get" => self.get_session(to, params)?,
            "session.send" => self.send(to, params)?,
            "session.steer" => self.steer(to, params)?,
            "session.interrupt" => self.interrupt(to, params)?,
            "session.queue.list" => self.list_queue(to, params)?,
            "session.queue.clear" => self.clear_queue(to, params)?,
            "history.list" => self.list_history(to, params)?,
            "history.get" => self.get_history(to, params)?,
            "history.clear_session" => self.clear_session(to, params)?,
            "command.execute" => self.execute(to, params)?,
            "session.list" => self.list_sessions(to),
            "session.close" => self.close_session(to, params)?,
            "session.rename" => self.rename_session(to, params)?,
            "auth.cancel" => self.cancel_login(to, params)?,
            "auth.logout" => self.log_out(to, params)?,
            "events.replay" => self.replay_events(to, params)?,
            other => return Err(code::no_method(other)),
        }
        Ok(())
    }

    fn on_answer(&mut self, pending: Pending, answer: Result<FrontendReply, SessionRefusal>) {
        match pending {
            Pending::Nothing => {}
            Pending::Turn(place, step) => self.on_turn_step(&place, step, answer),
            Pending::Steer(to, place) => self.on_steered(&to, &place, answer),
            Pending::Summary(place) => self.on_summary(&place, answer),
            Pending::Login(to, provider) => self.on_logged_in(&to, provider, answer),
            Pending::Kept(to, then) => self.on_kept(&to, then, answer),
            Pending::Models(to, filter) => self.on_models(&to, filter.as_deref(), answer),
            Pending::Select(to, selecting) => self.on_offers(&to, selecting, answer),
            Pending::Refresh => self.on_refreshed(answer),
            Pending::Routes(to, model) => self.on_routes(&to, &model, answer),
            Pending::Logins(to) => self.on_logins(&to, answer),
            Pending::SetKey(to, service) => self.on_key_set(&to, service, answer),
            Pending::Cancel(to) => self.on_cancelled(&to, answer),
            Pending::Logout(to, provider) => self.on_logged_out(&to, provider, answer),
            Pending::Forget(to, chat) => self.on_forgotten(&to, &chat, answer),
            Pending::Chats(to, cursor, limit) => self.on_chats(&to, cursor, limit, answer),
            Pending::Chat(to, why) => self.on_chat(&to, why, answer),
            Pending::ChatMedia(to, why, chat, ids) => self.on_chat_media(&to, why, *chat, ids, answer),
            Pending::Skills(to) => self.on_skills(&to, answer),
            Pending::Rename(to, chat) => self.on_renamed(&to, &chat, answer),
        }
    }

    fn on_event(&mut self, event: &FrontendEvent) {
        match event {
            FrontendEvent::Registry(event) => self.on_seen(event),
            FrontendEvent::Login { provider, step } => self.on_login_step(provider, step),
            FrontendEvent::Ending(signal) => self.on_signal(*signal),
        }
    }

    /// Tells that something changed that all sessions share.
    pub(super) fn changed(&mut self, reason: &str, session: Option<&str>) {
        let mut payload = json!({"reason": reason, "snapshot": self.state.snapshot(&self.order)});
        if let Some(session) = session {
            payload["session_id"] = Value::from(session);
        }
        self.out.event("state.changed", &payload);
    }

    /// The session of this id.
    pub(super) fn chat(&mut self, id: &str) -> Result<&mut Chat, FrameError> {
        self.chats.get_mut(id).ok_or_else(|| code::unknown_session(id))
    }
}

impl Out {
    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// A new id, of the form that clients expect.
    pub(super) fn id(&self) -> String {
        uuid(self.ids.next())
    }

    /// Tells what happened.
    pub(super) fn event(&mut self, kind: &str, payload: &Value) {
        let event = frame::event(kind, self.now().rfc3339(), payload);
        let session = payload.get("session_id").and_then(Value::as_str);
        let sequence = self.replay.keep(&event, session);
        let frame = frame::told(&event, self.extensions.then_some(sequence));
        self.outbox.push_back(Output::Send(frame));
    }

    /// Answers a request.
    pub(super) fn answer(&mut self, to: &To, result: Value) {
        let result = if to.is_output { json!({"handled": true, "output": result}) } else { result };
        self.outbox.push_back(Output::Send(frame::result(&to.id, &result)));
    }

    /// Answers a request with what is spelled already.
    pub(super) fn answer_raw(&mut self, to: &To, result: &impl serde::Serialize) {
        self.outbox.push_back(Output::Send(frame::result(&to.id, result)));
    }

    /// Turns a request down.
    pub(super) fn refuse(&mut self, id: &str, flaw: &FrameError) {
        self.outbox.push_back(Output::Send(frame::error(id, flaw)));
    }

    /// Puts a question to the office.
    pub(super) fn ask(&mut self, command: FrontendRequest, pending: Pending) {
        self.next_ticket += 1;
        let ticket = Ticket(self.next_ticket);
        self.pending.insert(ticket, pending);
        self.outbox.push_back(Output::Request(ticket, command));
    }

    /// Ends the connection.
    pub(super) fn close(&mut self) {
        self.outbox.push_back(Output::Close);
    }

    /// How many questions are open, but for those that may take minutes.
    fn questions(&self) -> usize {
        let is_quick = |pending: &&Pending| !matches!(pending, Pending::Login(..) | Pending::Summary(_));
        self.pending.values().filter(is_quick).count()
    }
}

/// What the house says, if it is the house that speaks.
pub(super) fn of_house(
    answer: Result<FrontendReply, SessionRefusal>,
) -> Result<RegistryReply, SessionRefusal> {
    if let FrontendReply::Registry(reply) = answer? { Ok(reply) } else { Err(unexpected()) }
}

/// An answer to another question.
fn unexpected() -> SessionRefusal {
    SessionRefusal::LogUnavailable { reason: "that was answered in other words".to_owned() }
}

/// The flaw of an answer that is none.
pub(super) fn flaw_of(answer: Result<FrontendReply, SessionRefusal>) -> FrameError {
    match answer {
        Ok(FrontendReply::Failed(why)) => code::not_done(&why),
        Ok(_) => code::refused(&unexpected()),
        Err(refusal) => code::refused(&refusal),
    }
}
