//! Checks the guarantees of the exec door: each request has one reply, and nothing comes from a process before its start
//! is answered or after its last event. The numbers of events have no gaps.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Instant;

use parlor_vocab::{ExecutorEvent, ExecutorRefusal, ExecutorReply, ExecutorRequest, ProcessRequest};
use serde_json::Value;

use super::LINE_BYTES;
use super::fake_processes::{FakeProcesses, Update};
use crate::exec::method;
use crate::jsonrpc::{Envelope, RequestId};
use crate::lines::{Line, Lines};
use crate::{Input, Machine, Output, Ticket};

pub(super) struct Conversation<'a, M> {
    machine: M,
    processes: FakeProcesses<'a>,
    now: Instant,
    /// The ids of the requests that the backend has not answered yet.
    pending: HashMap<Ticket, RequestId>,
    /// The processes that the client knows to be running.
    running: BTreeSet<String>,
    /// The processes with numbered events that the client knows, with the last numbers.
    sequenced: BTreeMap<String, u64>,
    received: Vec<Vec<u8>>,
}

impl<
    'a,
    M: Machine<Request = ExecutorRequest, Reply = ExecutorReply, Event = ExecutorEvent, Error = ExecutorRefusal>,
> Conversation<'a, M>
{
    pub(super) fn new(machine: M, choices: &'a [u8]) -> Self {
        let processes = FakeProcesses::new(choices);
        // The machine does not use the time.
        let now = Instant::now();
        let (pending, running, received) = (HashMap::new(), BTreeSet::new(), Vec::new());
        Self { machine, processes, now, pending, running, sequenced: BTreeMap::new(), received }
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
        while let Some(update) = self.next_ending() {
            self.on_backend_update(update);
        }
        assert!(self.pending.is_empty(), "requests without a reply: {:?}", self.pending);
        assert!(self.running.is_empty(), "processes without an end: {:?}", self.running);
        assert!(self.sequenced.is_empty(), "processes without an end: {:?}", self.sequenced);
        self.received
    }

    fn next_ending(&mut self) -> Option<Update> {
        self.processes.answer().or_else(|| self.processes.exit()).or_else(|| self.processes.sequenced_end())
    }

    fn on_line(&mut self, line: Line<'_>) {
        while !self.machine.wants_frame() {
            let update = self.processes.answer().expect("frames wait for pending requests only");
            self.on_backend_update(update);
        }
        let (expected_id, input) = match line {
            Line::Whole(frame) => (expected_reply_id(frame), Input::Frame(frame)),
            Line::Oversize => (Some(RequestId::NONE), Input::Oversize { limit: LINE_BYTES }),
        };
        match (expected_id, self.handle(input).as_slice()) {
            (None, []) => {}
            (Some(id), [Output::Send(frame)]) => self.receive_reply(&id, frame),
            (Some(id), [Output::Request(ticket, request)]) => {
                let before = self.pending.insert(*ticket, id);
                assert_eq!(before, None, "{ticket:?} is used twice");
                let may_wait = matches!(
                    request,
                    ExecutorRequest::Process(ProcessRequest::WriteProcess { .. })
                        | ExecutorRequest::WriteOnce { .. }
                        | ExecutorRequest::ReadOutput(_)
                        | ExecutorRequest::Http(_)
                );
                assert_eq!(self.machine.wants_frame(), may_wait, "after {request:?}");
                self.processes.submit(*ticket, request.clone());
            }
            (expected_id, outputs) => panic!("expected a reply to {expected_id:?}, got {outputs:?}"),
        }
        for _ in 0..self.processes.burst() {
            if let Some(update) = self.processes.act() {
                self.on_backend_update(update);
            }
        }
    }

    fn on_backend_update(&mut self, update: Update) {
        match update {
            Update::Answer(ticket, answer) => {
                let id = self.pending.remove(&ticket).expect("the backend answers pending requests only");
                match self.handle(Input::Answer(ticket, answer)).as_slice() {
                    [Output::Send(frame)] => self.receive_reply(&id, frame),
                    outputs => panic!("after the answer to {id:?}: {outputs:?}"),
                }
            }
            Update::Event(event) => match self.handle(Input::Event(&event)).as_slice() {
                [Output::Send(frame)] => self.receive_notification(frame),
                outputs => panic!("after {event:?}: {outputs:?}"),
            },
        }
    }

    fn handle(
        &mut self,
        input: Input<'_, ExecutorReply, ExecutorEvent, ExecutorRefusal>,
    ) -> Vec<Output<ExecutorRequest>> {
        self.machine.handle(self.now, input);
        std::iter::from_fn(|| self.machine.poll()).collect()
    }

    fn receive_reply(&mut self, expected_id: &RequestId, frame: &[u8]) {
        let value = self.receive(frame);
        assert_eq!(value["id"], serde_json::json!(expected_id));
        if let Some(error) = value.get("error") {
            assert_eq!(members(&value), ["error", "id"]);
            assert_eq!(members(error), ["code", "message"]);
            assert!(error["code"].is_i64() && error["message"].is_string(), "{error}");
        } else {
            assert_eq!(members(&value), ["id", "result"]);
        }
        if let Some(process) = value["result"]["processId"].as_str() {
            let is_new = if value["result"].get("sandboxType").is_some() {
                self.sequenced.insert(process.to_owned(), 0).is_none()
            } else {
                self.running.insert(process.to_owned())
            };
            assert!(is_new, "{process:?} is started twice");
        }
    }

    fn receive_notification(&mut self, frame: &[u8]) {
        let value = self.receive(frame);
        assert_eq!(members(&value), ["method", "params"]);
        let process = value["params"]["processId"].as_str().expect("it is about a process");
        if let Some(seq) = value["params"]["seq"].as_u64() {
            let last = self.sequenced.get_mut(process).expect("it was started");
            *last += 1;
            assert_eq!(*last, seq, "a gap before {value}");
            match value["method"].as_str() {
                Some(method::PROCESS_OUTPUT | method::PROCESS_EXITED) => {}
                Some(method::PROCESS_CLOSED) => drop(self.sequenced.remove(process)),
                other => panic!("no notification with a number has the method {other:?}"),
            }
            return;
        }
        assert!(self.running.contains(process), "{process:?} is not running: {value}");
        match value["method"].as_str() {
            Some(method::OUTPUT_DELTA) => {}
            Some(method::EXITED) => drop(self.running.remove(process)),
            other => panic!("no notification has the method {other:?}"),
        }
    }

    fn receive(&mut self, frame: &[u8]) -> Value {
        assert!(!frame.contains(&b'\n'), "a frame is a line");
        self.received.push(frame.to_vec());
        serde_json::from_slice(frame).expect("a frame is JSON")
    }
}

/// The id of the reply that a frame must get; `None` if it must get none.
fn expected_reply_id(frame: &[u8]) -> Option<RequestId> {
    match Envelope::decode(frame) {
        _ if frame.trim_ascii().is_empty() => None,
        Ok(Envelope::Request { id, .. }) => Some(id),
        Ok(Envelope::Notification { method, .. }) if method == method::INITIALIZED => None,
        Ok(Envelope::Response { .. }) => None,
        Ok(Envelope::Notification { .. }) | Err(_) => Some(RequestId::NONE),
    }
}

fn members(value: &Value) -> Vec<&str> {
    let mut names: Vec<&str> =
        value.as_object().expect("an object").keys().map(std::ops::Deref::deref).collect();
    names.sort_unstable();
    names
}
