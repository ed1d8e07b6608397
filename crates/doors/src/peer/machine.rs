//! The state machine of a process that serves its sessions to another.

use std::collections::{HashMap, VecDeque};
use std::time::Instant;

use parlor_vocab::{PeerEvent, PeerReply, PeerRequest, PeerUpdate, SessionRefusal};

use super::code::PeerFrameError;
use super::forms::{WireRefusal, WireReply, WireStream};
use super::wire::{ClientFrame, ClientHello, ServerFrame, ServerHello};
use super::{HELLO_WAIT, MAX_LINE_BYTES, VERSIONS};
use crate::{Input, InputOf, Machine, Output, Ticket};

/// The owner's side of one connection.
#[derive(Debug)]
pub struct PeerMachine {
    /// The version of this program, and its process id.
    program: String,
    pid: u32,
    has_said_hello: bool,
    is_closed: bool,
    /// The ids of the requests that the backend has not answered yet.
    pending: HashMap<Ticket, u64>,
    next_ticket: u64,
    outbox: VecDeque<Output<PeerRequest>>,
}

impl PeerMachine {
    /// The machine of a connection that began at `now`. `program` is the version of this program, `pid` its process id.
    pub fn new(now: Instant, program: &str, pid: u32) -> Self {
        Self {
            program: program.to_owned(),
            pid,
            has_said_hello: false,
            is_closed: false,
            pending: HashMap::new(),
            next_ticket: 0,
            outbox: VecDeque::from([Output::WakeAt(now + HELLO_WAIT)]),
        }
    }

    fn on_frame(&mut self, frame: &[u8]) -> Result<(), PeerFrameError> {
        let frame = serde_json::from_slice(frame);
        match frame.map_err(|error| PeerFrameError::Malformed(error.to_string()))? {
            ClientFrame::Hello(_) if self.has_said_hello => return Err(PeerFrameError::HelloRepeated),
            ClientFrame::Hello(hello) => self.on_hello(hello)?,
            ClientFrame::Command { .. }
            | ClientFrame::Delete { .. }
            | ClientFrame::Watch { .. }
            | ClientFrame::Unwatch { .. }
                if !self.has_said_hello =>
            {
                return Err(PeerFrameError::HelloMissing);
            }
            ClientFrame::Command { id, session, command } => {
                self.submit(id, PeerRequest::Session(session, Box::new(command.0)))
            }
            ClientFrame::Delete { id, session } => self.submit(id, PeerRequest::Delete(session)),
            ClientFrame::Watch { id, session } => self.submit(id, PeerRequest::Watch(session)),
            ClientFrame::Unwatch { id, session } => self.submit(id, PeerRequest::Unwatch(session)),
        }
        Ok(())
    }

    fn on_hello(&mut self, hello: ClientHello) -> Result<(), PeerFrameError> {
        let common = VERSIONS.iter().find(|version| hello.versions.contains(version));
        let version = *common.ok_or(PeerFrameError::NoCommonVersion(hello.versions))?;
        self.has_said_hello = true;
        self.send(&ServerFrame::Hello(ServerHello { version, program: self.program.clone(), pid: self.pid }));
        Ok(())
    }

    fn submit(&mut self, id: u64, request: PeerRequest) {
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        self.pending.insert(ticket, id);
        self.outbox.push_back(Output::Request(ticket, request));
    }

    fn on_answer(&mut self, ticket: Ticket, answer: Result<PeerReply, SessionRefusal>) {
        let Some(id) = self.pending.remove(&ticket) else { return };
        self.send(&match answer {
            Ok(PeerReply::Session(reply)) => ServerFrame::Reply { id, reply: Some(WireReply(reply)) },
            Ok(PeerReply::Done) => ServerFrame::Reply { id, reply: None },
            Err(refusal) => ServerFrame::Refusal { id, refusal: WireRefusal(refusal) },
        });
    }

    fn on_event(&mut self, event: &PeerEvent) {
        let session = event.session.clone();
        self.send(&match &event.update {
            PeerUpdate::Head(seq) => ServerFrame::Head { session, seq: seq.0 },
            PeerUpdate::Delta { run, stream, text } => ServerFrame::Delta {
                session,
                run: run.clone(),
                stream: WireStream(stream.clone()),
                text: text.clone(),
            },
            PeerUpdate::Closed => ServerFrame::Closed { session },
        });
    }

    fn send(&mut self, frame: &ServerFrame) {
        let bytes = serde_json::to_vec(frame).expect("frames have string keys and memory does not fail");
        self.outbox.push_back(Output::Send(bytes));
    }

    /// Reports what is wrong and closes: after a frame that it cannot read, the owner cannot know what was asked.
    fn fail(&mut self, error: &PeerFrameError) {
        self.send(&ServerFrame::Error { message: error.to_string() });
        self.outbox.push_back(Output::Close);
        self.is_closed = true;
    }
}

impl Machine for PeerMachine {
    type Request = PeerRequest;
    type Reply = PeerReply;
    type Event = PeerEvent;
    type Error = SessionRefusal;

    fn handle(&mut self, _now: Instant, input: InputOf<'_, Self>) {
        if self.is_closed {
            return;
        }
        let handled = match input {
            Input::Frame(frame) => self.on_frame(frame),
            Input::Oversize { limit } => Err(PeerFrameError::TooLong { limit }),
            Input::Deadline if !self.has_said_hello => Err(PeerFrameError::HelloLate),
            Input::Deadline => Ok(()),
            Input::Answer(ticket, answer) => {
                self.on_answer(ticket, answer);
                Ok(())
            }
            Input::Event(event) => {
                self.on_event(event);
                Ok(())
            }
        };
        if let Err(error) = handled {
            self.fail(&error);
        }
    }

    fn poll(&mut self) -> Option<Output<PeerRequest>> {
        self.outbox.pop_front()
    }

    /// The backend limits the unanswered requests.
    fn wants_frame(&self) -> bool {
        !self.is_closed
    }

    /// A process that has hung up reads no more.
    fn has_answered_all(&self) -> bool {
        true
    }

    fn max_line_bytes(&self) -> usize {
        MAX_LINE_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The frames that a new machine sends for these lines, and whether it closes.
    fn play(lines: &[&str]) -> (Vec<String>, Vec<PeerRequest>, bool) {
        let now = Instant::now();
        let mut machine = PeerMachine::new(now, "1.2.3", 42);
        for line in lines {
            machine.handle(now, Input::Frame(line.as_bytes()));
        }
        let (mut frames, mut requests, mut closes) = (Vec::new(), Vec::new(), false);
        while let Some(output) = machine.poll() {
            match output {
                Output::Send(frame) => frames.push(String::from_utf8(frame).unwrap()),
                Output::Request(_, request) => requests.push(request),
                Output::WakeAt(at) => assert_eq!(at, now + HELLO_WAIT),
                Output::Close => closes = true,
                Output::SendShared(_) => panic!("this door shares no frames"),
            }
        }
        (frames, requests, closes)
    }

    const HELLO: &str = r#"{"hello":{"versions":[9,1],"program":"9.9.9","pid":7}}"#;

    #[test]
    fn hello_chooses_a_common_version_and_requests_follow() {
        let watch = r#"{"watch":{"id":3,"session":"s"}}"#;
        let (frames, requests, closes) = play(&[HELLO, watch]);
        assert_eq!(frames, [r#"{"hello":{"version":1,"program":"1.2.3","pid":42}}"#]);
        assert_eq!(requests, [PeerRequest::Watch("s".parse().unwrap())]);
        assert!(!closes);
    }

    #[test]
    fn a_line_that_cannot_be_carried_out_closes_the_connection_and_nothing_after_it_is_read() {
        let delete = r#"{"delete":{"id":1,"session":"s"}}"#;
        let cases: [(&[&str], &str); 6] = [
            (&[delete, delete], "say hello first"),
            (&[HELLO, HELLO, delete], "hello was said before"),
            (&[r#"{"hello":{"versions":[2],"program":"","pid":1}}"#, delete], "version [1]"),
            (&[HELLO, "GET / HTTP/1.1", delete], "not a frame of the peer door"),
            (&[HELLO, r#"{"command":{"id":1,"session":"s","command":{"explode":{}}}}"#, delete], "explode"),
            (&[HELLO, r#"{"watch":{"id":"x","session":"s"}}"#, delete], "not a frame of the peer door"),
        ];
        for (lines, expected) in cases {
            let (frames, requests, closes) = play(lines);
            assert!(frames.last().unwrap().contains(expected), "{frames:?}");
            assert!(requests.is_empty() && closes, "{lines:?}");
        }
    }

    #[test]
    fn a_process_that_says_nothing_is_disconnected() {
        let now = Instant::now();
        let mut machine = PeerMachine::new(now, "1.2.3", 42);
        machine.handle(now + HELLO_WAIT, Input::Deadline);
        let outputs: Vec<_> = std::iter::from_fn(|| machine.poll()).collect();
        assert!(
            matches!(outputs.as_slice(), [Output::WakeAt(_), Output::Send(_), Output::Close]),
            "{outputs:?}"
        );
        assert!(!machine.wants_frame());
    }
}
