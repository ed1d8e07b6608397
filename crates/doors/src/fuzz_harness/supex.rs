//! Checks the guarantees of the supex door, with a backend that takes its answers from the choices: each line has one
//! reply, and replies keep the order of requests.

use std::sync::Arc;
use std::time::Instant;

use parlor_vocab::{
    ConsoleLog, EvaluationResult, Failure, OutputStream, RubyFailure, RubyFailureKind, RubyRefusal,
    RubyReply, RubyRequest, ToolAnnotations, ToolImage, ToolInfo, ToolOutput, UpstreamError,
};
use serde_json::Value;

use super::LINE_BYTES;
use crate::lines::{Line, Lines};
use crate::supex::{AttachInfo, BridgeMachine, HelloToken, MAX_REPLY_BYTES, ReplMachine};
use crate::{Input, Machine, Output, Ticket};

/// Plays a connection to the bridge and one to the console with the same bytes. Returns the frames that the client
/// received.
pub(super) fn play<C: AsRef<[u8]>>(chunks: &[C], choices: &[u8]) -> Vec<Vec<u8>> {
    // With some choices the door has a token, which the client does not know.
    let token =
        choices.first().filter(|choice| **choice > 200).and_then(|_| HelloToken::new("secret")).map(Arc::new);
    let bridge = BridgeMachine::new(token.clone(), AttachInfo::new("one", "nonce1"), Instant::now());
    let mut received = Conversation::new(bridge, choices, true).play(chunks);
    received.extend(Conversation::new(ReplMachine::new(token), choices, false).play(chunks));
    received
}

struct Conversation<'a, M> {
    machine: M,
    choices: std::slice::Iter<'a, u8>,
    errors_have_data: bool,
    is_closed: bool,
    now: Instant,
    received: Vec<Vec<u8>>,
}

impl<'a, M> Conversation<'a, M>
where
    M: Machine<Request = RubyRequest, Reply = Arc<RubyReply>, Event = (), Error = RubyRefusal>,
{
    fn new(machine: M, choices: &'a [u8], errors_have_data: bool) -> Self {
        let (choices, now) = (choices.iter(), Instant::now());
        let mut conversation =
            Self { machine, choices, errors_have_data, is_closed: false, now, received: Vec::new() };
        let outputs = conversation.drain();
        assert!(
            outputs.iter().all(|output| matches!(output, Output::WakeAt(_))),
            "the server sends nothing first: {outputs:?}"
        );
        conversation
    }

    fn play<C: AsRef<[u8]>>(mut self, chunks: &[C]) -> Vec<Vec<u8>> {
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
        self.received
    }

    /// Passes in a line and expects one reply, at once or after one answer of the backend.
    fn on_line(&mut self, line: Line<'_>) {
        if self.is_closed {
            return;
        }
        assert!(self.machine.wants_frame());
        let (id, input) = match line {
            Line::Whole(frame) => (id_of(frame), Input::Frame(frame)),
            Line::Oversize => (Value::Null, Input::Oversize { limit: LINE_BYTES }),
        };
        self.machine.handle(self.now, input);
        let mut outputs = self.drain();
        if let [Output::Request(ticket, request)] = outputs.as_slice() {
            let (ticket, answer) = (*ticket, self.answer(request));
            assert!(!self.machine.wants_frame(), "replies keep the order of requests");
            self.machine.handle(self.now, Input::Answer(Ticket(u64::MAX), Ok(RubyReply::NoUpstream.into())));
            assert!(self.drain().is_empty(), "an answer without a request is ignored");
            self.machine.handle(self.now, Input::Answer(ticket, answer));
            outputs = self.drain();
        }
        outputs.retain(|output| !matches!(output, Output::WakeAt(_)));
        match outputs.as_slice() {
            [Output::Send(frame)] => self.receive(&id, frame),
            [Output::Send(frame), Output::Close] => {
                self.receive(&id, frame);
                self.is_closed = true;
                assert!(!self.machine.wants_frame());
            }
            other => panic!("expected one reply to {id}, got {other:?}"),
        }
    }

    fn receive(&mut self, id: &Value, frame: &[u8]) {
        assert!(frame.len() < MAX_REPLY_BYTES && !frame.contains(&b'\n'));
        let reply: Value = serde_json::from_slice(frame).expect("a frame is JSON");
        let members = reply.as_object().expect("a frame is an object");
        assert_eq!((members.len(), &members["jsonrpc"], &members["id"]), (3, &Value::from("2.0"), id));
        match members.get("error") {
            None => assert!(members["result"].is_object(), "{reply}"),
            Some(error) => {
                assert!(error["code"].is_i64() && error["message"].is_string(), "{reply}");
                match self.errors_have_data {
                    true => assert!(error["data"].is_object(), "{reply}"),
                    false => assert!(error.get("data").is_none(), "{reply}"),
                }
            }
        }
        self.received.push(frame.to_vec());
    }

    fn drain(&mut self) -> Vec<Output<RubyRequest>> {
        std::iter::from_fn(|| self.machine.poll()).collect()
    }

    fn choice(&mut self) -> u8 {
        self.choices.next().copied().unwrap_or_default()
    }

    fn answer(&mut self, request: &RubyRequest) -> Result<Arc<RubyReply>, RubyRefusal> {
        let text = |choice: u8| char::from(choice).to_string().repeat(usize::from(choice));
        let reply = match (request, self.choice() % 16) {
            (RubyRequest::OpenConsole { .. }, 0..14) => {
                RubyReply::ConsoleOpened { session: "s260314-091500-1".to_owned() }
            }
            (RubyRequest::DescribeConsole, 0..14) => RubyReply::Console(ConsoleLog { file: None }),
            (_, 0) => RubyReply::NoUpstream,
            (_, 1..5) => {
                let outcome = if self.choice().is_multiple_of(2) {
                    Ok(text(self.choice()))
                } else {
                    Err(self.failure())
                };
                let printed = vec![(OutputStream::Stdout, text(self.choice()))];
                RubyReply::Evaluated(EvaluationResult {
                    outcome,
                    printed,
                    omitted_bytes: 1,
                    restart_reason: None,
                })
            }
            (_, 5) => RubyReply::RubyRestarted(Err(self.failure())),
            (_, 6) => RubyReply::RubyRestarted(Ok(())),
            (_, 7) => RubyReply::PathRefused { path: text(self.choice()) },
            (_, 8) => RubyReply::FileMissing { path: text(self.choice()) },
            (_, 9) => RubyReply::Upstream(Ok(r#"{"a": 1}"#.to_owned())),
            (_, 10) => RubyReply::Upstream(Err(UpstreamError::Refused {
                code: i64::from(self.choice()),
                message: text(self.choice()),
                data: Some(r#"{"success":false}"#.to_owned()),
            })),
            (_, 11) => {
                let entry = ToolInfo {
                    name: "t".to_owned(),
                    title: None,
                    description: "T.".to_owned(),
                    schema: "{}".to_owned(),
                    output_schema: None,
                    annotations: ToolAnnotations::default(),
                };
                RubyReply::Tools(vec![entry])
            }
            (_, 12) => {
                let images = vec![ToolImage { mime: "image/png".to_owned(), bytes: vec![self.choice()] }];
                RubyReply::Tool(Ok(ToolOutput { text: text(self.choice()), images, ..ToolOutput::default() }))
            }
            (_, 13) => {
                let code = ["INVALID_INPUT", "PATH_REFUSED", "X"][usize::from(self.choice() % 3)].to_owned();
                RubyReply::Tool(Err(Failure {
                    code: code.as_str().into(),
                    message: text(self.choice()),
                    retryable: false,
                }))
            }
            (_, 14) => RubyReply::UnknownTool { name: text(self.choice()) },
            (_, _) => return Err(RubyRefusal::TooManyRequests { limit: 1 }),
        };
        Ok(Arc::new(reply))
    }

    fn failure(&mut self) -> RubyFailure {
        let kind = match self.choice() % 4 {
            0 => RubyFailureKind::Raised,
            1 => RubyFailureKind::Syntax,
            2 => RubyFailureKind::Aborted,
            _ => RubyFailureKind::Unavailable,
        };
        let class = Some("E".to_owned()).filter(|_| self.choice().is_multiple_of(2));
        let (line, backtrace) = (Some(u64::from(self.choice())), vec!["f".to_owned(); 9]);
        RubyFailure { kind, message: "m\n".to_owned(), class, file: None, line, backtrace, hint: None }
    }
}

/// The id of the reply to a line, decoded in another way than the machine does.
fn id_of(line: &[u8]) -> Value {
    match serde_json::from_slice::<Value>(line) {
        Ok(message) if crate::supex::decode::Request::decode(line).is_ok() => {
            message.get("id").cloned().unwrap_or_default()
        }
        Ok(_) | Err(_) => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Valid and invalid lines.
    fn line() -> impl Strategy<Value = String> {
        let id_counter =
            ["eval_ruby", "eval_ruby_file", "ping", "get_layers", "take_batch_screenshots", "shell", "x"];
        let call = (prop::sample::select(id_counter.to_vec()), "[ -~]{0,8}", 0..9_u8).prop_map(
            |(name, text, id)| {
                let arguments = serde_json::json!({"code": text, "file_path": text, "base_name": text});
                let params = serde_json::json!({"name": name, "arguments": arguments});
                serde_json::json!({"method": "tools/call", "params": params, "id": id}).to_string()
            },
        );
        let method = prop::sample::select(&["ping", "eval", "tools/list", "resources/list", "nope"][..])
            .prop_map(|method| {
                serde_json::json!({"method": method, "params": {"code": "1"}, "id": [1]}).to_string()
            });
        let hello = r#"{"method":"hello","params":{"name":"n","version":"v","agent":"a","pid":1,"features":["output"]}}"#;
        prop_oneof![
            4 => call,
            2 => method,
            3 => Just(hello.to_owned()),
            1 => "[ -~]{0,20}",
            1 => Just("x".repeat(LINE_BYTES + 1)),
        ]
    }

    proptest! {
        #[test]
        fn replies_do_not_depend_on_the_sizes_of_chunks(
            lines in prop::collection::vec(line(), 0..8),
            choices in prop::collection::vec(any::<u8>(), 0..40),
            size in 1..50_usize,
        ) {
            let stream = lines.join("\n").into_bytes();
            let chunks: Vec<&[u8]> = stream.chunks(size).collect();
            prop_assert_eq!(play(&chunks, &choices), play(&[&stream], &choices));
        }
    }
}
