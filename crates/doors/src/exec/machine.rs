//! One connection: the handshake, then requests one after another.
//!
//! A reply precedes the next request's start, with one exception: a write to a process that does
//! not read is answered when there is room for its bytes, and holds up nobody else.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::time::Instant;

use parlor_vocab::{ProcessEvent, ProcessId, ProcessRefusal, ProcessReply, ProcessRequest};

use super::code::{self, FrameError};
use super::decode::Request;
use super::protocol::{
    ExecResponse, InitializeResponse, PROTOCOL_VERSION, TerminateResponse, WriteResponse, method,
};
use super::{MAX_LINE_BYTES, MAX_REQUEST_ID_BYTES, encode};
use crate::jsonrpc::{self, Message, RequestId};
use crate::{Input, InputOf, Machine, Output, Ticket};

/// The server's side of one connection.
#[derive(Debug, Default)]
pub struct ExecMachine {
    stage: Stage,
    /// Questions put to the engine and not answered yet.
    asked: HashMap<Ticket, Asked>,
    /// The one question that must be answered before the next frame is looked at.
    awaiting: Option<Ticket>,
    next_ticket: u64,
    outbox: VecDeque<Output<ProcessRequest>>,
}

/// How far the handshake has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Connected,
    Greeted,
    Ready,
}

/// What the peer is to be told once the engine has answered.
#[derive(Debug)]
struct Asked {
    id: RequestId,
    process: ProcessId,
}

impl Machine for ExecMachine {
    type Request = ProcessRequest;
    type Reply = ProcessReply;
    type Event = ProcessEvent;
    type Error = ProcessRefusal;

    fn handle(&mut self, _now: Instant, input: InputOf<'_, Self>) {
        match input {
            Input::Frame(frame) => self.on_frame(frame),
            Input::Oversize { limit } => {
                self.complain(&FrameError::NoMessage(format!("the line is longer than {limit} bytes")));
            }
            Input::Answer(ticket, answer) => self.on_answer(ticket, answer),
            Input::Event(event) => self.send(encode::event(event)),
            // It never asks to be woken.
            Input::Deadline => {}
        }
    }

    fn poll(&mut self) -> Option<Output<ProcessRequest>> {
        self.outbox.pop_front()
    }

    fn wants_frame(&self) -> bool {
        self.awaiting.is_none()
    }

    fn max_line_bytes(&self) -> usize {
        MAX_LINE_BYTES
    }
}

impl ExecMachine {
    fn on_frame(&mut self, frame: &[u8]) {
        if frame.trim_ascii().is_empty() {
            return;
        }
        match Message::decode(frame) {
            Ok(Message::Request { id: RequestId::Text(id), .. }) if id.len() > MAX_REQUEST_ID_BYTES => {
                self.complain(&FrameError::LongId { bytes: id.len() });
            }
            Ok(Message::Request { id, method, params }) => {
                if let Err(flaw) =
                    Request::decode(&method, params).and_then(|request| self.on_request(&id, request))
                {
                    self.send(jsonrpc::error(&id, &code::of_flaw(&flaw)));
                }
            }
            Ok(Message::Notification { method, .. }) => self.on_notification(method),
            // This server asks nothing, so this answers nothing.
            Ok(Message::Response { .. }) => {}
            Err(malformed) => self.complain(&FrameError::NoMessage(malformed.to_string())),
        }
    }

    fn on_notification(&mut self, name: String) {
        if name != method::INITIALIZED {
            self.complain(&FrameError::UnexpectedNotification(name));
        } else if self.stage == Stage::Greeted {
            self.stage = Stage::Ready;
        }
    }

    fn on_request(&mut self, id: &RequestId, request: Request) -> Result<(), FrameError> {
        let greeting = matches!(request, Request::Initialize);
        match self.stage {
            Stage::Connected if greeting => {}
            Stage::Connected => return Err(FrameError::NotGreeted),
            Stage::Greeted | Stage::Ready if greeting => return Err(FrameError::AlreadyGreeted),
            Stage::Greeted => return Err(FrameError::NotReady),
            Stage::Ready => {}
        }
        match request {
            Request::Initialize => {
                self.stage = Stage::Greeted;
                let protocol_version = Cow::Borrowed(PROTOCOL_VERSION);
                self.send(jsonrpc::result(id, &InitializeResponse { protocol_version }));
            }
            Request::Start(start) => {
                let process = start.process.clone();
                let ticket = self.ask(id, process, ProcessRequest::StartProcess(start));
                self.awaiting = Some(ticket);
            }
            Request::Write { process, bytes } => {
                self.ask(id, process.clone(), ProcessRequest::WriteProcess { process, bytes });
            }
            Request::Terminate { process } => {
                let ticket = self.ask(id, process.clone(), ProcessRequest::TerminateProcess { process });
                self.awaiting = Some(ticket);
            }
        }
        Ok(())
    }

    fn on_answer(&mut self, ticket: Ticket, answer: Result<ProcessReply, ProcessRefusal>) {
        if self.awaiting == Some(ticket) {
            self.awaiting = None;
        }
        let Some(Asked { id, process }) = self.asked.remove(&ticket) else { return };
        let frame = match answer {
            Ok(ProcessReply::ProcessStarted) => {
                let process_id = process.as_str().to_owned();
                jsonrpc::result(
                    &id,
                    &ExecResponse { process_id, running: true, exit_code: None, stdout: None, stderr: None },
                )
            }
            Ok(ProcessReply::WriteAccepted) => jsonrpc::result(&id, &WriteResponse { accepted: true }),
            Ok(ProcessReply::ProcessTerminating { was_running }) => {
                jsonrpc::result(&id, &TerminateResponse { running: was_running })
            }
            Err(refusal) => jsonrpc::error(&id, &code::of_refusal(&refusal)),
        };
        self.send(frame);
    }

    fn ask(&mut self, id: &RequestId, process: ProcessId, command: ProcessRequest) -> Ticket {
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        self.asked.insert(ticket, Asked { id: id.clone(), process });
        self.outbox.push_back(Output::Request(ticket, command));
        ticket
    }

    /// An error that answers no request.
    fn complain(&mut self, flaw: &FrameError) {
        self.send(jsonrpc::error(&RequestId::NONE, &code::of_flaw(flaw)));
    }

    fn send(&mut self, frame: Vec<u8>) {
        self.outbox.push_back(Output::Send(frame));
    }
}
