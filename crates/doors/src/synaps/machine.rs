//! The state machine of one child process: it handles commands one after another, and runs at most one turn beside them.
//!
//! `dispatch.rs` has what each command does.

use std::collections::VecDeque;
use std::time::Instant;

use parlor_vocab::{
    RegistryEvent, RegistryReply, RegistryRequest, Seq, SessionRefusal, SessionReply, SessionUpdate,
    WatchFrom,
};
use serde_json::Value;

use super::dispatch::{Compaction, Pending, ToolsOnly};
use super::other_turn::OtherTurn;
use super::params::ChildParams;
use super::turn::{Turn, response};
use super::wire::{RPC_PROTOCOL_VERSION, RpcEvent};
use super::{LATE_FAILURE, MAX_FRAME_BYTES, code, decode, encode};
use crate::{Input, InputOf, Machine, Output, Ticket};

/// The child's side of the connection to its parent.
#[derive(Debug)]
pub struct SynapsMachine {
    pub(super) params: ChildParams,
    pub(super) turn: Option<Turn>,
    /// A turn that another client of the session began. None is shown while the parent's own turn runs or waits.
    pub(super) other_turn: Option<OtherTurn>,
    pub(super) compaction: Option<Compaction>,
    /// The command that the machine must answer before it takes the next frame.
    pub(super) pending: Option<(Ticket, Pending)>,
    /// When the last command arrived, which is the pending one if there is one.
    pub(super) received: Option<Instant>,
    pub(super) tools_only: ToolsOnly,
    /// The parent has sent `shutdown`: the machine takes no further frame.
    pub(super) is_shutting_down: bool,
    /// How many prompts the parent has sent. Their keys come from this.
    prompt_counter: u64,
    /// How many subagents have started, over all turns. Their numbers on the wire come from this.
    subagent_counter: u64,
    next_ticket: u64,
    pub(super) outbox: VecDeque<Output<RegistryRequest>>,
}

impl SynapsMachine {
    /// A new child: it sends `ready` and begins to watch its session.
    pub fn new(params: ChildParams) -> Self {
        let tools_only = if params.is_new { ToolsOnly::Unknown } else { ToolsOnly::No };
        let mut machine = Self {
            turn: None,
            other_turn: params.active.clone().map(OtherTurn::new),
            params,
            compaction: None,
            pending: None,
            received: None,
            tools_only,
            is_shutting_down: false,
            prompt_counter: 0,
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
            Input::Answer(ticket, answer) => self.on_answer(now, ticket, answer),
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

    fn on_answer(&mut self, now: Instant, ticket: Ticket, answer: Result<RegistryReply, SessionRefusal>) {
        if let Some((_, pending)) = self.pending.take_if(|(waiting, _)| *waiting == ticket) {
            return self.on_pending_answer(now, pending, answer);
        }
        let is_answered = |compaction: &mut Compaction| compaction.ticket == ticket;
        if let Some(Compaction { id, received, aborts, .. }) = self.compaction.take_if(is_answered) {
            match answer {
                Ok(RegistryReply::Session(SessionReply::Compacted(summary))) => {
                    self.send_response(id, "compact", vec![("summary", Value::String(summary.text))]);
                }
                Ok(_) => self.fail(now, received, id, "compact", "the session was not compacted"),
                Err(refusal) => self.fail(now, received, id, "compact", &code::refusal_text(&refusal)),
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
        let Some(turn) = &mut self.turn else { return self.on_other_update(&event.update) };
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

    /// Handles an update of the session while the parent has no turn.
    fn on_other_update(&mut self, update: &SessionUpdate) {
        if let Some(begun) = OtherTurn::begun_by(update) {
            self.other_turn = Some(begun);
        }
        let Some(turn) = &mut self.other_turn else { return };
        let (frame, has_ended) = turn.on_update(update);
        if has_ended {
            self.other_turn = None;
        }
        if let Some(frame) = frame {
            self.send(&frame);
        }
    }

    /// Ends the turn of another client for the parent, which leaves the session.
    pub(super) fn end_other_turn(&mut self) {
        if let Some(mut turn) = self.other_turn.take() {
            self.send(&turn.end());
        }
    }

    /// A key for the next prompt.
    pub(super) fn take_key(&mut self) -> String {
        self.prompt_counter += 1;
        format!("{}:{}", self.params.key_prefix, self.prompt_counter)
    }

    pub(super) fn watch(&mut self, after: Seq) {
        let ticket = self.take_ticket();
        let session = self.params.session.clone();
        self.outbox.push_back(Output::Request(
            ticket,
            RegistryRequest::Watch { session, after: WatchFrom::At(after), deltas: true },
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

    /// Settles a command that failed: with an `error`, or with a response if the parent may have given the command up.
    pub(super) fn fail(&mut self, now: Instant, received: Instant, id: String, command: &str, message: &str) {
        if now.saturating_duration_since(received) <= LATE_FAILURE {
            return self.send_error(Some(id), message);
        }
        let body = vec![("ok", Value::Bool(false)), ("error", Value::String(message.to_owned()))];
        self.send_response(id, command, body);
    }

    fn send(&mut self, event: &RpcEvent) {
        self.outbox.push_back(Output::Send(encode::frame(event)));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use parlor_vocab::{
        AgentChoice, Entry, EventId, NewSession, QueuedInput, RunId, SessionEvent, SessionId, Timestamp,
        UserInput,
    };
    use serde_json::json;

    use super::*;

    fn child() -> SynapsMachine {
        let new_session = NewSession {
            title: None,
            door: "synaps".to_owned(),
            folder: "/".into(),
            choice: AgentChoice::default(),
            system: None,
            forked_from: None,
        };
        SynapsMachine::new(ChildParams {
            session: SessionId::parse("s").unwrap(),
            head: Seq(1),
            is_new: true,
            active: None,
            key_prefix: "child".to_owned(),
            new_session,
            default_model: "local".to_owned(),
            models: Vec::new(),
            routes: Vec::new(),
            tools: Vec::new(),
        })
    }

    /// The frames that the machine sends now, and the ticket of its last request.
    fn outputs(machine: &mut SynapsMachine) -> (Vec<Value>, Option<Ticket>) {
        let (mut frames, mut ticket) = (Vec::new(), None);
        while let Some(output) = machine.poll() {
            match output {
                Output::Send(frame) => frames.push(serde_json::from_slice(&frame).unwrap()),
                Output::Request(next, _) => ticket = Some(next),
                other @ (Output::SendShared(_) | Output::WakeAt(_) | Output::Close) => {
                    panic!("unexpected: {other:?}")
                }
            }
        }
        (frames, ticket)
    }

    #[test]
    fn a_command_that_fails_late_sends_no_error() {
        let refusal = || SessionRefusal::NotCompacted { reason: "the provider is slow".to_owned() };
        for command in ["compact", "get_messages", "new_session", "get_state"] {
            let mut machine = child();
            outputs(&mut machine);
            let start = Instant::now();
            let settle = |machine: &mut SynapsMachine, at: Instant, after: Duration| {
                let line = format!("{{\"type\":\"{command}\",\"id\":\"c\"}}");
                machine.handle(at, Input::Frame(line.as_bytes()));
                let ticket = outputs(machine).1.unwrap();
                machine.handle(at + after, Input::Answer(ticket, Err(refusal())));
                let (frames, _) = outputs(machine);
                assert_eq!(frames.len(), 1, "{frames:?}");
                frames[0].clone()
            };
            let in_time = settle(&mut machine, start, LATE_FAILURE);
            assert_eq!((&in_time["type"], &in_time["id"]), (&Value::from("error"), &Value::from("c")));
            let late = settle(&mut machine, start + LATE_FAILURE, LATE_FAILURE + Duration::from_millis(1));
            let settled = (&late["type"], &late["id"], &late["command"], &late["ok"]);
            let expected =
                (&Value::from("response"), &Value::from("c"), &Value::from(command), &Value::from(false));
            assert_eq!(settled, expected, "a parent that has given up would end: {late}");
            assert!(late["error"].as_str().unwrap().contains("the provider is slow"), "{late}");
        }
    }

    #[test]
    fn a_prompt_that_is_unqueued_before_its_reply_ends() {
        let mut machine = child();
        let now = Instant::now();
        machine.handle(now, Input::Frame(br#"{"type":"prompt","id":"p","message":"hi"}"#));
        let sent = outputs(&mut machine).1.unwrap();
        let run = RunId::parse("r").unwrap();
        let input = UserInput { key: Some("child:1".to_owned()), ..UserInput::default() };
        let queued = SessionEvent::Queued(QueuedInput { run: run.clone(), input });
        let mut seq = Seq(1);
        let mut handle_event = |machine: &mut SynapsMachine, event| {
            seq = Seq(seq.0 + 1);
            let entry = Entry { seq, id: EventId::parse("e").unwrap(), at: Timestamp(0), event };
            let update = SessionUpdate::Entry(Arc::new(entry));
            let session = SessionId::parse("s").unwrap();
            machine.handle(now, Input::Event(&RegistryEvent { session, update }));
        };
        handle_event(&mut machine, queued);
        handle_event(&mut machine, SessionEvent::Unqueued { runs: vec![run.clone()] });
        let (frames, _) = outputs(&mut machine);
        let cancelled =
            json!({"type": "response", "id": "p", "command": "prompt", "ok": true, "cancelled": true});
        assert_eq!(frames, [cancelled]);
        let reply = RegistryReply::Session(SessionReply::Queued { run, waiting: 1 });
        machine.handle(now, Input::Answer(sent, Ok(reply)));
        assert!(outputs(&mut machine).0.is_empty());
        assert!(machine.wants_frame());
    }
}
