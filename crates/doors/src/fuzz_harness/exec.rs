//! The promises of the exec door.

use std::collections::{BTreeSet, HashMap};
use std::time::Instant;

use parlor_vocab::{ProcessEvent, ProcessRefusal, ProcessReply, ProcessRequest};
use serde_json::Value;

use super::LINE_BYTES;
use super::fake_processes::{FakeProcesses, Update};
use crate::exec::{MAX_REQUEST_ID_BYTES, method};
use crate::jsonrpc::{Message, RequestId};
use crate::lines::{Line, Lines};
use crate::{Input, Machine, Output, Ticket};

pub(super) struct Conversation<'a, M> {
    machine: M,
    processes: FakeProcesses<'a>,
    now: Instant,
    /// Whose answer the engine owes.
    asked: HashMap<Ticket, RequestId>,
    /// The processes that the peer was told of and that it may hear more of.
    running: BTreeSet<String>,
    heard: Vec<Vec<u8>>,
}

impl<
    'a,
    M: Machine<Request = ProcessRequest, Reply = ProcessReply, Event = ProcessEvent, Error = ProcessRefusal>,
> Conversation<'a, M>
{
    pub(super) fn new(machine: M, choices: &'a [u8]) -> Self {
        let processes = FakeProcesses::new(choices);
        // Only a place to count from: no machine here asks for the time.
        let now = Instant::now();
        let (asked, running, heard) = (HashMap::new(), BTreeSet::new(), Vec::new());
        Self { machine, processes, now, asked, running, heard }
    }

    pub(super) fn play<C: AsRef<[u8]>>(mut self, chunks: &[C]) -> Vec<Vec<u8>> {
        let mut lines = Lines::new(LINE_BYTES);
        for chunk in chunks {
            lines.push(chunk.as_ref());
            while let Some(line) = lines.next_line() {
                self.on_line(line);
            }
        }
        if let Some(line) = lines.finish() {
            self.on_line(line);
        }
        while let Some(happening) = self.processes.answer().or_else(|| self.processes.exit()) {
            self.on_happening(happening);
        }
        assert!(self.asked.is_empty(), "requests without a reply: {:?}", self.asked);
        assert!(self.running.is_empty(), "processes without an end: {:?}", self.running);
        self.heard
    }

    fn on_line(&mut self, line: Line<'_>) {
        while !self.machine.wants_frame() {
            let happening = self.processes.answer().expect("only an open question keeps frames waiting");
            self.on_happening(happening);
        }
        let (owed, input) = match line {
            Line::Whole(frame) => (owed(frame), Input::Frame(frame)),
            Line::Oversize => (Some(RequestId::NONE), Input::Oversize { limit: LINE_BYTES }),
        };
        match (owed, self.hand_over(input).as_slice()) {
            (None, []) => {}
            (Some(id), [Output::Send(frame)]) => self.hear_reply(&id, frame),
            (Some(id), [Output::Request(ticket, command)]) => {
                let before = self.asked.insert(*ticket, id);
                assert_eq!(before, None, "{ticket:?} is used twice");
                let may_wait = matches!(command, ProcessRequest::WriteProcess { .. });
                assert_eq!(self.machine.wants_frame(), may_wait, "after {command:?}");
                self.processes.ask(*ticket, command.clone());
            }
            (owed, outputs) => panic!("owed a reply to {owed:?} and did {outputs:?}"),
        }
        for _ in 0..self.processes.burst() {
            if let Some(happening) = self.processes.act() {
                self.on_happening(happening);
            }
        }
    }

    fn on_happening(&mut self, happening: Update) {
        match happening {
            Update::Answer(ticket, answer) => {
                let id = self.asked.remove(&ticket).expect("the engine answers what it was asked");
                match self.hand_over(Input::Answer(ticket, answer)).as_slice() {
                    [Output::Send(frame)] => self.hear_reply(&id, frame),
                    outputs => panic!("told an answer to {id:?} and did {outputs:?}"),
                }
            }
            Update::Event(event) => match self.hand_over(Input::Event(&event)).as_slice() {
                [Output::Send(frame)] => self.hear_notification(frame),
                outputs => panic!("told {event:?} and did {outputs:?}"),
            },
        }
    }

    fn hand_over(
        &mut self,
        input: Input<'_, ProcessReply, ProcessEvent, ProcessRefusal>,
    ) -> Vec<Output<ProcessRequest>> {
        self.machine.handle(self.now, input);
        std::iter::from_fn(|| self.machine.poll()).collect()
    }

    fn hear_reply(&mut self, owed: &RequestId, frame: &[u8]) {
        let value = self.hear(frame);
        assert_eq!(value["id"], serde_json::json!(owed));
        if let Some(error) = value.get("error") {
            assert_eq!(members(&value), ["error", "id"]);
            assert_eq!(members(error), ["code", "message"]);
            assert!(error["code"].is_i64() && error["message"].is_string(), "{error}");
        } else {
            assert_eq!(members(&value), ["id", "result"]);
        }
        if let Some(process) = value["result"]["processId"].as_str() {
            assert!(self.running.insert(process.to_owned()), "{process:?} is started twice");
        }
    }

    fn hear_notification(&mut self, frame: &[u8]) {
        let value = self.hear(frame);
        assert_eq!(members(&value), ["method", "params"]);
        let process = value["params"]["processId"].as_str().expect("it is about a process");
        assert!(self.running.contains(process), "{process:?} is not running: {value}");
        match value["method"].as_str() {
            Some(method::OUTPUT_DELTA) => {}
            Some(method::EXITED) => drop(self.running.remove(process)),
            other => panic!("no notification has the method {other:?}"),
        }
    }

    fn hear(&mut self, frame: &[u8]) -> Value {
        assert!(!frame.contains(&b'\n'), "a frame is a line");
        self.heard.push(frame.to_vec());
        serde_json::from_slice(frame).expect("a frame is JSON")
    }
}

/// Under which id a frame is owed a reply, if it is.
fn owed(frame: &[u8]) -> Option<RequestId> {
    match Message::decode(frame) {
        _ if frame.trim_ascii().is_empty() => None,
        Ok(Message::Request { id: RequestId::Text(id), .. }) if id.len() > MAX_REQUEST_ID_BYTES => {
            Some(RequestId::NONE)
        }
        Ok(Message::Request { id, .. }) => Some(id),
        Ok(Message::Notification { method, .. }) if method == method::INITIALIZED => None,
        Ok(Message::Response { .. }) => None,
        Ok(Message::Notification { .. }) | Err(_) => Some(RequestId::NONE),
    }
}

fn members(value: &Value) -> Vec<&str> {
    let mut names: Vec<&str> =
        value.as_object().expect("an object").keys().map(std::ops::Deref::deref).collect();
    names.sort_unstable();
    names
}
