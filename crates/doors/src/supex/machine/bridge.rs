//! The bridge: the machine of a connection on which `hello` is followed by tool calls.

use std::sync::Arc;
use std::time::Instant;

use parlor_vocab::{EvaluationResult, RubyJob, RubyRefusal, RubyReply, RubyRequest, UpstreamError};
use serde_json::value::RawValue;

use super::super::code::{self, FrameError, ServerKind};
use super::super::decode::{self, NULL_ID, Request};
use super::super::identity::{HelloToken, Identity};
use super::super::results::{
    ConsoleStatus, EvalResult, FileResult, NO_PATH, OwnResult, Reloaded, Resources, ToolPing, restart_notice,
    with_notice,
};
use super::super::tool::{self, Tool, ToolAction, ToolKind};
use super::super::tool_list::ToolList;
use super::super::wire::{HelloResult, ServerInfo, method};
use super::super::{HELLO_LINE_BYTES, HELLO_WAIT, IDLE_WAIT, MAX_REQUEST_BYTES, RUNTIME_VERSION, encode};
use super::{Outgoing, Pending, max_reply_bytes, printed_text};
use crate::json::Members;
use crate::{Input, InputOf, Machine, Output, Ticket};

/// The server's side of one connection to the bridge.
#[derive(Debug)]
pub struct BridgeMachine {
    token: Option<Arc<HelloToken>>,
    attach: AttachInfo,
    handshake: Handshake,
    /// When the last line or answer arrived.
    last_active: Instant,
    out: Outgoing<RequestKind>,
}

/// What `hello` tells clients that ask for `attach`.
#[derive(Clone, Debug)]
pub struct AttachInfo {
    /// The name of this start of the server; no other start has the same name.
    instance: Arc<str>,
    /// A nonce for the client of this connection, which nobody else can guess: ASCII letters and digits, at most
    /// [`MAX_NONCE_BYTES`](crate::supex::MAX_NONCE_BYTES).
    nonce: String,
}

impl AttachInfo {
    /// The name of this start of the server, and the nonce for one connection.
    pub fn new(instance: impl Into<Arc<str>>, nonce: impl Into<String>) -> Self {
        Self { instance: instance.into(), nonce: nonce.into() }
    }
}

/// How far the handshake has come.
#[derive(Debug)]
enum Handshake {
    AwaitingHello,
    Complete(Identity),
}

/// The kind of a request, as far as its reply depends on it.
#[derive(Debug)]
enum RequestKind {
    Ping,
    Snippet,
    File { tool: &'static Tool, path: String },
    Reload,
    Console,
    Model(&'static Tool),
    Resources,
    OwnTool,
    Tools,
}

impl BridgeMachine {
    /// A connection made at `now` to a server that requires `token`. The bridge offers parlor's own tools only if the
    /// door has a token of its own.
    pub fn new(token: Option<Arc<HelloToken>>, attach: AttachInfo, now: Instant) -> Self {
        Self {
            token,
            attach,
            handshake: Handshake::AwaitingHello,
            last_active: now,
            out: Outgoing::new(ServerKind::Bridge, Some(now + HELLO_WAIT)),
        }
    }
}

impl Machine for BridgeMachine {
    type Request = RubyRequest;
    type Reply = Arc<RubyReply>;
    type Event = ();
    type Error = RubyRefusal;

    fn handle(&mut self, now: Instant, input: InputOf<'_, Self>) {
        match input {
            Input::Frame(line) => {
                self.last_active = now;
                self.on_frame(now, line);
            }
            Input::Oversize { limit } => {
                // Clients count the newline too.
                self.out.send_frame_error(NULL_ID, FrameError::Oversize { limit: limit + 1 });
                self.out.close();
            }
            Input::Answer(ticket, answer) => {
                self.last_active = now;
                self.on_answer(ticket, answer);
            }
            Input::Event(()) => {}
            Input::Deadline => self.on_deadline(now),
        }
    }

    fn poll(&mut self) -> Option<Output<RubyRequest>> {
        self.out.outbox.pop_front()
    }

    fn wants_frame(&self) -> bool {
        self.out.pending.is_none() && !self.out.is_closed
    }

    fn max_reply_bytes(&self, request: &RubyRequest) -> usize {
        max_reply_bytes(request)
    }

    fn max_line_bytes(&self) -> usize {
        let longest = if matches!(self.handshake, Handshake::AwaitingHello) {
            HELLO_LINE_BYTES
        } else {
            MAX_REQUEST_BYTES
        };
        longest - 1
    }
}

impl BridgeMachine {
    fn on_frame(&mut self, now: Instant, line: &[u8]) {
        let request = match Request::decode(line) {
            Ok(request) => request,
            Err(error) => return self.refuse(NULL_ID, error),
        };
        let (id, method) = (request.id(), request.method());
        let is_new = matches!(self.handshake, Handshake::AwaitingHello);
        let outcome = match (method.as_deref(), &self.handshake) {
            (Some(method::HELLO), Handshake::AwaitingHello) => return self.hello(now, id, request.params),
            (_, Handshake::AwaitingHello) => Err(FrameError::HelloMissing),
            (method, Handshake::Complete(_)) => match request.command.filter(|raw| decode::is_truthy(raw)) {
                Some(command) => self.call_tool(id, Some(command), request.parameters),
                None => match method {
                    Some(method::HELLO) => return self.hello(now, id, request.params),
                    Some(method) => self.on_method(id, method, request.params),
                    None => Err(FrameError::MethodMissing),
                },
            },
        };
        match outcome {
            Ok(()) => {}
            Err(error) if is_new => self.refuse(id, error),
            Err(error) => self.out.send_frame_error(id, error),
        }
    }

    fn hello(&mut self, now: Instant, id: &str, params: Option<&RawValue>) {
        match Identity::from_bridge_hello(params, self.token.as_deref()) {
            Ok(mut identity) => {
                let attach = identity.wants_attach.then_some(true);
                let instance = attach.map(|_| self.attach.instance.as_ref().to_owned());
                if attach.is_some() {
                    identity.nonce.get_or_insert_with(|| self.attach.nonce.clone());
                }
                let nonce = identity.nonce.clone();
                self.handshake = Handshake::Complete(identity);
                self.out.outbox.push_back(Output::WakeAt(now + IDLE_WAIT));
                let server = ServerInfo {
                    name: "supex-runtime".to_owned(),
                    version: RUNTIME_VERSION.to_owned(),
                    attach,
                    instance,
                    nonce,
                };
                let message = "Client identified".to_owned();
                self.out.send_result(id, &HelloResult { success: true, message, server });
            }
            // After a valid `hello` a wrong token does not close the connection.
            Err(error @ (FrameError::WrongToken | FrameError::WrongServerToken))
                if matches!(self.handshake, Handshake::AwaitingHello) =>
            {
                self.out.send_frame_error(id, error);
                self.out.close();
            }
            Err(error) => self.out.send_frame_error(id, error),
        }
    }

    fn offers_own_tools(&self) -> bool {
        self.token.as_ref().is_some_and(|token| token.is_door_secret())
    }

    fn on_method(&mut self, id: &str, name: &str, params: Option<&RawValue>) -> Result<(), FrameError> {
        match name {
            method::PING => self.out.send_result(id, &encode::PONG),
            method::TOOLS_CALL => {
                let params = params.map(RawValue::get).filter(|text| text.starts_with('{'));
                let not_an_object =
                    || FrameError::InvalidParams("Invalid params: params must be an object".to_owned());
                let members = params.and_then(|text| Members::read(text, &["name", "arguments"]).ok());
                let members = members.ok_or_else(not_an_object)?;
                return self.call_tool(id, members.get("name"), members.get("arguments"));
            }
            method::RESOURCES_LIST => self.call(id, name, "", RubyJob::ListResources, RequestKind::Resources),
            method::TOOLS_LIST if self.offers_own_tools() => {
                self.out.submit(id, RubyRequest::ListTools, RequestKind::Tools);
            }
            _ => return Err(FrameError::UnknownMethod(name.to_owned())),
        }
        Ok(())
    }

    fn call_tool(
        &mut self,
        id: &str,
        name: Option<&RawValue>,
        arguments: Option<&RawValue>,
    ) -> Result<(), FrameError> {
        let Some(name) = name else {
            return Err(FrameError::InvalidParams("Invalid params: name is required".to_owned()));
        };
        let Some(name) = decode::string(name) else {
            return Err(FrameError::UnknownTool(name.get().to_owned()));
        };
        let arguments = tool::arguments_text(arguments)?;
        let Some(tool) = tool::find(&name) else {
            if !self.offers_own_tools() {
                return Err(FrameError::UnknownTool(name));
            }
            let job = RubyJob::Tool { name: name.clone(), input: arguments.to_owned() };
            self.call(id, &name, arguments, job, RequestKind::OwnTool);
            return Ok(());
        };
        match tool.action(arguments) {
            Ok(ToolAction::Job(job)) => {
                let kind = match (&job, tool.kind) {
                    (RubyJob::File { path }, _) => RequestKind::File { tool, path: path.clone() },
                    (_, ToolKind::Model) => RequestKind::Model(tool),
                    (_, ToolKind::Reload) => RequestKind::Reload,
                    (_, ToolKind::Ping) => RequestKind::Ping,
                    (_, ToolKind::Snippet | ToolKind::File | ToolKind::Console) => RequestKind::Snippet,
                };
                self.call(id, &name, arguments, job, kind);
            }
            Ok(ToolAction::ConsoleStatus) => {
                self.out.submit(id, RubyRequest::DescribeConsole, RequestKind::Console)
            }
            Ok(ToolAction::PathMissing) => self.out.send_result(id, &NO_PATH),
            Err(error) => self.out.send_error(id, &error),
        }
        Ok(())
    }

    /// Submits a job. If the client repeats the request on another connection, it gets the same answer.
    fn call(&mut self, id: &str, name: &str, arguments: &str, job: RubyJob, kind: RequestKind) {
        let Handshake::Complete(identity) = &self.handshake else { return };
        // A ping asks for the state of this moment.
        let is_ping = matches!(kind, RequestKind::Ping);
        let repeat = if is_ping { None } else { identity.repeat_key(id, name, arguments) };
        let caller = identity.caller.clone();
        self.out.submit(id, RubyRequest::Call { repeat, caller, job: Box::new(job) }, kind);
    }

    fn on_answer(&mut self, ticket: Ticket, answer: Result<Arc<RubyReply>, RubyRefusal>) {
        let Some(Pending { id, kind, .. }) = self.out.take_pending(ticket) else {
            return;
        };
        match answer {
            Ok(reply) => self.on_reply(&id, &kind, &reply),
            Err(refusal) => self.out.send_error(&id, &code::refused(&refusal)),
        }
    }

    fn on_reply(&mut self, id: &str, kind: &RequestKind, reply: &RubyReply) {
        let error = match (kind, reply) {
            (RequestKind::Ping, RubyReply::NoUpstream) => {
                return self.out.send_result(id, &ToolPing::without_upstream());
            }
            (RequestKind::Ping, RubyReply::Upstream(Ok(pong))) => {
                return self.out.send_result(id, &ToolPing::of_upstream(pong));
            }
            (RequestKind::Ping, RubyReply::Upstream(Err(UpstreamError::Busy))) => {
                return self.out.send_result(id, &ToolPing::of_busy_upstream());
            }
            (RequestKind::Snippet, RubyReply::Evaluated(evaluated)) => {
                return self.evaluated(id, evaluated, None);
            }
            (RequestKind::File { path, .. }, RubyReply::Evaluated(evaluated)) => {
                return self.evaluated(id, evaluated, Some(path));
            }
            (RequestKind::Reload, RubyReply::RubyRestarted(outcome)) => {
                return self.out.send_result(id, &Reloaded::new(outcome));
            }
            (RequestKind::Console, RubyReply::Console(log)) => {
                let file = log.file.as_ref().map(|file| file.to_string_lossy());
                return self.out.send_result(id, &ConsoleStatus::new(file.as_deref()));
            }
            (RequestKind::Tools, RubyReply::Tools(own)) => {
                return self.out.send_result(id, &ToolList::new(own));
            }
            (RequestKind::OwnTool, RubyReply::Tool(Ok(output))) => {
                return self.out.send_result(id, &OwnResult::new(output));
            }
            (RequestKind::OwnTool, RubyReply::Tool(Err(failure))) => code::tool_failed(failure),
            (RequestKind::OwnTool, RubyReply::UnknownTool { name }) => {
                return self.out.send_frame_error(id, FrameError::UnknownTool(name.clone()));
            }
            (RequestKind::Resources, RubyReply::NoUpstream) => {
                return self.out.send_result(id, &Resources { resources: [], success: true });
            }
            (_, RubyReply::Upstream(Ok(result))) => {
                return match serde_json::from_str::<&RawValue>(result) {
                    Ok(result) => self.out.send_result(id, result),
                    Err(error) => {
                        self.out.send_error(id, &code::internal(format!("SketchUp gave no JSON: {error}")))
                    }
                };
            }
            (kind, RubyReply::Upstream(Err(failure))) => code::upstream_failed(failure, kind.prefix()),
            (RequestKind::Model(tool), RubyReply::NoUpstream) => code::no_sketchup(tool.prefix),
            (RequestKind::Model(tool) | RequestKind::File { tool, .. }, RubyReply::PathRefused { path }) => {
                code::path_refused(tool, path)
            }
            (
                RequestKind::Model(tool) | RequestKind::File { tool, .. },
                RubyReply::PathInvalid { reason },
            ) => code::path_invalid(tool, reason),
            (RequestKind::File { .. }, RubyReply::FileMissing { path }) => code::file_missing(path),
            (RequestKind::File { .. }, RubyReply::FileUnreadable { path, reason }) => {
                code::file_unreadable(path, reason)
            }
            (_, _) => code::internal("unexpected reply of the Ruby backend"),
        };
        self.out.send_error(id, &error);
    }

    fn evaluated(&mut self, id: &str, evaluated: &EvaluationResult, path: Option<&String>) {
        let wants_output = matches!(&self.handshake, Handshake::Complete(identity) if identity.wants_output);
        let output = wants_output.then(|| printed_text(evaluated));
        let restarted = evaluated.restart_reason.as_deref().map(restart_notice);
        match (&evaluated.outcome, path) {
            (Ok(value), None) => {
                let result = with_notice(value, restarted.as_deref());
                self.out.send_result(id, &EvalResult { success: true, result, output, restarted })
            }
            (Ok(value), Some(path)) => {
                let (file_path, file_name) = (path, code::base_name(path));
                let result = with_notice(value, restarted.as_deref());
                let result = FileResult { success: true, result, file_path, file_name, output, restarted };
                self.out.send_result(id, &result);
            }
            (Err(failure), path) => {
                let error = match path {
                    None => code::snippet_failed(failure, output),
                    Some(path) => code::file_failed(failure, path, output),
                };
                self.out.send_error(id, &error.with_restart(restarted));
            }
        }
    }

    fn on_deadline(&mut self, now: Instant) {
        let until = match self.handshake {
            Handshake::AwaitingHello => self.last_active + HELLO_WAIT,
            Handshake::Complete(_) if self.out.pending.is_some() => now + IDLE_WAIT,
            Handshake::Complete(_) => self.last_active + IDLE_WAIT,
        };
        if now < until {
            self.out.outbox.push_back(Output::WakeAt(until));
        } else {
            self.out.close();
        }
    }

    /// Sends an error, and closes the connection if the client has not sent a valid `hello` yet.
    fn refuse(&mut self, id: &str, error: FrameError) {
        self.out.send_frame_error(id, error);
        if matches!(self.handshake, Handshake::AwaitingHello) {
            self.out.close();
        }
    }
}

impl RequestKind {
    /// What error texts of SketchUp's tools begin with.
    fn prefix(&self) -> &'static str {
        match self {
            Self::Model(tool) => tool.prefix,
            Self::Ping
            | Self::Snippet
            | Self::File { .. }
            | Self::Reload
            | Self::Console
            | Self::Resources
            | Self::OwnTool
            | Self::Tools => "",
        }
    }
}
