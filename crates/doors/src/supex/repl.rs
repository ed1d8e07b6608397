//! One connection to the console: `hello` begins a session, `eval` evaluates in the scope that all
//! consoles share.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use parlor_vocab::{EvaluationResult, RubyFailure, RubyJob, RubyRefusal, RubyReply, RubyRequest};
use serde::Serialize;
use serde_json::value::RawValue;

use super::bridge::printed_text;
use super::code::{self, Fault, FrameError, Side};
use super::envelope::{self, NULL, Request, Unreadable};
use super::identity::{Identity, Token};
use super::protocol::{ReplHelloResult, ServerInfo, method};
use super::{
    CONSOLE_BACKTRACE_LINES, HELLO_LINE_BYTES, HELLO_WAIT, MAX_REQUEST_BYTES, RUNTIME_VERSION, largest_reply,
    render,
};
use crate::json::Members;
use crate::{Input, InputOf, Machine, Output, Ticket};

/// The server's side of one connection to the console. It is never closed for its silence, since a person
/// may be thinking; unless it is a stranger's who has not said `hello`.
#[derive(Debug)]
pub struct ReplMachine {
    token: Option<Arc<Token>>,
    session: Option<Session>,
    /// How many snippets there were, in all sessions of this connection.
    snippets: u64,
    pending: Option<Pending>,
    is_closed: bool,
    next_ticket: u64,
    outbox: VecDeque<Output<RubyRequest>>,
}

#[derive(Debug)]
struct Session {
    name: String,
    identity: Identity,
}

#[derive(Debug)]
struct Pending {
    ticket: Ticket,
    id: String,
    asked: Asked,
}

#[derive(Debug)]
enum Asked {
    Session(Identity),
    Eval,
}

impl ReplMachine {
    /// A connection to a server that asks for `token`.
    pub fn new(token: Option<Arc<Token>>) -> Self {
        Self {
            token,
            session: None,
            snippets: 0,
            pending: None,
            is_closed: false,
            next_ticket: 0,
            outbox: VecDeque::new(),
        }
    }

    /// The same for a stranger who connected at `now`: it is closed unless it says a valid `hello` within
    /// [`HELLO_WAIT`].
    pub fn of_stranger(mut self, now: Instant) -> Self {
        self.outbox.push_back(Output::WakeAt(now + HELLO_WAIT));
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
            Input::Frame(line) => self.on_line(line),
            Input::Oversize { limit } => {
                // With its newline, as clients count.
                self.fail(NULL, FrameError::Oversize { limit: limit + 1 });
                self.close();
            }
            Input::Answer(ticket, answer) => self.on_answer(ticket, answer),
            // Whose hello was right and is being carried out has said it in time.
            Input::Deadline if self.session.is_none() && self.pending.is_none() => self.close(),
            Input::Event(()) | Input::Deadline => {}
        }
    }

    fn poll(&mut self) -> Option<Output<RubyRequest>> {
        self.outbox.pop_front()
    }

    fn wants_frame(&self) -> bool {
        self.pending.is_none() && !self.is_closed
    }

    fn wants_object(&self) -> bool {
        self.session.is_none()
    }

    fn max_reply_bytes(&self, request: &RubyRequest) -> usize {
        largest_reply(request)
    }

    fn max_line_bytes(&self) -> usize {
        let longest = if self.session.is_none() { HELLO_LINE_BYTES } else { MAX_REQUEST_BYTES };
        longest - 1
    }
}

impl ReplMachine {
    fn on_line(&mut self, line: &[u8]) {
        let request = match Request::read(line) {
            Ok(request) => request,
            Err(Unreadable::NoJson(detail)) => return self.fail(NULL, FrameError::NoJson(detail)),
            Err(Unreadable::NoObject) => return self.fail(NULL, FrameError::NoObject),
        };
        let id = request.id();
        let done = match request.method().as_deref() {
            Some(method::HELLO) => self.hello(id, request.params),
            Some(method::EVAL | method::PING) if self.session.is_none() => Err(FrameError::NotIdentified),
            Some(method::EVAL) => self.eval(id, request.params),
            Some(method::PING) => {
                self.succeed(id, &render::PONG);
                Ok(())
            }
            Some(other) => Err(FrameError::UnknownMethod(other.to_owned())),
            None => Err(FrameError::NoMethod),
        };
        if let Err(flaw) = done {
            let is_no_token = matches!(flaw, FrameError::BadToken | FrameError::NoServerToken);
            let shuts_out = is_no_token && self.session.is_none();
            self.fail(id, flaw);
            if shuts_out {
                self.close();
            }
        }
    }

    fn hello(&mut self, id: &str, params: Option<&RawValue>) -> Result<(), FrameError> {
        let (identity, pid) = Identity::of_console(params, self.token.as_deref())?;
        self.ask(id, RubyRequest::OpenConsole { pid }, Asked::Session(identity));
        Ok(())
    }

    fn eval(&mut self, id: &str, params: Option<&RawValue>) -> Result<(), FrameError> {
        let missing = || FrameError::BadParams("Missing code parameter".to_owned());
        let Some(Session { name, identity }) = &self.session else { return Err(FrameError::NotIdentified) };
        let params = params.filter(|raw| envelope::is_truthy(raw)).ok_or_else(missing)?.get();
        let members = Members::read(params, &["code"])
            .map_err(|_| FrameError::BadParams("Invalid params: params must be an object".to_owned()))?;
        let code = members.get("code").filter(|raw| envelope::is_truthy(raw)).ok_or_else(missing)?;
        let code = envelope::string(code)
            .ok_or_else(|| FrameError::BadParams("Invalid params: code must be a string".to_owned()))?;
        self.snippets += 1;
        let key = identity.key(id, method::EVAL, params);
        let caller = identity.caller.clone();
        let job = Box::new(RubyJob::Line { session: name.clone(), number: self.snippets, code });
        self.ask(id, RubyRequest::Call { key, caller, job }, Asked::Eval);
        Ok(())
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
        let reply = match answer {
            Ok(reply) => reply,
            Err(refusal) => return self.send_fault(&id, &code::of_refusal(&refusal)),
        };
        match (asked, &*reply) {
            (Asked::Session(identity), RubyReply::ConsoleOpened { session }) => {
                self.session = Some(Session { name: session.clone(), identity });
                let version = RUNTIME_VERSION.to_owned();
                let name = "supex-repl".to_owned();
                let server = ServerInfo { name, version, attach: None, instance: None };
                self.succeed(&id, &ReplHelloResult { success: true, session: session.clone(), server });
            }
            (Asked::Session(_), RubyReply::ConsoleRefused { reason }) => {
                self.send_fault(&id, &code::internal(reason));
            }
            (Asked::Eval, RubyReply::Evaluated(evaluated)) => {
                self.succeed(&id, &EvalResult { output: output(evaluated), success: true });
            }
            (Asked::Eval, RubyReply::Upstream(Ok(result))) => {
                match serde_json::from_str::<&RawValue>(result) {
                    Ok(result) => self.succeed(&id, result),
                    Err(error) => {
                        self.send_fault(&id, &code::internal(format!("SketchUp gave no JSON: {error}")))
                    }
                }
            }
            (Asked::Eval, RubyReply::Upstream(Err(failure))) => {
                self.send_fault(&id, &code::of_model(failure, ""));
            }
            (Asked::Session(_) | Asked::Eval, _) => {
                self.send_fault(&id, &code::internal("the workshop gave another answer"));
            }
        }
    }

    fn fail(&mut self, id: &str, flaw: FrameError) {
        self.send_fault(id, &code::of_flaw(flaw, Side::Repl));
    }

    fn send_fault(&mut self, id: &str, fault: &Fault) {
        self.outbox.push_back(Output::Send(render::failure(Side::Repl, id, fault)));
    }

    fn succeed(&mut self, id: &str, result: &(impl Serialize + ?Sized)) {
        self.outbox.push_back(Output::Send(render::success(Side::Repl, id, &result)));
    }

    fn close(&mut self) {
        self.is_closed = true;
        self.outbox.push_back(Output::Close);
    }
}

#[derive(Serialize)]
struct EvalResult {
    output: String,
    success: bool,
}

/// What a console shows: what was printed, then the value or the exception.
fn output(evaluated: &EvaluationResult) -> String {
    let mut text = printed_text(evaluated);
    match &evaluated.outcome {
        Ok(value) => text.push_str(&format!("=> {value}\n")),
        Err(failure) => show_failure(&mut text, failure),
    }
    text
}

fn show_failure(text: &mut String, failure: &RubyFailure) {
    match &failure.class {
        Some(class) => text.push_str(&format!("#<{class}: {}>\n", failure.message)),
        // No exception: the hint is all that there is to read besides.
        None => {
            text.push_str(&format!("{}\n", failure.message));
            if let Some(hint) = &failure.hint {
                text.push_str(&format!("{hint}\n"));
            }
        }
    }
    for frame in failure.backtrace.iter().take(CONSOLE_BACKTRACE_LINES) {
        text.push_str(frame);
        text.push('\n');
    }
}
