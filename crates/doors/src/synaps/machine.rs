//! One child: commands one after another, and one turn at a time beside them.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::time::Instant;

use parlor_vocab::{
    AgentChoice, AgentId, NewSession, RegistryEvent, RegistryReply, RegistryRequest, Seq, SessionCommand,
    SessionId, SessionOverview, SessionRefusal, SessionReply, UserInput as Words, WatchFrom, WhenBusy,
};
use serde_json::{Value, json};

use super::history::{self, Contents};
use super::protocol::{RPC_PROTOCOL_VERSION, RpcAttachment, RpcCommand, RpcEvent};
use super::turn::{Turn, response};
use super::{
    DRAIN_WAIT, MAX_ATTACHMENT_BYTES, MAX_FRAME_BYTES, MAX_HISTORY_MEDIA_BYTES, attachment, code, decode,
    encode,
};
use crate::{Input, InputOf, Machine, Output, Ticket};

/// What a child begins with.
#[derive(Clone, Debug)]
pub struct Child {
    /// The conversation, which exists.
    pub session: SessionId,
    /// Where its log ends.
    pub head: Seq,
    /// What new conversations begin with. Its choice is the one in use.
    pub new_session: NewSession,
    /// The name of the model where none is chosen.
    pub default_model: String,
    /// The models there are.
    pub models: Vec<Model>,
    /// The tools there are.
    pub tools: Vec<Tool>,
}

/// A model, as `get_available_models` tells it.
#[derive(Clone, Debug)]
pub struct Model {
    /// Who serves it.
    pub provider: String,
    /// What it is called in commands.
    pub id: String,
    /// What people call it.
    pub name: String,
    /// The agent that answers when this is chosen, if it is one of its own.
    pub agent: Option<AgentId>,
}

/// A tool, as `tools_list` tells it.
#[derive(Clone, Debug)]
pub struct Tool {
    /// The name by which it is called.
    pub name: String,
    /// What it does.
    pub description: String,
    /// The schema of its input.
    pub schema: Value,
}

impl Tool {
    /// As it is told. Parents pass tools on over MCP, which spells the schema's name in another way.
    pub fn to_json(&self) -> Value {
        json!({"name": self.name, "description": self.description,
               "input_schema": self.schema, "inputSchema": self.schema})
    }
}

impl Child {
    /// What answers when `model` is chosen: an agent of that name, else that model.
    pub fn choice(&self, model: &str) -> AgentChoice {
        let agent = self.models.iter().find(|known| known.id == model).and_then(|known| known.agent.clone());
        AgentChoice { agent, model: Some(model.to_owned()), reasoning: None }
    }

    /// The name of the model in use.
    fn model(&self) -> &str {
        self.new_session.choice.model.as_deref().unwrap_or(&self.default_model)
    }
}

/// The child's side of the conversation with its parent.
#[derive(Debug)]
pub struct SynapsMachine {
    child: Child,
    turn: Option<Turn>,
    /// The id of the `compact` that is under way, and those who asked to stop it.
    compacting: Option<(Ticket, String, Vec<String>)>,
    /// The command that must be answered before the next one is read.
    pending: Option<(Ticket, Pending)>,
    /// A `shutdown` came: nothing more is read.
    is_draining: bool,
    /// How many subagents there were.
    subagents: u64,
    next_ticket: u64,
    outbox: VecDeque<Output<RegistryRequest>>,
}

/// What to do when the house has answered.
#[derive(Debug)]
enum Pending {
    Files { prompt: Prompt, paths: Vec<PathBuf> },
    Stored { prompt: Prompt },
    Sent,
    Stopping,
    Created { id: String },
    Messages { id: String },
    Contents { id: String, overview: Box<SessionOverview> },
    Model { id: String, choice: AgentChoice },
    Stats { id: String },
    State { id: String },
}

/// A prompt whose files are not at hand yet.
#[derive(Debug)]
struct Prompt {
    id: String,
    message: String,
    came: Instant,
}

impl SynapsMachine {
    /// A child of which the parent has heard nothing yet.
    pub fn new(child: Child) -> Self {
        let mut machine = Self {
            child,
            turn: None,
            compacting: None,
            pending: None,
            is_draining: false,
            subagents: 0,
            next_ticket: 0,
            outbox: VecDeque::new(),
        };
        machine.send(&RpcEvent::Ready {
            session_id: machine.child.session.to_string(),
            model: machine.child.model().to_owned(),
            protocol_version: RPC_PROTOCOL_VERSION,
        });
        machine.watch(machine.child.head);
        machine
    }
}

impl Machine for SynapsMachine {
    type Request = RegistryRequest;
    type Reply = RegistryReply;
    type Event = RegistryEvent;
    type Error = SessionRefusal;

    fn handle(&mut self, now: Instant, input: InputOf<'_, Self>) {
        match input {
            Input::Frame(line) => self.on_line(now, line),
            Input::Oversize { .. } => self.fail(None, code::OVERSIZE),
            Input::Answer(ticket, answer) => self.on_answer(ticket, answer),
            Input::Event(event) => self.on_event(now, event),
            Input::Deadline => self.outbox.push_back(Output::Close),
        }
    }

    fn poll(&mut self) -> Option<Output<RegistryRequest>> {
        self.outbox.pop_front()
    }

    fn wants_frame(&self) -> bool {
        // What is being stopped is waited for, so that a prompt right behind an `abort` is not refused.
        let stops_turn = self.turn.as_ref().is_some_and(|turn| !turn.aborts.is_empty());
        let stops_compacting = self.compacting.as_ref().is_some_and(|(.., aborts)| !aborts.is_empty());
        self.pending.is_none() && !self.is_draining && !stops_turn && !stops_compacting
    }

    fn max_line_bytes(&self) -> usize {
        // One more, since a carriage return at the end does not count.
        MAX_FRAME_BYTES + 1
    }
}

impl SynapsMachine {
    fn on_line(&mut self, now: Instant, line: &[u8]) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.len() > MAX_FRAME_BYTES {
            return self.fail(None, code::OVERSIZE);
        }
        match decode::command(line) {
            Ok(None) => {}
            Ok(Some(command)) => self.on_command(now, command),
            Err(flaw) => self.send(&code::of_flaw(flaw)),
        }
    }

    fn on_command(&mut self, now: Instant, command: RpcCommand) {
        match command {
            RpcCommand::Prompt { id, message, attachments } => self.prompt(now, id, message, &attachments),
            RpcCommand::FollowUp { id, message } => self.prompt(now, id, message, &[]),
            RpcCommand::Compact { id } => self.compact(id),
            RpcCommand::NewSession { id } => self.new_session(id),
            RpcCommand::GetMessages { id } => self.look(Pending::Messages { id }),
            RpcCommand::SetModel { id, model } => {
                let choice = self.child.choice(&model);
                let command = SessionCommand::Choose(choice.clone());
                self.ask_session(command, Pending::Model { id, choice });
            }
            RpcCommand::GetAvailableModels { id } => self.tell_models(id),
            RpcCommand::Abort { id } => self.abort(id),
            RpcCommand::GetSessionStats { id } => self.look(Pending::Stats { id }),
            RpcCommand::GetState { id } => self.look(Pending::State { id }),
            RpcCommand::ToolsList { id } => self.tell_tools(id.unwrap_or_default()),
            RpcCommand::Shutdown => self.shut_down(now),
        }
    }

    fn is_busy(&self) -> bool {
        self.turn.is_some() || self.compacting.is_some()
    }

    fn prompt(&mut self, now: Instant, id: String, message: String, attachments: &[RpcAttachment]) {
        if self.is_busy() {
            return self.fail(Some(id), code::BUSY);
        }
        match attachment::paths(attachments) {
            Err(refused) => self.fail(Some(id), &refused),
            Ok(paths) if paths.is_empty() => {
                self.begin_turn(now, id, Words { text: message, ..Words::default() });
            }
            Ok(paths) => {
                let command =
                    RegistryRequest::ReadFiles { paths: paths.clone(), max_bytes: MAX_ATTACHMENT_BYTES };
                self.ask(command, Pending::Files { prompt: Prompt { id, message, came: now }, paths });
            }
        }
    }

    fn begin_turn(&mut self, came: Instant, id: String, input: Words) {
        // Set before the house is asked: what happens may be told before the answer.
        self.turn = Some(Turn::new(id, came));
        self.ask_session(SessionCommand::Send { input, when_busy: WhenBusy::Refuse }, Pending::Sent);
    }

    fn compact(&mut self, id: String) {
        if self.is_busy() {
            return self.fail(Some(id), code::BUSY);
        }
        let ticket = self.ticket();
        self.compacting = Some((ticket, id, Vec::new()));
        let command = SessionCommand::Compact { keep: 0 };
        self.outbox.push_back(Output::Request(
            ticket,
            RegistryRequest::Session(self.child.session.clone(), command),
        ));
    }

    fn new_session(&mut self, id: String) {
        if self.is_busy() {
            return self.fail(Some(id), code::BUSY);
        }
        let new_session = Box::new(self.child.new_session.clone());
        self.ask(RegistryRequest::Create { id: None, new_session }, Pending::Created { id });
    }

    fn abort(&mut self, id: String) {
        let stop = SessionCommand::Stop { run: None, reason: None };
        if let Some(turn) = &mut self.turn {
            turn.aborts.push(id);
            return self.ask_session(stop, Pending::Stopping);
        }
        if let Some((.., aborts)) = &mut self.compacting {
            aborts.push(id);
            let ticket = self.ticket();
            let command = RegistryRequest::Session(self.child.session.clone(), stop);
            return self.outbox.push_back(Output::Request(ticket, command));
        }
        self.respond(id, "abort", vec![("ok", Value::Bool(true))]);
    }

    fn tell_models(&mut self, id: String) {
        let models =
            self.child.models.iter().map(
                |model| json!({"provider": model.provider, "model_id": model.id, "model_name": model.name}),
            );
        let models = models.collect();
        self.respond(id, "get_available_models", vec![("models", models)]);
    }

    fn tell_tools(&mut self, id: String) {
        let tools = self.child.tools.iter().map(Tool::to_json);
        let tools = tools.collect();
        self.respond(id, "tools_list", vec![("ok", Value::Bool(true)), ("tools", tools)]);
    }

    fn shut_down(&mut self, now: Instant) {
        self.is_draining = true;
        self.close_when_idle();
        self.outbox.push_back(Output::WakeAt(now + DRAIN_WAIT));
    }

    fn close_when_idle(&mut self) {
        if self.is_draining && !self.is_busy() {
            self.outbox.push_back(Output::Close);
        }
    }

    fn on_answer(&mut self, ticket: Ticket, answer: Result<RegistryReply, SessionRefusal>) {
        if let Some((_, pending)) = self.pending.take_if(|(waiting, _)| *waiting == ticket) {
            return self.go_on(pending, answer);
        }
        if let Some((_, id, aborts)) = self.compacting.take_if(|(waiting, ..)| *waiting == ticket) {
            match answer {
                Ok(RegistryReply::Session(SessionReply::Compacted(summary))) => {
                    self.respond(id, "compact", vec![("summary", Value::String(summary.text))]);
                }
                Ok(_) => self.fail(Some(id), "the session was not compacted"),
                Err(refusal) => self.fail(Some(id), &code::of_refusal(&refusal)),
            }
            for abort in aborts {
                self.respond(abort, "abort", vec![("ok", Value::Bool(true))]);
            }
            self.close_when_idle();
        }
    }

    /// Goes on with a command, now that the house has answered.
    fn go_on(&mut self, pending: Pending, answer: Result<RegistryReply, SessionRefusal>) {
        let reply = match answer {
            Ok(reply) => reply,
            Err(refusal) => return self.on_refusal(pending, &refusal),
        };
        match (pending, reply) {
            (Pending::Files { prompt: Prompt { id, message, came }, paths }, RegistryReply::Files(read)) => {
                match attachment::judge(&paths, read) {
                    Err(refused) => self.fail(Some(id), refused),
                    Ok(judged) => {
                        let message = attachment::with_names(&judged.named, message);
                        if judged.files.is_empty() {
                            return self.begin_turn(came, id, Words { text: message, ..Words::default() });
                        }
                        let prompt = Prompt { id, message, came };
                        self.ask(RegistryRequest::StoreMedia(judged.files), Pending::Stored { prompt });
                    }
                }
            }
            (Pending::Stored { prompt: Prompt { id, message, came } }, RegistryReply::Stored(media)) => {
                self.begin_turn(came, id, Words { text: message, media, ..Words::default() });
            }
            (Pending::Created { id }, RegistryReply::Created(session)) => {
                let old = std::mem::replace(&mut self.child.session, session);
                let tell_no_more = self.ticket();
                self.outbox.push_back(Output::Request(tell_no_more, RegistryRequest::Leave(old)));
                self.watch(Seq::START);
                let session_id = Value::String(self.child.session.to_string());
                self.respond(id, "new_session", vec![("session_id", session_id)]);
            }
            (Pending::Messages { id }, RegistryReply::Overview(overview)) => {
                let ids = history::media(&overview.history);
                if ids.is_empty() {
                    return self.tell_messages(id, &overview, &Contents::new());
                }
                let command = RegistryRequest::ReadMedia { ids, max_bytes: MAX_HISTORY_MEDIA_BYTES };
                self.ask(command, Pending::Contents { id, overview });
            }
            (Pending::Contents { id, overview }, RegistryReply::Contents(read)) => {
                let ids = history::media(&overview.history).into_iter();
                let contents = ids.zip(read).filter_map(|(id, bytes)| Some((id, bytes?))).collect();
                self.tell_messages(id, &overview, &contents);
            }
            (Pending::Model { id, choice }, _) => {
                let model = choice.model.clone().unwrap_or_default();
                let old = std::mem::take(&mut self.child.new_session.choice);
                self.child.new_session.choice = AgentChoice { agent: choice.agent.or(old.agent), ..choice };
                self.respond(id, "set_model", vec![("model", Value::String(model))]);
            }
            (Pending::Stats { id }, RegistryReply::Overview(overview)) => self.tell_stats(id, &overview),
            (Pending::State { id }, RegistryReply::Overview(overview)) => self.tell_state(id, &overview),
            // The turn tells the rest.
            (Pending::Sent | Pending::Stopping, _) => {}
            (
                Pending::Files { prompt: Prompt { id, .. }, .. }
                | Pending::Stored { prompt: Prompt { id, .. } }
                | Pending::Created { id }
                | Pending::Messages { id }
                | Pending::Contents { id, .. }
                | Pending::Stats { id }
                | Pending::State { id },
                _,
            ) => self.fail(Some(id), "the house gave another answer"),
        }
    }

    fn on_refusal(&mut self, pending: Pending, refusal: &SessionRefusal) {
        let id = match pending {
            Pending::Files { prompt: Prompt { id, .. }, .. }
            | Pending::Stored { prompt: Prompt { id, .. } }
            | Pending::Created { id }
            | Pending::Messages { id }
            | Pending::Contents { id, .. }
            | Pending::Model { id, .. }
            | Pending::Stats { id }
            | Pending::State { id } => id,
            // The turn has ended at this very moment, or is about to: its end is told anyway.
            Pending::Stopping => return,
            // The turn never began.
            Pending::Sent => match self.turn.take() {
                Some(turn) => turn.id,
                None => return,
            },
        };
        self.fail(Some(id), &code::of_refusal(refusal));
        self.close_when_idle();
    }

    fn on_event(&mut self, now: Instant, event: &RegistryEvent) {
        // An older conversation's last words.
        if event.session != self.child.session {
            return;
        }
        let Some(turn) = &mut self.turn else { return };
        let mut frames = Vec::new();
        // The turn is over in all respects before its response is written, so that the next prompt
        // may follow at once.
        if let Some(end) = turn.see(now, &event.seen, &mut self.subagents, &mut frames)
            && let Some(turn) = self.turn.take()
        {
            turn.finish(now, end, &mut frames);
        }
        frames.iter().for_each(|frame| self.send(frame));
        self.close_when_idle();
    }

    fn tell_messages(&mut self, id: String, overview: &SessionOverview, contents: &Contents) {
        let messages = history::messages(&overview.history, contents);
        self.respond(id, "get_messages", vec![("messages", Value::Array(messages))]);
    }

    fn tell_stats(&mut self, id: String, overview: &SessionOverview) {
        let cost = overview.usage.cost_micros as f64 / 1_000_000.0;
        let body = vec![
            ("input_tokens", overview.usage.input_tokens.into()),
            ("output_tokens", overview.usage.output_tokens.into()),
            ("cost", cost.into()),
            ("message_count", history::count(&overview.history).into()),
            ("model", self.child.model().into()),
            ("session_id", self.child.session.as_str().into()),
        ];
        self.respond(id, "get_session_stats", body);
    }

    fn tell_state(&mut self, id: String, overview: &SessionOverview) {
        let body = vec![
            ("streaming", self.turn.is_some().into()),
            ("model", self.child.model().into()),
            ("session_id", self.child.session.as_str().into()),
            ("message_count", history::count(&overview.history).into()),
        ];
        self.respond(id, "get_state", body);
    }

    fn look(&mut self, pending: Pending) {
        self.ask(RegistryRequest::Look(self.child.session.clone()), pending);
    }

    fn ask_session(&mut self, command: SessionCommand, pending: Pending) {
        self.ask(RegistryRequest::Session(self.child.session.clone(), command), pending);
    }

    fn watch(&mut self, after: Seq) {
        let ticket = self.ticket();
        let session = self.child.session.clone();
        self.outbox.push_back(Output::Request(
            ticket,
            RegistryRequest::Watch { session, after: WatchFrom::At(after) },
        ));
    }

    fn ask(&mut self, command: RegistryRequest, pending: Pending) {
        let ticket = self.ticket();
        self.pending = Some((ticket, pending));
        self.outbox.push_back(Output::Request(ticket, command));
    }

    fn ticket(&mut self) -> Ticket {
        self.next_ticket += 1;
        Ticket(self.next_ticket)
    }

    fn respond(&mut self, id: String, command: &str, body: Vec<(&str, Value)>) {
        self.send(&response(id, command, body));
    }

    fn fail(&mut self, id: Option<String>, message: &str) {
        self.send(&RpcEvent::Error { id, message: message.to_owned() });
    }

    fn send(&mut self, event: &RpcEvent) {
        self.outbox.push_back(Output::Send(encode::frame(event)));
    }
}
