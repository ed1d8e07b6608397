//! The console: the machine of a connection on which `hello` begins a session and `eval` evaluates Ruby in the scope that
//! all consoles share.

use std::sync::Arc;
use std::time::Instant;

use parlor_vocab::{EvaluationResult, RubyFailure, RubyJob, RubyRefusal, RubyReply, RubyRequest};
use serde::Serialize;
use serde_json::value::RawValue;

use super::super::code::{self, FrameError, ServerKind};
use super::super::decode::{self, NULL_ID, Request};
use super::super::identity::{HelloToken, Identity};
use super::super::results::restart_notice;
use super::super::wire::{ReplHelloResult, ServerInfo, method};
use super::super::{
    CONSOLE_BACKTRACE_LINES, HELLO_LINE_BYTES, HELLO_WAIT, MAX_REQUEST_BYTES, RUNTIME_VERSION, encode,
};
use super::{Outgoing, Pending, max_reply_bytes, printed_text};
use crate::json::Members;
use crate::{Input, InputOf, Machine, Output, Ticket};

/// The server's side of one connection to the console. The server does not close it for being idle, because a person
/// types there; only a client of another user must send `hello` in time.
#[derive(Debug)]
pub struct ReplMachine {
    token: Option<Arc<HelloToken>>,
    session: Option<Session>,
    /// How many lines the client has evaluated, in all sessions of this connection.
    lines: u64,
    out: Outgoing<RequestKind>,
}

#[derive(Debug)]
struct Session {
    name: String,
    identity: Identity,
}

/// The kind of a request, as far as its reply depends on it.
#[derive(Debug)]
enum RequestKind {
    Hello(Identity),
    Eval,
}

impl ReplMachine {
    /// A connection to a server that requires `token`.
    pub fn new(token: Option<Arc<HelloToken>>) -> Self {
        Self { token, session: None, lines: 0, out: Outgoing::new(ServerKind::Repl, None) }
    }

    /// Closes the connection unless the client sends a valid `hello` within [`HELLO_WAIT`] of `now`. For clients that
    /// may belong to another user of the machine.
    #[must_use]
    pub fn with_hello_deadline(mut self, now: Instant) -> Self {
        self.out.outbox.push_back(Output::WakeAt(now + HELLO_WAIT));
        self
    }
}

impl Machine for ReplMachine {
    type Request = RubyRequest;
    type Reply = Arc<RubyReply>;
    type Event = ();
    type Error = RubyRefusal;

    fn handle(&mut self, _now: Instant, input: InputOf<'_, Self>) {
        match input {
            Input::Frame(line) => self.on_frame(line),
            Input::Oversize { limit } => {
                // Clients count the newline too.
                self.out.send_frame_error(NULL_ID, FrameError::Oversize { limit: limit + 1 });
                self.out.close();
            }
            Input::Answer(ticket, answer) => self.on_answer(ticket, answer),
            // A pending request means that the client sent a valid `hello` in time.
            Input::Deadline if self.session.is_none() && self.out.pending.is_none() => self.out.close(),
            Input::Event(()) | Input::Deadline => {}
        }
    }

    fn poll(&mut self) -> Option<Output<RubyRequest>> {
        self.out.outbox.pop_front()
    }

    fn wants_frame(&self) -> bool {
        self.out.pending.is_none() && !self.out.is_closed
    }

    fn requires_object(&self) -> bool {
        self.session.is_none()
    }

    fn max_reply_bytes(&self, request: &RubyRequest) -> usize {
        max_reply_bytes(request)
    }

    fn max_line_bytes(&self) -> usize {
        let longest = if self.session.is_none() { HELLO_LINE_BYTES } else { MAX_REQUEST_BYTES };
        longest - 1
    }
}

impl ReplMachine {
    fn on_frame(&mut self, line: &[u8]) {
        let request = match Request::decode(line) {
            Ok(request) => request,
            Err(error) => return self.out.send_frame_error(NULL_ID, error),
        };
        let id = request.id();
        let outcome = match request.method().as_deref() {
            Some(method::HELLO) => self.hello(id, request.params),
            Some(method::EVAL | method::PING) if self.session.is_none() => Err(FrameError::HelloMissing),
            Some(method::EVAL) => self.eval(id, request.params),
            Some(method::PING) => {
                self.out.send_result(id, &encode::PONG);
                Ok(())
            }
            Some(other) => Err(FrameError::UnknownMethod(other.to_owned())),
            None => Err(FrameError::MethodMissing),
        };
        if let Err(error) = outcome {
            let is_token_wrong = matches!(error, FrameError::WrongToken | FrameError::WrongServerToken);
            let must_close = is_token_wrong && self.session.is_none();
            self.out.send_frame_error(id, error);
            if must_close {
                self.out.close();
            }
        }
    }

    fn hello(&mut self, id: &str, params: Option<&RawValue>) -> Result<(), FrameError> {
        let (identity, pid) = Identity::from_console_hello(params, self.token.as_deref())?;
        self.out.submit(id, RubyRequest::OpenConsole { pid }, RequestKind::Hello(identity));
        Ok(())
    }

    fn eval(&mut self, id: &str, params: Option<&RawValue>) -> Result<(), FrameError> {
        let missing = || FrameError::InvalidParams("Missing code parameter".to_owned());
        let Some(Session { name, identity }) = &self.session else { return Err(FrameError::HelloMissing) };
        let params = params.filter(|raw| decode::is_truthy(raw)).ok_or_else(missing)?.get();
        let members = Members::read(params, &["code"])
            .map_err(|_| FrameError::InvalidParams("Invalid params: params must be an object".to_owned()))?;
        let code = members.get("code").filter(|raw| decode::is_truthy(raw)).ok_or_else(missing)?;
        let code = decode::string(code)
            .ok_or_else(|| FrameError::InvalidParams("Invalid params: code must be a string".to_owned()))?;
        self.lines += 1;
        let repeat = identity.repeat_key(id, method::EVAL, params);
        let caller = identity.caller.clone();
        let job = Box::new(RubyJob::ConsoleLine { session: name.clone(), number: self.lines, code });
        self.out.submit(id, RubyRequest::Call { repeat, caller, job }, RequestKind::Eval);
        Ok(())
    }

    fn on_answer(&mut self, ticket: Ticket, answer: Result<Arc<RubyReply>, RubyRefusal>) {
        let Some(Pending { id, kind, .. }) = self.out.take_pending(ticket) else {
            return;
        };
        let reply = match answer {
            Ok(reply) => reply,
            Err(refusal) => return self.out.send_error(&id, &code::refused(&refusal)),
        };
        match (kind, &*reply) {
            (RequestKind::Hello(identity), RubyReply::ConsoleOpened { session }) => {
                self.session = Some(Session { name: session.clone(), identity });
                let version = RUNTIME_VERSION.to_owned();
                let name = "supex-repl".to_owned();
                let server = ServerInfo { name, version, attach: None, instance: None, nonce: None };
                self.out
                    .send_result(&id, &ReplHelloResult { success: true, session: session.clone(), server });
            }
            (RequestKind::Hello(_), RubyReply::ConsoleRefused { reason }) => {
                self.out.send_error(&id, &code::internal(reason));
            }
            (RequestKind::Eval, RubyReply::Evaluated(evaluated)) => {
                self.out.send_result(&id, &EvalResult { output: output(evaluated), success: true });
            }
            (RequestKind::Eval, RubyReply::Upstream(Ok(result))) => {
                match serde_json::from_str::<&RawValue>(result) {
                    Ok(result) => self.out.send_result(&id, result),
                    Err(error) => {
                        self.out.send_error(&id, &code::internal(format!("SketchUp gave no JSON: {error}")))
                    }
                }
            }
            (RequestKind::Eval, RubyReply::Upstream(Err(failure))) => {
                self.out.send_error(&id, &code::upstream_failed(failure, ""));
            }
            (RequestKind::Hello(_) | RequestKind::Eval, _) => {
                self.out.send_error(&id, &code::internal("unexpected reply of the Ruby backend"));
            }
        }
    }
}

#[derive(Serialize)]
struct EvalResult {
    output: String,
    success: bool,
}

/// What a console prints: the printed text, then the value or the exception.
fn output(evaluated: &EvaluationResult) -> String {
    let mut text = evaluated
        .restart_reason
        .as_deref()
        .map_or_else(String::new, |reason| format!("{}\n", restart_notice(reason)));
    text.push_str(&printed_text(evaluated));
    match &evaluated.outcome {
        Ok(value) => text.push_str(&format!("=> {value}\n")),
        Err(failure) => push_failure(&mut text, failure),
    }
    text
}

fn push_failure(text: &mut String, failure: &RubyFailure) {
    match &failure.class {
        Some(class) => text.push_str(&format!("#<{class}: {}>\n", failure.message)),
        // There was no exception, so there is no backtrace; the hint is the only explanation.
        None => {
            text.push_str(&format!("{}\n", failure.message));
            if let Some(hint) = failure.hint.as_ref().filter(|hint| !failure.message.contains(*hint)) {
                text.push_str(&format!("{hint}\n"));
            }
        }
    }
    for frame in failure.backtrace.iter().take(CONSOLE_BACKTRACE_LINES) {
        text.push_str(frame);
        text.push('\n');
    }
}
