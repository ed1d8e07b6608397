//! The state machine of one connection: the handshake, then requests one after another.
//!
//! The machine replies to a request before it handles the next one, with three exceptions: a write, a read of output and an
//! HTTP request. The reply to a write waits until there is room for the bytes, that to a read until there is output if the
//! client asked for it, and other requests do not wait for them.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::time::Instant;

use parlor_vocab::{
    ExecutorEvent, ExecutorRefusal, ExecutorReply, ExecutorRequest, ProcessId, ProcessReply, ProcessRequest,
};
use serde_json::json;

use super::code::{self, FrameError};
use super::decode::Request;
use super::wire::{
    ExecResponse, InitializeResponse, PROTOCOL_VERSION, TerminateResponse, WriteResponse, method,
};
use super::{MAX_LINE_BYTES, MAX_REQUEST_ID_BYTES, encode, http, replies};
use crate::jsonrpc::{self, Envelope, RequestId};
use crate::{Input, InputOf, Machine, Output, Ticket};

/// The server's side of one connection.
#[derive(Debug, Default)]
pub struct ExecMachine {
    transport: Transport,
    handshake: Handshake,
    /// Whether the client asked for a session, as clients of today's protocol do.
    has_session: bool,
    /// Requests that the backend has not answered yet.
    pending: HashMap<Ticket, PendingRequest>,
    /// The request that the backend must answer before the machine takes the next frame.
    blocking: Option<Ticket>,
    next_ticket: u64,
    outbox: VecDeque<Output<ExecutorRequest>>,
}

/// What carries the frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Transport {
    /// Lines on standard input and output.
    #[default]
    Stdio,
    /// Messages, and only clients of today's protocol.
    WebSocket,
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
    /// The process to start, if it is a start.
    process: Option<ProcessId>,
}

impl Machine for ExecMachine {
    type Request = ExecutorRequest;
    type Reply = ExecutorReply;
    type Event = ExecutorEvent;
    type Error = ExecutorRefusal;

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

    fn poll(&mut self) -> Option<Output<ExecutorRequest>> {
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
    /// A connection over a WebSocket. All its clients speak today's protocol.
    pub fn for_websocket() -> Self {
        Self { transport: Transport::WebSocket, has_session: true, ..Self::default() }
    }

    fn on_frame(&mut self, frame: &[u8]) {
        if self.transport == Transport::Stdio && frame.trim_ascii().is_empty() {
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
                    let error = if self.has_session { error.of_today() } else { error };
                    self.send(jsonrpc::error(&id, &code::frame_error(&error)));
                }
            }
            Ok(Envelope::Notification { method, .. }) => self.on_notification(method),
            // The server sends no requests, so a response answers nothing.
            Ok(Envelope::Response { .. }) => {}
            Err(malformed) => self.send_error(&match self.transport {
                Transport::Stdio => FrameError::NotAMessage(malformed.to_string()),
                Transport::WebSocket => FrameError::NotAWebSocketMessage(malformed.to_string()),
            }),
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
        let is_initialize = matches!(request, Request::Initialize { .. });
        match self.handshake {
            Handshake::AwaitingInitialize if is_initialize => {}
            Handshake::AwaitingInitialize => return Err(FrameError::InitializeMissing(request.family())),
            Handshake::AwaitingInitialized | Handshake::Complete if is_initialize => {
                return Err(FrameError::InitializeRepeated);
            }
            Handshake::AwaitingInitialized => return Err(FrameError::InitializedMissing(request.family())),
            Handshake::Complete => {}
        }
        match request {
            Request::Initialize { session } => {
                self.handshake = Handshake::AwaitingInitialized;
                self.has_session |= session.is_some();
                if self.has_session {
                    let resume = session.flatten();
                    self.submit(id, ExecutorRequest::OpenSession { resume });
                } else {
                    let protocol_version = Cow::Borrowed(PROTOCOL_VERSION);
                    self.send(jsonrpc::result(id, &InitializeResponse { protocol_version }));
                }
            }
            Request::Status => self.send(jsonrpc::result(id, &json!({"status": "ready"}))),
            Request::Submit(request) => self.submit(id, request),
        }
        Ok(())
    }

    fn on_answer(&mut self, ticket: Ticket, answer: Result<ExecutorReply, ExecutorRefusal>) {
        if self.blocking == Some(ticket) {
            self.blocking = None;
        }
        let Some(PendingRequest { id, process }) = self.pending.remove(&ticket) else { return };
        let frame = match answer {
            Ok(ExecutorReply::Process(reply)) => first_family_reply(&id, process.as_ref(), reply),
            Ok(ExecutorReply::SessionOpened(info)) => jsonrpc::result(&id, &replies::initialized(&info)),
            Ok(ExecutorReply::Environment(info)) => jsonrpc::result(&id, &replies::environment(&info)),
            Ok(ExecutorReply::SequencedStarted { is_sandboxed }) => {
                jsonrpc::result(&id, &replies::started(process.as_ref(), is_sandboxed))
            }
            Ok(ExecutorReply::Write(outcome)) => jsonrpc::result(&id, &replies::write(outcome)),
            Ok(ExecutorReply::InterruptSent) => jsonrpc::result(&id, &json!({})),
            Ok(ExecutorReply::EndingProcess { was_running }) => {
                jsonrpc::result(&id, &TerminateResponse { running: was_running })
            }
            Ok(ExecutorReply::Output(page)) => jsonrpc::result(&id, &replies::output(&page)),
            Ok(ExecutorReply::Http(reply)) => jsonrpc::result(&id, &http::reply(&reply)),
            Ok(ExecutorReply::File(reply)) => replies::file(&id, &reply),
            Err(refusal) => {
                if matches!(refusal, ExecutorRefusal::UnknownSession(_) | ExecutorRefusal::SessionAttached(_))
                {
                    // The client may try again.
                    self.handshake = Handshake::AwaitingInitialize;
                }
                jsonrpc::error(&id, &code::refusal(&refusal))
            }
        };
        self.send(frame);
    }

    fn submit(&mut self, id: &RequestId, request: ExecutorRequest) {
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        let process = match &request {
            ExecutorRequest::Process(ProcessRequest::StartProcess(start)) => Some(start.process.clone()),
            ExecutorRequest::StartSequenced(start) => Some(start.start.process.clone()),
            ExecutorRequest::Process(_)
            | ExecutorRequest::OpenSession { .. }
            | ExecutorRequest::DescribeEnvironment
            | ExecutorRequest::WriteOnce { .. }
            | ExecutorRequest::InterruptProcess { .. }
            | ExecutorRequest::EndProcess { .. }
            | ExecutorRequest::ReadOutput(_)
            | ExecutorRequest::File { .. }
            | ExecutorRequest::Http(_) => None,
        };
        let may_wait = matches!(
            request,
            ExecutorRequest::Process(ProcessRequest::WriteProcess { .. })
                | ExecutorRequest::WriteOnce { .. }
                | ExecutorRequest::ReadOutput(_)
                | ExecutorRequest::Http(_)
        );
        if !may_wait {
            self.blocking = Some(ticket);
        }
        self.pending.insert(ticket, PendingRequest { id: id.clone(), process });
        self.outbox.push_back(Output::Request(ticket, request));
    }

    /// Sends an error that answers no request.
    fn send_error(&mut self, error: &FrameError) {
        self.send(jsonrpc::error(&RequestId::NONE, &code::frame_error(error)));
    }

    fn send(&mut self, frame: Vec<u8>) {
        self.outbox.push_back(Output::Send(frame));
    }
}

fn first_family_reply(id: &RequestId, process: Option<&ProcessId>, reply: ProcessReply) -> Vec<u8> {
    match reply {
        ProcessReply::ProcessStarted => {
            let process_id = process.map(|process| process.as_str().to_owned()).unwrap_or_default();
            jsonrpc::result(
                id,
                &ExecResponse { process_id, running: true, exit_code: None, stdout: None, stderr: None },
            )
        }
        ProcessReply::WriteAccepted => jsonrpc::result(id, &WriteResponse { accepted: true }),
        ProcessReply::ProcessTerminating { was_running } => {
            jsonrpc::result(id, &TerminateResponse { running: was_running })
        }
    }
}
