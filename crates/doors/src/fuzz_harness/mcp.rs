//! Checks the guarantees of the MCP door.
//!
//! Each request is answered once, with its id, unless the client cancels it: then it is answered at most once. Reports of
//! progress grow, and come only while their request is open. Every frame is one line of JSON.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parlor_vocab::{
    Failure, FailureCode, RegistryReply, RegistryRequest, RunId, RunReport, RunState, SessionId,
    SessionRefusal, SessionReply, ToolAnnotations, ToolClientEvent, ToolClientReply, ToolClientRequest,
    ToolInfo, ToolOutput,
};
use serde_json::Value;

use super::LINE_BYTES;
use super::choices::Choices;
use crate::jsonrpc::Envelope;
use crate::lines::{Line, Lines};
use crate::mcp::{McpMachine, McpParams, McpTools, McpTransport};
use crate::{Input, Machine, Output, Ticket};

type Answer = Result<ToolClientReply, SessionRefusal>;

pub(super) struct Conversation<'a> {
    machine: McpMachine,
    choices: Choices<'a>,
    /// The requests that the backend has not answered.
    requests: Vec<(Ticket, ToolClientRequest)>,
    now: Instant,
    /// How many more answers than requests each id has had.
    answers: HashMap<String, i64>,
    /// Whether a frame was no request and no notification. Its answer has the id that the door could read.
    has_malformed: bool,
    /// The ids that the client has cancelled.
    cancelled: Vec<String>,
    /// The last progress of each token.
    progress: HashMap<String, f64>,
    received: Vec<Vec<u8>>,
}

impl<'a> Conversation<'a> {
    pub(super) fn new(choices: &'a [u8]) -> Self {
        let tool = ToolInfo {
            name: "shell".to_owned(),
            title: None,
            description: String::new(),
            schema: "{}".to_owned(),
            output_schema: None,
            annotations: ToolAnnotations::default(),
        };
        let params = McpParams {
            transport: McpTransport::Stdio,
            tools: Arc::new(McpTools::new(&[tool])),
            folder: "/".into(),
            instructions: String::new(),
            key_prefix: "key".to_owned(),
        };
        Self {
            machine: McpMachine::new(params),
            choices: Choices::new(choices),
            requests: Vec::new(),
            now: Instant::now(),
            answers: HashMap::new(),
            has_malformed: false,
            cancelled: Vec::new(),
            progress: HashMap::new(),
            received: Vec::new(),
        }
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
        while !self.requests.is_empty() {
            self.answer_one();
        }
        for (id, count) in &self.answers {
            let may_be_open = self.cancelled.contains(id) || self.has_subscription(id);
            assert!(*count >= 0 || may_be_open, "{id} was not answered");
            assert!(*count <= 0 || self.has_malformed, "{id} was answered too often");
        }
        self.received
    }

    /// Whether the frames acknowledge a subscription of this id, which is never answered.
    fn has_subscription(&self, id: &str) -> bool {
        let marker = format!("\"io.modelcontextprotocol/subscriptionId\":{id}");
        self.received.iter().any(|frame| String::from_utf8_lossy(frame).contains(&marker))
    }

    fn on_line(&mut self, line: Line<'_>) {
        assert!(self.machine.wants_frame(), "the client must always be able to cancel");
        let input = match line {
            Line::Whole(frame) => {
                self.note(frame);
                Input::Frame(frame)
            }
            Line::Oversize => Input::Oversize { limit: LINE_BYTES },
        };
        self.machine.handle(self.now, input);
        self.drain();
        for _ in 0..self.choices.burst() {
            self.now += Duration::from_millis(u64::from(self.choices.next()) * 4);
            match self.choices.next() % 4 {
                0 => self.report_progress(),
                _ if self.requests.is_empty() => {}
                _ => self.answer_one(),
            }
        }
    }

    /// Takes note of what a frame asks for.
    fn note(&mut self, frame: &[u8]) {
        // A frame with this member twice is answered without an id.
        if frame.windows(9).filter(|part| *part == b"\"jsonrpc\"").count() > 1 {
            self.has_malformed = true;
            return;
        }
        match Envelope::decode(frame.trim_ascii()) {
            Ok(Envelope::Request { id, .. }) => {
                let id = serde_json::to_string(&id).expect("an id is a string or a number");
                *self.answers.entry(id).or_default() -= 1;
            }
            Ok(Envelope::Notification { method, params: Some(params) })
                if method == "notifications/cancelled" =>
            {
                let params: Value = serde_json::from_str(params.get()).unwrap_or_default();
                self.cancelled.push(params["requestId"].to_string());
            }
            Ok(Envelope::Notification { .. }) => {}
            Ok(Envelope::Response { .. }) | Err(_) => self.has_malformed = true,
        }
    }

    fn report_progress(&mut self) {
        let Some(index) = self.choices.index(self.requests.len()) else { return };
        let Some((ticket, _)) = self.requests.get(index) else { return };
        let done = match self.choices.next() {
            0 => None,
            done => Some((f64::from(done) - 3.0, None)),
        };
        let event = ToolClientEvent::Progress { ticket: *ticket, done, message: None };
        self.machine.handle(self.now, Input::Event(&event));
        self.drain();
    }

    fn answer_one(&mut self) {
        let Some(index) = self.choices.index(self.requests.len()) else { return };
        let (ticket, request) = self.requests.remove(index);
        let answer = self.carry_out(request);
        self.machine.handle(self.now, Input::Answer(ticket, answer));
        self.drain();
    }

    fn carry_out(&mut self, request: ToolClientRequest) -> Answer {
        let session = SessionId::parse("s").expect("short");
        let run = RunId::parse("r").expect("short");
        if self.choices.next() % 8 == 7 {
            return Err(SessionRefusal::UnknownSession(session));
        }
        let failure = Failure { code: FailureCode::ToolError, message: "no".to_owned(), retryable: false };
        Ok(match request {
            ToolClientRequest::Registry(RegistryRequest::Create { .. }) => {
                ToolClientReply::Registry(RegistryReply::Created(session))
            }
            ToolClientRequest::Registry(_) => {
                let reply = match self.choices.next() % 4 {
                    0 => SessionReply::Started(run),
                    1 => SessionReply::Queued { run, waiting: 1 },
                    2 => SessionReply::Stopping(run),
                    _ => SessionReply::Done,
                };
                ToolClientReply::Registry(RegistryReply::Session(reply))
            }
            ToolClientRequest::CallTool { input, .. } => match self.choices.next() % 2 {
                0 => ToolClientReply::Called(Ok(ToolOutput::text(input))),
                _ => ToolClientReply::Called(Err(failure)),
            },
            ToolClientRequest::AwaitRun { .. } => {
                let state = match self.choices.next() % 3 {
                    0 => RunState::Completed,
                    1 => RunState::Running,
                    _ => RunState::Failed(failure),
                };
                ToolClientReply::Run(Some(Box::new(RunReport { run, state, text: String::new() })))
            }
            ToolClientRequest::ReadLog { .. } => {
                ToolClientReply::Log { entries: Vec::new(), has_more: false }
            }
            ToolClientRequest::ListSessions { .. } => {
                ToolClientReply::Sessions { sessions: Vec::new(), next: None }
            }
            ToolClientRequest::CheckFolder(_) | ToolClientRequest::Cancel(_) => ToolClientReply::Done,
        })
    }

    fn drain(&mut self) {
        while let Some(output) = self.machine.poll() {
            match output {
                Output::Send(frame) => self.receive(frame),
                Output::SendShared(_) => panic!("this door shares no frames"),
                Output::Request(ticket, request) => self.requests.push((ticket, request)),
                Output::WakeAt(_) => panic!("the machine has no deadlines"),
                Output::Close => panic!("a connection on stdio ends when the client closes it"),
            }
        }
    }

    fn receive(&mut self, frame: Vec<u8>) {
        assert!(!frame.contains(&b'\n'), "a frame is a line");
        let value: Value = serde_json::from_slice(&frame).expect("a frame is JSON");
        assert_eq!(value["jsonrpc"], "2.0");
        if value["method"] == "notifications/progress" {
            let token = value["params"]["progressToken"].to_string();
            let progress = value["params"]["progress"].as_f64().expect("progress is a number");
            assert!(progress > 0.0, "{value}");
            self.progress.insert(token, progress);
        } else if let Some(id) = value.get("id") {
            assert!(value.get("result").is_some() != value.get("error").is_some(), "{value}");
            *self.answers.entry(id.to_string()).or_default() += 1;
        } else {
            assert!(value.get("error").is_some() || value["method"].is_string(), "{value}");
        }
        self.received.push(frame);
    }
}
