//! The state machine of one child process: it handles commands one after another, and runs at most one turn beside them.
//!
//! `dispatch.rs` has what each command does.

use std::collections::VecDeque;
use std::time::Instant;

use parlor_vocab::{
    AgentChoice, AgentId, NewSession, RegistryEvent, RegistryReply, RegistryRequest, Seq, SessionId,
    SessionRefusal, SessionReply, WatchFrom,
};
use serde_json::Value;

use super::dispatch::{Compaction, Pending};
use super::turn::{Turn, response};
use super::wire::{RPC_PROTOCOL_VERSION, RpcEvent};
use super::{MAX_FRAME_BYTES, code, decode, encode};
use crate::{Input, InputOf, Machine, Output, Ticket, ToolDescription};

/// The parameters of a child process.
#[derive(Clone, Debug)]
pub struct ChildParams {
    /// The session of the conversation. It must exist.
    pub session: SessionId,
    /// The last entry in the session's log.
    pub head: Seq,
    /// The template of sessions that `new_session` creates. Its `choice` is the model in use.
    pub new_session: NewSession,
    /// The name of the model in use if none is chosen.
    pub default_model: String,
    /// The models that the parent can choose.
    pub models: Vec<AvailableModel>,
    /// The tools that agents can call.
    pub tools: Vec<ToolDescription>,
}

/// A model in the answer to `get_available_models`.
#[derive(Clone, Debug)]
pub struct AvailableModel {
    /// The provider of the model.
    pub provider: String,
    /// The id of the model in commands such as `set_model`.
    pub id: String,
    /// The name that people see in lists of models.
    pub name: String,
    /// The agent that answers when the parent chooses this model, if the model stands for an agent.
    pub agent: Option<AgentId>,
}

impl ChildParams {
    /// The choice that `set_model` makes: the agent with this id, or else the model with this id.
    pub fn choice(&self, model: &str) -> AgentChoice {
        let agent = self.models.iter().find(|known| known.id == model).and_then(|known| known.agent.clone());
        AgentChoice { agent, model: Some(model.to_owned()), reasoning: None }
    }

    /// The id of the model in use.
    pub(super) fn model(&self) -> &str {
        self.new_session.choice.model.as_deref().unwrap_or(&self.default_model)
    }
}

/// The child's side of the connection to its parent.
#[derive(Debug)]
pub struct SynapsMachine {
    pub(super) params: ChildParams,
    pub(super) turn: Option<Turn>,
    pub(super) compaction: Option<Compaction>,
    /// The command that the machine must answer before it takes the next frame.
    pub(super) pending: Option<(Ticket, Pending)>,
    /// The parent has sent `shutdown`: the machine takes no further frame.
    pub(super) is_shutting_down: bool,
    /// How many subagents have started, over all turns. Their numbers on the wire come from this.
    subagent_counter: u64,
    next_ticket: u64,
    pub(super) outbox: VecDeque<Output<RegistryRequest>>,
}

impl SynapsMachine {
    /// A new child: it sends `ready` and begins to watch its session.
    pub fn new(params: ChildParams) -> Self {
        let mut machine = Self {
            params,
            turn: None,
            compaction: None,
            pending: None,
            is_shutting_down: false,
            subagent_counter: 0,
            next_ticket: 0,
            outbox: VecDeque::new(),
        };
        machine.send(&RpcEvent::Ready {
            session_id: machine.params.session.to_string(),
            model: machine.params.model().to_owned(),
            protocol_version: RPC_PROTOCOL_VERSION,
        });
        machine.watch(machine.params.head);
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
            Input::Frame(line) => self.on_frame(now, line),
            Input::Oversize { .. } => self.send_error(None, code::OVERSIZE),
            Input::Answer(ticket, answer) => self.on_answer(ticket, answer),
            Input::Event(event) => self.on_event(now, event),
            Input::Deadline => self.outbox.push_back(Output::Close),
        }
    }

    fn poll(&mut self) -> Option<Output<RegistryRequest>> {
        self.outbox.pop_front()
    }

    fn wants_frame(&self) -> bool {
        // An aborted turn or compaction must end first, so that a prompt right behind the `abort` is not refused.
        let stops_turn = self.turn.as_ref().is_some_and(|turn| !turn.aborts.is_empty());
        let stops_compacting =
            self.compaction.as_ref().is_some_and(|compaction| !compaction.aborts.is_empty());
        self.pending.is_none() && !self.is_shutting_down && !stops_turn && !stops_compacting
    }

    fn max_line_bytes(&self) -> usize {
        // One byte more, because a carriage return at the end does not count.
        MAX_FRAME_BYTES + 1
    }
}

impl SynapsMachine {
    fn on_frame(&mut self, now: Instant, line: &[u8]) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.len() > MAX_FRAME_BYTES {
            return self.send_error(None, code::OVERSIZE);
        }
        match decode::command(line) {
            Ok(None) => {}
            Ok(Some(command)) => self.on_command(now, command),
            Err(error) => self.send(&code::frame_error(error)),
        }
    }

    fn on_answer(&mut self, ticket: Ticket, answer: Result<RegistryReply, SessionRefusal>) {
        if let Some((_, pending)) = self.pending.take_if(|(waiting, _)| *waiting == ticket) {
            return self.on_pending_answer(pending, answer);
        }
        let is_answered = |compaction: &mut Compaction| compaction.ticket == ticket;
        if let Some(Compaction { id, aborts, .. }) = self.compaction.take_if(is_answered) {
            match answer {
                Ok(RegistryReply::Session(SessionReply::Compacted(summary))) => {
                    self.send_response(id, "compact", vec![("summary", Value::String(summary.text))]);
                }
                Ok(_) => self.send_error(Some(id), "the session was not compacted"),
                Err(refusal) => self.send_error(Some(id), &code::refusal_text(&refusal)),
            }
            for abort in aborts {
                self.send_response(abort, "abort", vec![("ok", Value::Bool(true))]);
            }
            self.close_when_idle();
        }
    }

    fn on_event(&mut self, now: Instant, event: &RegistryEvent) {
        // A late event of the session before `new_session`.
        if event.session != self.params.session {
            return;
        }
        let Some(turn) = &mut self.turn else { return };
        let mut frames = Vec::new();
        // The turn is removed before its response is sent, so that the parent can send the next prompt at once.
        if let Some(end) = turn.on_update(now, &event.update, &mut self.subagent_counter, &mut frames)
            && let Some(turn) = self.turn.take()
        {
            turn.finish(now, end, &mut frames);
        }
        frames.iter().for_each(|frame| self.send(frame));
        self.close_when_idle();
    }

    pub(super) fn watch(&mut self, after: Seq) {
        let ticket = self.take_ticket();
        let session = self.params.session.clone();
        self.outbox.push_back(Output::Request(
            ticket,
            RegistryRequest::Watch { session, after: WatchFrom::At(after) },
        ));
    }

    pub(super) fn submit(&mut self, request: RegistryRequest, pending: Pending) {
        let ticket = self.take_ticket();
        self.pending = Some((ticket, pending));
        self.outbox.push_back(Output::Request(ticket, request));
    }

    pub(super) fn take_ticket(&mut self) -> Ticket {
        self.next_ticket += 1;
        Ticket(self.next_ticket)
    }

    pub(super) fn send_response(&mut self, id: String, command: &str, body: Vec<(&str, Value)>) {
        self.send(&response(id, command, body));
    }

    pub(super) fn send_error(&mut self, id: Option<String>, message: &str) {
        self.send(&RpcEvent::Error { id, message: message.to_owned() });
    }

    fn send(&mut self, event: &RpcEvent) {
        self.outbox.push_back(Output::Send(encode::frame(event)));
    }
}
