//! Checks the guarantees of the peer door.
//!
//! Nothing is requested and nothing but an error is sent before `hello`. Each request reaches the backend once, in the
//! order of the lines, and each is answered once, with its id. An error is the last frame, and nothing after its line is
//! carried out. Every frame is read as it was written.

use std::collections::HashMap;
use std::time::Instant;

use parlor_vocab::{PeerEvent, PeerReply, PeerRequest, SessionRefusal};

use super::LINE_BYTES;
use super::fake_owner::{FakeOwner, Update};
use crate::lines::{Line, Lines};
use crate::peer::{ClientFrame, HELLO_WAIT, PeerMachine, ServerFrame, VERSIONS};
use crate::{Input, Machine, Output, Ticket};

pub(super) struct Conversation<'a> {
    machine: PeerMachine,
    owner: FakeOwner<'a>,
    now: Instant,
    has_said_hello: bool,
    is_closed: bool,
    /// The ids of the requests that the backend has not answered yet.
    pending: HashMap<Ticket, u64>,
    received: Vec<Vec<u8>>,
}

impl<'a> Conversation<'a> {
    pub(super) fn new(choices: &'a [u8]) -> Self {
        let now = Instant::now();
        let mut machine = PeerMachine::new(now, "1.2.3", 42);
        let first: Vec<_> = std::iter::from_fn(|| machine.poll()).collect();
        assert!(matches!(first.as_slice(), [Output::WakeAt(at)] if *at == now + HELLO_WAIT), "{first:?}");
        let (has_said_hello, is_closed) = (false, false);
        let (pending, received) = (HashMap::new(), Vec::new());
        Self { machine, owner: FakeOwner::new(choices), now, has_said_hello, is_closed, pending, received }
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
        while let Some(update) = self.owner.answer() {
            self.on_backend_update(update);
        }
        assert!(self.pending.is_empty() || self.is_closed, "requests without a reply: {:?}", self.pending);
        self.received
    }

    fn on_line(&mut self, line: Line<'_>) {
        assert_eq!(self.machine.wants_frame(), !self.is_closed);
        if self.owner.is_deadline_over() {
            self.on_deadline();
        }
        let (frame, input) = match line {
            Line::Whole(line) => (serde_json::from_slice::<ClientFrame>(line).ok(), Input::Frame(line)),
            Line::Oversize => (None, Input::Oversize { limit: LINE_BYTES }),
        };
        if let Some(frame) = &frame {
            let written = serde_json::to_vec(frame).expect("a frame");
            assert_eq!(serde_json::from_slice::<ClientFrame>(&written).ok().as_ref(), Some(frame));
        }
        let outputs = self.handle(input);
        match expected(frame, self.has_said_hello) {
            _ if self.is_closed => assert!(outputs.is_empty(), "after the end: {outputs:?}"),
            Expected::Hello => {
                let [Output::Send(frame)] = outputs.as_slice() else { panic!("after hello: {outputs:?}") };
                let ServerFrame::Hello(hello) = self.receive(frame) else { panic!("no hello") };
                assert!(VERSIONS.contains(&hello.version) && hello.program == "1.2.3" && hello.pid == 42);
                self.has_said_hello = true;
            }
            Expected::Request(id, request) => {
                let [Output::Request(ticket, asked)] = outputs.as_slice() else {
                    panic!("after {request:?}: {outputs:?}")
                };
                assert_eq!(*asked, *request);
                assert_eq!(self.pending.insert(*ticket, id), None, "{ticket:?} is used twice");
                self.owner.submit(*ticket, *request);
            }
            Expected::Error => self.receive_error(&outputs),
        }
        for _ in 0..self.owner.burst() {
            if let Some(update) = self.owner.act() {
                self.on_backend_update(update);
            }
        }
    }

    fn on_deadline(&mut self) {
        let outputs = self.handle(Input::Deadline);
        match self.has_said_hello || self.is_closed {
            true => assert!(outputs.is_empty(), "{outputs:?}"),
            false => self.receive_error(&outputs),
        }
    }

    fn on_backend_update(&mut self, update: Update) {
        let (expected_id, outputs) = match update {
            Update::Answer(ticket, answer) => {
                let id = self.pending.remove(&ticket).expect("the backend answers pending requests only");
                (Some(id), self.handle(Input::Answer(ticket, answer)))
            }
            Update::Event(event) => (None, self.handle(Input::Event(&event))),
        };
        if self.is_closed {
            return assert!(outputs.is_empty(), "after the end: {outputs:?}");
        }
        let [Output::Send(frame)] = outputs.as_slice() else { panic!("one frame, not {outputs:?}") };
        let id = match self.receive(frame) {
            ServerFrame::Reply { id, .. } | ServerFrame::Refusal { id, .. } => Some(id),
            ServerFrame::Head { .. } | ServerFrame::Delta { .. } | ServerFrame::Closed { .. } => None,
            frame @ (ServerFrame::Hello(_) | ServerFrame::Error { .. }) => panic!("{frame:?}"),
        };
        assert_eq!(id, expected_id);
    }

    fn handle(&mut self, input: Input<'_, PeerReply, PeerEvent, SessionRefusal>) -> Vec<Output<PeerRequest>> {
        self.machine.handle(self.now, input);
        std::iter::from_fn(|| self.machine.poll()).collect()
    }

    /// The connection ends with an error frame.
    fn receive_error(&mut self, outputs: &[Output<PeerRequest>]) {
        let [Output::Send(frame), Output::Close] = outputs else { panic!("an error, not {outputs:?}") };
        assert!(matches!(self.receive(frame), ServerFrame::Error { .. }));
        self.is_closed = true;
    }

    fn receive(&mut self, frame: &[u8]) -> ServerFrame {
        assert!(!frame.contains(&b'\n'), "a frame is one line");
        let read: ServerFrame = serde_json::from_slice(frame).expect("a frame can be read");
        assert_eq!(serde_json::to_vec(&read).ok().as_deref(), Some(frame), "it is read as it was written");
        self.received.push(frame.to_vec());
        read
    }
}

/// What must follow a line on an open connection.
enum Expected {
    Hello,
    Request(u64, Box<PeerRequest>),
    Error,
}

fn expected(frame: Option<ClientFrame>, has_said_hello: bool) -> Expected {
    let Some(frame) = frame else { return Expected::Error };
    match (frame, has_said_hello) {
        (ClientFrame::Hello(hello), false) if hello.versions.iter().any(|it| VERSIONS.contains(it)) => {
            Expected::Hello
        }
        (ClientFrame::Hello(_), _) | (_, false) => Expected::Error,
        (ClientFrame::Command { id, session, command }, true) => {
            Expected::Request(id, Box::new(PeerRequest::Session(session, Box::new(command.0))))
        }
        (ClientFrame::Delete { id, session }, true) => {
            Expected::Request(id, Box::new(PeerRequest::Delete(session)))
        }
        (ClientFrame::Watch { id, session }, true) => {
            Expected::Request(id, Box::new(PeerRequest::Watch(session)))
        }
        (ClientFrame::Unwatch { id, session }, true) => {
            Expected::Request(id, Box::new(PeerRequest::Unwatch(session)))
        }
    }
}
