//! One connection to the bridge: `hello`, then requests one after another.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use parlor_vocab::{EvaluationResult, RubyFailure, RubyJob, RubyRefusal, RubyReply, RubyRequest, ToolOutput};
use serde::Serialize;
use serde_json::value::RawValue;

use super::catalogue::Catalogue;
use super::code::{self, Fault, FrameError, Side};
use super::envelope::{self, NULL, Request, Unreadable};
use super::identity::{Identity, Token};
use super::protocol::{HelloResult, ServerInfo, method};
use super::tool::{self, Kind, Tool, Wanted};
use super::{
    HELLO_LINE_BYTES, HELLO_WAIT, IDLE_WAIT, MAX_REQUEST_BYTES, RUNTIME_VERSION, largest_reply, render,
};
use crate::json::Members;
use crate::{Input, InputOf, Machine, Output, Ticket};

/// The server's side of one connection to the bridge.
#[derive(Debug)]
pub struct BridgeMachine {
    token: Option<Arc<Token>>,
    instance: Arc<str>,
    stage: Stage,
    /// The request that is being carried out; the next one waits for its reply.
    pending: Option<Pending>,
    last_active: Instant,
    is_closed: bool,
    next_ticket: u64,
    outbox: VecDeque<Output<RubyRequest>>,
}

/// How far the handshake has come.
#[derive(Debug)]
enum Stage {
    New,
    Identified(Identity),
}

#[derive(Debug)]
struct Pending {
    ticket: Ticket,
    id: String,
    asked: Asked,
}

/// What was asked for, as far as its reply depends on it.
#[derive(Debug)]
enum Asked {
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
    /// A connection that was made at `now`, to a server that asks for `token`. Without one of its own parlor's
    /// own tools are not offered. `instance` is the server's name for this run of it, which no other has.
    pub fn new(token: Option<Arc<Token>>, instance: Arc<str>, now: Instant) -> Self {
        Self {
            token,
            instance,
            stage: Stage::New,
            pending: None,
            last_active: now,
            is_closed: false,
            next_ticket: 0,
            outbox: VecDeque::from([Output::WakeAt(now + HELLO_WAIT)]),
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
                self.on_line(now, line);
            }
            Input::Oversize { limit } => {
                // With its newline, as clients count.
                self.fail(NULL, FrameError::Oversize { limit: limit + 1 });
                self.close();
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
        self.outbox.pop_front()
    }

    fn wants_frame(&self) -> bool {
        self.pending.is_none() && !self.is_closed
    }

    fn max_reply_bytes(&self, request: &RubyRequest) -> usize {
        largest_reply(request)
    }

    fn max_line_bytes(&self) -> usize {
        let longest = if matches!(self.stage, Stage::New) { HELLO_LINE_BYTES } else { MAX_REQUEST_BYTES };
        longest - 1
    }
}

impl BridgeMachine {
    fn on_line(&mut self, now: Instant, line: &[u8]) {
        let request = match Request::read(line) {
            Ok(request) => request,
            Err(unreadable) => {
                let flaw = match unreadable {
                    Unreadable::NoJson(detail) => FrameError::NoJson(detail),
                    Unreadable::NoObject => FrameError::NoObject,
                };
                return self.fail_stranger(NULL, flaw);
            }
        };
        let (id, method) = (request.id(), request.method());
        let is_new = matches!(self.stage, Stage::New);
        let done = match (method.as_deref(), &self.stage) {
            (Some(method::HELLO), Stage::New) => return self.hello(now, id, request.params),
            (_, Stage::New) => Err(FrameError::NotIdentified),
            (method, Stage::Identified(_)) => match request.command.filter(|raw| envelope::is_truthy(raw)) {
                Some(command) => self.call_tool(id, Some(command), request.parameters),
                None => match method {
                    Some(method::HELLO) => return self.hello(now, id, request.params),
                    Some(method) => self.on_method(id, method, request.params),
                    None => Err(FrameError::NoMethod),
                },
            },
        };
        match done {
            Ok(()) => {}
            Err(flaw) if is_new => self.fail_stranger(id, flaw),
            Err(flaw) => self.fail(id, flaw),
        }
    }

    fn hello(&mut self, now: Instant, id: &str, params: Option<&RawValue>) {
        match Identity::of_bridge(params, self.token.as_deref()) {
            Ok(identity) => {
                let attach = identity.wants_attach.then_some(true);
                let instance = attach.map(|_| self.instance.as_ref().to_owned());
                self.stage = Stage::Identified(identity);
                self.outbox.push_back(Output::WakeAt(now + IDLE_WAIT));
                let server = ServerInfo {
                    name: "supex-runtime".to_owned(),
                    version: RUNTIME_VERSION.to_owned(),
                    attach,
                    instance,
                };
                let message = "Client identified".to_owned();
                self.succeed(id, &HelloResult { success: true, message, server });
            }
            // Whoever was let in before stays.
            Err(flaw @ (FrameError::BadToken | FrameError::NoServerToken))
                if matches!(self.stage, Stage::New) =>
            {
                self.fail(id, flaw);
                self.close();
            }
            Err(flaw) => self.fail(id, flaw),
        }
    }

    fn offers_own_tools(&self) -> bool {
        self.token.as_ref().is_some_and(|token| token.is_of_door())
    }

    fn on_method(&mut self, id: &str, name: &str, params: Option<&RawValue>) -> Result<(), FrameError> {
        match name {
            method::PING => self.succeed(id, &render::PONG),
            method::TOOLS_CALL => {
                let params = params.map(RawValue::get).filter(|text| text.starts_with('{'));
                let not_an_object =
                    || FrameError::BadParams("Invalid params: params must be an object".to_owned());
                let members = params.and_then(|text| Members::read(text, &["name", "arguments"]).ok());
                let members = members.ok_or_else(not_an_object)?;
                return self.call_tool(id, members.get("name"), members.get("arguments"));
            }
            method::RESOURCES_LIST => self.call(id, name, "", RubyJob::ListResources, Asked::Resources),
            method::TOOLS_LIST if self.offers_own_tools() => {
                self.ask(id, RubyRequest::ListTools, Asked::Tools);
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
            return Err(FrameError::BadParams("Invalid params: name is required".to_owned()));
        };
        let Some(name) = envelope::string(name) else {
            return Err(FrameError::UnknownTool(name.get().to_owned()));
        };
        let arguments = tool::arguments_text(arguments)?;
        let Some(tool) = tool::find(&name) else {
            if !self.offers_own_tools() {
                return Err(FrameError::UnknownTool(name));
            }
            let work = RubyJob::Tool { name: name.clone(), input: arguments.to_owned() };
            self.call(id, &name, arguments, work, Asked::OwnTool);
            return Ok(());
        };
        match tool.wants(arguments) {
            Ok(Wanted::Job(work)) => {
                let asked = match (&work, tool.kind) {
                    (RubyJob::File { path }, _) => Asked::File { tool, path: path.clone() },
                    (_, Kind::Model) => Asked::Model(tool),
                    (_, Kind::Reload) => Asked::Reload,
                    (_, Kind::Snippet | Kind::File | Kind::Ping | Kind::Console) => Asked::Snippet,
                };
                self.call(id, &name, arguments, work, asked);
            }
            Ok(Wanted::Console) => self.ask(id, RubyRequest::DescribeConsole, Asked::Console),
            Ok(Wanted::Pong) => self.succeed(id, &TOOL_PING),
            Ok(Wanted::Path) => self.succeed(id, &NO_PATH),
            Err(fault) => self.send_fault(id, &fault),
        }
        Ok(())
    }

    /// Asks for work. A repeat of the request, on whichever connection, gets the same answer.
    fn call(&mut self, id: &str, what: &str, arguments: &str, work: RubyJob, asked: Asked) {
        let Stage::Identified(identity) = &self.stage else { return };
        let key = identity.key(id, what, arguments);
        let caller = identity.caller.clone();
        self.ask(id, RubyRequest::Call { key, caller, job: Box::new(work) }, asked);
    }

    fn ask(&mut self, id: &str, command: RubyRequest, asked: Asked) {
        self.next_ticket += 1;
        let ticket = Ticket(self.next_ticket);
        self.pending = Some(Pending { ticket, id: id.to_owned(), asked });
        self.outbox.push_back(Output::Request(ticket, command));
    }

    fn on_answer(&mut self, ticket: Ticket, answer: Result<Arc<RubyReply>, RubyRefusal>) {
        let Some(Pending { id, asked, .. }) = self.pending.take_if(|pending| pending.ticket == ticket) else {
            return;
        };
        match answer {
            Ok(reply) => self.on_reply(&id, &asked, &reply),
            Err(refusal) => self.send_fault(&id, &code::of_refusal(&refusal)),
        }
    }

    fn on_reply(&mut self, id: &str, asked: &Asked, reply: &RubyReply) {
        let fault = match (asked, reply) {
            (Asked::Snippet, RubyReply::Evaluated(evaluated)) => {
                return self.evaluated(id, evaluated, None);
            }
            (Asked::File { path, .. }, RubyReply::Evaluated(evaluated)) => {
                return self.evaluated(id, evaluated, Some(path));
            }
            (Asked::Reload, RubyReply::RubyReplaced(outcome)) => {
                return self.succeed(id, &Reloaded::of(outcome));
            }
            (Asked::Console, RubyReply::Console(log)) => {
                let file = log.file.as_ref().map(|file| file.to_string_lossy());
                return self.succeed(id, &ConsoleStatus::of(file.as_deref()));
            }
            (Asked::Tools, RubyReply::Tools(own)) => return self.succeed(id, &Catalogue::new(own)),
            (Asked::OwnTool, RubyReply::Tool(Ok(output))) => {
                return self.succeed(id, &own_result(output));
            }
            (Asked::OwnTool, RubyReply::Tool(Err(failure))) => code::of_tool(failure),
            (Asked::OwnTool, RubyReply::UnknownTool { name }) => {
                return self.fail(id, FrameError::UnknownTool(name.clone()));
            }
            (Asked::Resources, RubyReply::NoUpstream) => {
                return self.succeed(id, &Resources { resources: [], success: true });
            }
            (_, RubyReply::Upstream(Ok(result))) => {
                return match serde_json::from_str::<&RawValue>(result) {
                    Ok(result) => self.succeed(id, result),
                    Err(error) => {
                        self.send_fault(id, &code::internal(format!("SketchUp gave no JSON: {error}")))
                    }
                };
            }
            (asked, RubyReply::Upstream(Err(failure))) => code::of_model(failure, asked.prefix()),
            (Asked::Model(tool), RubyReply::NoUpstream) => code::no_sketchup(tool.prefix),
            (Asked::Model(tool) | Asked::File { tool, .. }, RubyReply::PathRefused { path }) => {
                code::path_refused(tool, path)
            }
            (Asked::Model(tool) | Asked::File { tool, .. }, RubyReply::PathInvalid { reason }) => {
                code::path_invalid(tool, reason)
            }
            (Asked::File { .. }, RubyReply::FileMissing { path }) => code::file_missing(path),
            (Asked::File { .. }, RubyReply::FileUnreadable { path, reason }) => {
                code::file_unreadable(path, reason)
            }
            (_, _) => code::internal("the workshop gave another answer"),
        };
        self.send_fault(id, &fault);
    }

    fn evaluated(&mut self, id: &str, evaluated: &EvaluationResult, path: Option<&String>) {
        let wants_output = matches!(&self.stage, Stage::Identified(identity) if identity.wants_output);
        let output = wants_output.then(|| printed_text(evaluated));
        match (&evaluated.outcome, path) {
            (Ok(value), None) => self.succeed(id, &EvalResult { success: true, result: value, output }),
            (Ok(value), Some(path)) => {
                let (file_path, file_name) = (path, code::base_name(path));
                let result = FileResult { success: true, result: value, file_path, file_name, output };
                self.succeed(id, &result);
            }
            (Err(failure), None) => self.send_fault(id, &code::of_snippet(failure, output)),
            (Err(failure), Some(path)) => self.send_fault(id, &code::of_file(failure, path, output)),
        }
    }

    fn on_deadline(&mut self, now: Instant) {
        let until = match self.stage {
            Stage::New => self.last_active + HELLO_WAIT,
            Stage::Identified(_) if self.pending.is_some() => now + IDLE_WAIT,
            Stage::Identified(_) => self.last_active + IDLE_WAIT,
        };
        if now < until {
            self.outbox.push_back(Output::WakeAt(until));
        } else {
            self.close();
        }
    }

    /// Who has not said `hello` gets no second chance, unless it is at `hello` itself.
    fn fail_stranger(&mut self, id: &str, flaw: FrameError) {
        self.fail(id, flaw);
        if matches!(self.stage, Stage::New) {
            self.close();
        }
    }

    fn fail(&mut self, id: &str, flaw: FrameError) {
        self.send_fault(id, &code::of_flaw(flaw, Side::Bridge));
    }

    fn send_fault(&mut self, id: &str, fault: &Fault) {
        self.outbox.push_back(Output::Send(render::failure(Side::Bridge, id, fault)));
    }

    fn succeed(&mut self, id: &str, result: &(impl Serialize + ?Sized)) {
        self.outbox.push_back(Output::Send(render::success(Side::Bridge, id, &result)));
    }

    fn close(&mut self) {
        self.is_closed = true;
        self.outbox.push_back(Output::Close);
    }
}

impl Asked {
    fn prefix(&self) -> &'static str {
        match self {
            Self::Model(tool) => tool.prefix,
            Self::Snippet
            | Self::File { .. }
            | Self::Reload
            | Self::Console
            | Self::Resources
            | Self::OwnTool
            | Self::Tools => "",
        }
    }
}

/// What was printed, as one text.
pub(super) fn printed_text(evaluated: &EvaluationResult) -> String {
    let mut text: String = evaluated.printed.iter().map(|(_, text)| text.as_str()).collect();
    if evaluated.cut > 0 {
        text.push_str(&format!("\n[… {} more bytes were printed …]\n", evaluated.cut));
    }
    text
}

#[derive(Serialize)]
struct ToolPing {
    success: bool,
    status: &'static str,
    message: &'static str,
    version: &'static str,
    sketchup_version: Option<&'static str>,
}

const TOOL_PING: ToolPing = ToolPing {
    success: true,
    status: "connected",
    message: "SketchUp extension is running",
    version: RUNTIME_VERSION,
    sketchup_version: None,
};

/// A failure that is no error of the protocol.
#[derive(Serialize)]
struct SoftFailure {
    success: bool,
    error: &'static str,
}

const NO_PATH: SoftFailure = SoftFailure { success: false, error: "No file path provided" };

#[derive(Serialize)]
struct EvalResult<'a> {
    success: bool,
    result: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<String>,
}

#[derive(Serialize)]
struct FileResult<'a> {
    success: bool,
    result: &'a str,
    file_path: &'a str,
    file_name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<String>,
}

#[derive(Serialize)]
struct Resources {
    resources: [(); 0],
    success: bool,
}

#[derive(Serialize)]
struct Reloaded {
    success: bool,
    message: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl Reloaded {
    fn of(outcome: &Result<(), RubyFailure>) -> Self {
        match outcome {
            Ok(()) => Self { success: true, message: "Extension reloaded successfully", error: None },
            Err(failure) => {
                let error = Some(failure.message.clone());
                Self { success: false, message: "Extension reload failed", error }
            }
        }
    }
}

#[derive(Serialize)]
struct ConsoleStatus<'a> {
    success: bool,
    capturing: bool,
    log_file: Option<&'a str>,
    message: &'static str,
}

impl<'a> ConsoleStatus<'a> {
    fn of(file: Option<&'a str>) -> Self {
        let message =
            if file.is_some() { "Console capture is active" } else { "Console capture is inactive" };
        Self { success: true, capturing: file.is_some(), log_file: file, message }
    }
}

#[derive(Serialize)]
struct OwnResult<'a> {
    success: bool,
    result: &'a str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    images: Vec<OwnImage<'a>>,
}

#[derive(Serialize)]
struct OwnImage<'a> {
    mime: &'a str,
    data: String,
}

fn own_result(output: &ToolOutput) -> OwnResult<'_> {
    let images = output
        .images
        .iter()
        .map(|(mime, bytes)| OwnImage { mime, data: base64_simd::STANDARD.encode_to_string(bytes) });
    OwnResult { success: true, result: &output.text, images: images.collect() }
}
