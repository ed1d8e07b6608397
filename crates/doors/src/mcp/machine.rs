//! The state machine of one connection. `dispatch` routes requests and answers; the files beside it carry them out.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Instant;

use parlor_vocab::{SessionRefusal, ToolClientEvent, ToolClientReply, ToolClientRequest};
use serde_json::{Map, Value, json};

use super::code::{self, Error};
use super::era::Era;
use super::params::{McpParams, McpTransport};
use super::session_calls::Step;
use super::{MAX_FRAME_BYTES, MAX_OPEN_REQUESTS, MAX_RUNNING_CALLS, PROGRESS_INTERVAL, encode};
use crate::jsonrpc::RequestId;
use crate::{Input, InputOf, Machine, Output, Ticket};

/// The server's side of a connection.
pub struct McpMachine {
    pub(super) params: McpParams,
    /// Whether the client has sent `initialize`.
    pub(super) is_initialized: bool,
    /// The name that the client gave itself in `initialize`.
    pub(super) client: Option<String>,
    /// The requests that are not answered. A client may use the id of a cancelled request again, so they have keys of our own.
    pub(super) open: BTreeMap<RequestKey, OpenRequest>,
    /// What the backend was asked, and for which request.
    pending: HashMap<Ticket, Pending>,
    /// The calls that wait until others have ended: the tool and its input.
    waiting: VecDeque<(RequestKey, String, String)>,
    next_request: u64,
    next_ticket: u64,
    next_input: u64,
    outbox: VecDeque<Output<ToolClientRequest>>,
}

/// Identifies a request of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RequestKey(u64);

/// A request that is not answered.
#[derive(Debug)]
pub(super) struct OpenRequest {
    pub(super) id: RequestId,
    pub(super) era: Era,
    pub(super) is_subscription: bool,
    /// The name that the client gives itself in this request.
    pub(super) client: Option<String>,
    progress: Option<SentProgress>,
    /// What the backend does for it at the moment.
    ticket: Option<Ticket>,
}

/// The progress of a request, as the client knows it.
#[derive(Debug)]
struct SentProgress {
    token: RequestId,
    last: f64,
    sent_at: Option<Instant>,
}

/// What to do with an answer of the backend.
enum Pending {
    /// The next step of a request, which may have been cancelled.
    Step(RequestKey, Step),
    /// The request was only to cancel another one.
    Cancel,
}

impl McpMachine {
    /// A connection on which nothing has been said.
    pub fn new(params: McpParams) -> Self {
        Self {
            params,
            is_initialized: false,
            client: None,
            open: BTreeMap::new(),
            pending: HashMap::new(),
            waiting: VecDeque::new(),
            next_request: 0,
            next_ticket: 0,
            next_input: 0,
            outbox: VecDeque::new(),
        }
    }
}

impl Machine for McpMachine {
    type Request = ToolClientRequest;
    type Reply = ToolClientReply;
    type Event = ToolClientEvent;
    type Error = SessionRefusal;

    fn handle(&mut self, now: Instant, input: InputOf<'_, Self>) {
        match input {
            Input::Frame(frame) => self.on_frame(frame),
            Input::Oversize { .. } => self.send_error(None, &code::oversize()),
            Input::Answer(ticket, answer) => self.on_answer(ticket, answer),
            Input::Event(ToolClientEvent::Progress { ticket, done, message }) => {
                self.on_progress(now, *ticket, *done, message.as_deref());
            }
            Input::Event(ToolClientEvent::Registry(_)) | Input::Deadline => {}
        }
    }

    fn poll(&mut self) -> Option<Output<ToolClientRequest>> {
        self.outbox.pop_front()
    }

    fn wants_frame(&self) -> bool {
        true
    }

    /// Calls and waits may take minutes; those of a client that has closed its side are cancelled soon.
    fn has_answered_all(&self) -> bool {
        !self.pending.values().any(|pending| matches!(pending, Pending::Step(_, step) if step.is_quick()))
    }

    fn max_line_bytes(&self) -> usize {
        MAX_FRAME_BYTES
    }
}

impl McpMachine {
    /// Takes note of a request. Fails if its id is in use, or if too many are open.
    pub(super) fn open_request(
        &mut self,
        id: &RequestId,
        era: Era,
        client: Option<String>,
        progress_token: Option<RequestId>,
    ) -> Result<RequestKey, Error> {
        if self.open.values().any(|open| open.id == *id) {
            return Err(code::invalid_request("another request with this `id` is not answered yet"));
        }
        if self.open.len() >= MAX_OPEN_REQUESTS {
            return Err(code::too_many_requests());
        }
        let progress = progress_token.map(|token| SentProgress { token, last: 0.0, sent_at: None });
        self.next_request += 1;
        let key = RequestKey(self.next_request);
        let open = OpenRequest {
            id: id.clone(),
            era,
            is_subscription: false,
            client: client.or_else(|| self.client.clone()),
            progress,
            ticket: None,
        };
        self.open.insert(key, open);
        Ok(key)
    }

    /// Answers a request, unless it was cancelled.
    pub(super) fn answer(&mut self, key: RequestKey, result: Map<String, Value>) {
        if let Some(request) = self.open.remove(&key) {
            self.send_answer(encode::result(&request.id, request.era, result));
        }
    }

    /// Answers a request with an error, unless it was cancelled.
    pub(super) fn refuse(&mut self, key: RequestKey, error: &Error) {
        if let Some(request) = self.open.remove(&key) {
            self.send_error(Some(&request.id), error);
        }
    }

    pub(super) fn send_error(&mut self, id: Option<&RequestId>, error: &Error) {
        self.send_answer(encode::error(id, error));
    }

    /// Sends an answer. Over HTTP it is the end of the connection.
    pub(super) fn send_answer(&mut self, frame: Vec<u8>) {
        self.send(frame);
        if self.params.transport == McpTransport::Http {
            self.outbox.push_back(Output::Close);
        }
    }

    pub(super) fn send(&mut self, frame: Vec<u8>) {
        self.outbox.push_back(Output::Send(frame));
    }

    /// Asks the backend for the next step of a request.
    pub(super) fn submit(&mut self, key: RequestKey, request: ToolClientRequest, step: Step) {
        let ticket = self.new_ticket();
        if let Some(open) = self.open.get_mut(&key) {
            open.ticket = Some(ticket);
        }
        self.pending.insert(ticket, Pending::Step(key, step));
        self.outbox.push_back(Output::Request(ticket, request));
    }

    /// Calls a tool, or puts the call into the queue if too many are running.
    pub(super) fn call_tool(&mut self, key: RequestKey, tool: String, input: String) {
        let is_call = |pending: &&Pending| matches!(pending, Pending::Step(_, Step::Call));
        if self.pending.values().filter(is_call).count() >= MAX_RUNNING_CALLS {
            return self.waiting.push_back((key, tool, input));
        }
        self.submit(key, ToolClientRequest::CallTool { tool, input }, Step::Call);
    }

    /// Drops the request with this id: it is not answered, and what the backend does for it ends.
    pub(super) fn cancel(&mut self, id: &RequestId) {
        let Some(key) = self.open.iter().find(|(_, open)| open.id == *id).map(|(key, _)| *key) else {
            return;
        };
        let Some(request) = self.open.remove(&key) else { return };
        self.waiting.retain(|(waiting, ..)| *waiting != key);
        if let Some(running) = request.ticket {
            let ticket = self.new_ticket();
            self.pending.insert(ticket, Pending::Cancel);
            self.outbox.push_back(Output::Request(ticket, ToolClientRequest::Cancel(running)));
        }
    }

    fn on_answer(&mut self, ticket: Ticket, answer: Result<ToolClientReply, SessionRefusal>) {
        let Some(Pending::Step(key, step)) = self.pending.remove(&ticket) else { return };
        let was_call = matches!(step, Step::Call);
        if let Some(open) = self.open.get_mut(&key) {
            open.ticket = None;
            self.on_step(key, step, answer);
        }
        if was_call && let Some((key, tool, input)) = self.waiting.pop_front() {
            self.call_tool(key, tool, input);
        }
    }

    /// Tells the client how far a request is, if it wants to know. What it is told always grows.
    fn on_progress(
        &mut self,
        now: Instant,
        ticket: Ticket,
        done: Option<(f64, Option<f64>)>,
        message: Option<&str>,
    ) {
        let request = self.open.values_mut().find(|open| open.ticket == Some(ticket));
        let Some(progress) = request.and_then(|open| open.progress.as_mut()) else { return };
        let is_early =
            progress.sent_at.is_some_and(|at| now.saturating_duration_since(at) < PROGRESS_INTERVAL);
        let (value, total) = done.unwrap_or((progress.last + 1.0, None));
        if is_early || !value.is_finite() || value <= progress.last {
            return;
        }
        (progress.last, progress.sent_at) = (value, Some(now));
        let mut params = json!({"progressToken": progress.token, "progress": value});
        if let Some(total) = total.filter(|total| total.is_finite()) {
            params["total"] = json!(total);
        }
        if let Some(message) = message {
            params["message"] = message.into();
        }
        self.send(encode::notification("notifications/progress", &params));
    }

    /// A key for an input of this connection.
    pub(super) fn new_input_key(&mut self) -> String {
        self.next_input += 1;
        format!("{}-{}", self.params.key_prefix, self.next_input)
    }

    fn new_ticket(&mut self) -> Ticket {
        self.next_ticket += 1;
        Ticket(self.next_ticket)
    }
}
