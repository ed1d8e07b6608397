//! The state machine of one connection: the handshake, then requests one after another.
//!
//! The machine replies to a request before it handles the next one, with one exception: a write. The reply to a write
//! waits until there is room for the bytes, and other requests do not wait for it.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::time::Instant;

use parlor_vocab::{ProcessEvent, ProcessId, ProcessRefusal, ProcessReply, ProcessRequest};

use super::code::{self, FrameError};
use super::decode::Request;
use super::wire::{
    ExecResponse, InitializeResponse, PROTOCOL_VERSION, TerminateResponse, WriteResponse, method,
};
use super::{MAX_LINE_BYTES, MAX_REQUEST_ID_BYTES, encode};
use crate::jsonrpc::{self, Envelope, RequestId};
use crate::{Input, InputOf, Machine, Output, Ticket};

/// The server's side of one connection.
#[derive(Debug, Default)]
pub struct ExecMachine {
    handshake: Handshake,
    /// Requests that the backend has not answered yet.
    pending: HashMap<Ticket, PendingRequest>,
    /// The request that the backend must answer before the machine takes the next frame.
    blocking: Option<Ticket>,
    next_ticket: u64,
    outbox: VecDeque<Output<ProcessRequest>>,
}

/// How far the handshake has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Handshake {
    /// The client has sent nothing yet.
    #[default]
    AwaitingInitialize,
    /// The client has sent `initialize` and must send the notification `initialized`.
    AwaitingInitialized,
    Complete,
}

/// What the reply needs once the backend has answered.
#[derive(Debug)]
struct PendingRequest {
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
                self.send_error(&FrameError::NotAMessage(format!("the line is longer than {limit} bytes")));
            }
            Input::Answer(ticket, answer) => self.on_answer(ticket, answer),
            Input::Event(event) => self.send(encode::event(event)),
            // The machine never sends `Output::WakeAt`.
            Input::Deadline => {}
        }
    }

    fn poll(&mut self) -> Option<Output<ProcessRequest>> {
        self.outbox.pop_front()
    }

    fn wants_frame(&self) -> bool {
        self.blocking.is_none()
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
        match Envelope::decode(frame) {
            Ok(Envelope::Request { id: RequestId::Text(id), .. }) if id.len() > MAX_REQUEST_ID_BYTES => {
                let error = FrameError::IdTooLong { bytes: id.len() };
                // Under its own id, however long: a client waits for that one.
                self.send(jsonrpc::error(&RequestId::Text(id), &code::frame_error(&error)));
            }
            Ok(Envelope::Request { id, method, params }) => {
                if let Err(error) =
                    Request::decode(&method, params).and_then(|request| self.on_request(&id, request))
                {
                    self.send(jsonrpc::error(&id, &code::frame_error(&error)));
                }
            }
            Ok(Envelope::Notification { method, .. }) => self.on_notification(method),
            // The server sends no requests, so a response answers nothing.
            Ok(Envelope::Response { .. }) => {}
            Err(malformed) => self.send_error(&FrameError::NotAMessage(malformed.to_string())),
        }
    }

    fn on_notification(&mut self, name: String) {
        if name != method::INITIALIZED {
            self.send_error(&FrameError::UnexpectedNotification(name));
        } else if self.handshake == Handshake::AwaitingInitialized {
            self.handshake = Handshake::Complete;
        }
    }

    fn on_request(&mut self, id: &RequestId, request: Request) -> Result<(), FrameError> {
        let is_initialize = matches!(request, Request::Initialize);
        match self.handshake {
            Handshake::AwaitingInitialize if is_initialize => {}
            Handshake::AwaitingInitialize => return Err(FrameError::InitializeMissing),
            Handshake::AwaitingInitialized | Handshake::Complete if is_initialize => {
                return Err(FrameError::InitializeRepeated);
            }
            Handshake::AwaitingInitialized => return Err(FrameError::InitializedMissing),
            Handshake::Complete => {}
        }
        match request {
            Request::Initialize => {
                self.handshake = Handshake::AwaitingInitialized;
                let protocol_version = Cow::Borrowed(PROTOCOL_VERSION);
                self.send(jsonrpc::result(id, &InitializeResponse { protocol_version }));
            }
            Request::Start(start) => {
                let process = start.process.clone();
                let ticket = self.submit(id, process, ProcessRequest::StartProcess(start));
                self.blocking = Some(ticket);
            }
            Request::Write { process, bytes } => {
                self.submit(id, process.clone(), ProcessRequest::WriteProcess { process, bytes });
            }
            Request::Terminate { process } => {
                let ticket = self.submit(id, process.clone(), ProcessRequest::TerminateProcess { process });
                self.blocking = Some(ticket);
            }
        }
        Ok(())
    }

    fn on_answer(&mut self, ticket: Ticket, answer: Result<ProcessReply, ProcessRefusal>) {
        if self.blocking == Some(ticket) {
            self.blocking = None;
        }
        let Some(PendingRequest { id, process }) = self.pending.remove(&ticket) else { return };
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
            Err(refusal) => jsonrpc::error(&id, &code::refusal(&refusal)),
        };
        self.send(frame);
    }

    fn submit(&mut self, id: &RequestId, process: ProcessId, request: ProcessRequest) -> Ticket {
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        self.pending.insert(ticket, PendingRequest { id: id.clone(), process });
        self.outbox.push_back(Output::Request(ticket, request));
        ticket
    }

    /// Sends an error that answers no request.
    fn send_error(&mut self, error: &FrameError) {
        self.send(jsonrpc::error(&RequestId::NONE, &code::frame_error(error)));
    }

    fn send(&mut self, frame: Vec<u8>) {
        self.outbox.push_back(Output::Send(frame));
    }
}
