//! Tests of both machines that transcripts cannot show, above all deadlines.

use std::time::{Duration, Instant};

use parlor_vocab::{Caller, RubyFailure, RubyFailureKind, RubyReply, RubyRequest};

use super::super::{HELLO_LINE_BYTES, HELLO_WAIT, IDLE_WAIT};
use super::*;
use crate::{Input, Machine, Output, Ticket};

const HELLO: &[u8] =
    br#"{"method":"hello","params":{"name":"n","version":"v","agent":"a","pid":1},"id":"hello"}"#;
const EVAL: &[u8] =
    br#"{"method":"tools/call","params":{"name":"eval_ruby","arguments":{"code":"1"}},"id":2}"#;

fn drain<M: Machine>(machine: &mut M) -> Vec<Output<M::Request>> {
    std::iter::from_fn(|| machine.poll()).collect()
}

/// A bridge that has received a valid `hello`, and the moment of that.
fn identified_bridge() -> (BridgeMachine, Instant) {
    let now = Instant::now();
    let mut machine = BridgeMachine::new(None, AttachInfo::new("one", "nonce1"), now);
    drain(&mut machine);
    machine.handle(now, Input::Frame(HELLO));
    let outputs = drain(&mut machine);
    assert!(matches!(outputs.as_slice(), [Output::WakeAt(_), Output::Send(_)]), "{outputs:?}");
    (machine, now)
}

#[test]
fn a_client_with_the_feature_attach_learns_the_instance_of_the_server() {
    let hello = |instance: &str, features: &str| {
        let now = Instant::now();
        let mut machine = BridgeMachine::new(None, AttachInfo::new(instance, "nonce1"), now);
        drain(&mut machine);
        let params = format!(r#"{{"name":"n","version":"v","agent":"a","pid":1,"features":{features}}}"#);
        let line = format!(r#"{{"method":"hello","params":{params},"id":1}}"#);
        machine.handle(now, Input::Frame(line.as_bytes()));
        let outputs = drain(&mut machine);
        let [_, Output::Send(frame)] = outputs.as_slice() else { panic!("{outputs:?}") };
        serde_json::from_slice::<serde_json::Value>(frame).unwrap()["result"]["server"].clone()
    };
    let server = hello("one", r#"["attach"]"#);
    assert_eq!((&server["attach"], &server["instance"]), (&true.into(), &"one".into()));
    assert_eq!(hello("two", r#"["attach"]"#)["instance"], "two");
    let plain = serde_json::json!({"name": "supex-runtime", "version": "0.2.0"});
    assert_eq!(
        hello("one", r#"["output"]"#),
        plain,
        "other clients get the members of the original protocol"
    );
}

fn closes(outputs: &[Output<RubyRequest>]) -> bool {
    outputs.iter().any(|output| matches!(output, Output::Close))
}

#[test]
fn a_client_that_sends_no_hello_is_disconnected_without_an_error() {
    let now = Instant::now();
    let mut machine = BridgeMachine::new(None, AttachInfo::new("one", "nonce1"), now);
    assert!(matches!(drain(&mut machine).as_slice(), [Output::WakeAt(at)] if *at == now + HELLO_WAIT));
    machine.handle(now + HELLO_WAIT, Input::Deadline);
    assert!(matches!(drain(&mut machine).as_slice(), [Output::Close]));
}

#[test]
fn a_failed_hello_restarts_the_deadline() {
    let now = Instant::now();
    let mut machine = BridgeMachine::new(None, AttachInfo::new("one", "nonce1"), now);
    drain(&mut machine);
    let later = now + HELLO_WAIT / 2;
    machine.handle(later, Input::Frame(br#"{"method":"hello","params":{}}"#));
    drain(&mut machine);
    machine.handle(now + HELLO_WAIT, Input::Deadline);
    assert!(matches!(drain(&mut machine).as_slice(), [Output::WakeAt(at)] if *at == later + HELLO_WAIT));
}

#[test]
fn an_idle_client_is_disconnected_after_the_idle_wait() {
    let (mut machine, now) = identified_bridge();
    let active = now + Duration::from_secs(100);
    machine.handle(active, Input::Frame(br#"{"method":"ping"}"#));
    drain(&mut machine);
    machine.handle(now + IDLE_WAIT, Input::Deadline);
    assert!(matches!(drain(&mut machine).as_slice(), [Output::WakeAt(at)] if *at == active + IDLE_WAIT));
    machine.handle(active + IDLE_WAIT, Input::Deadline);
    assert!(closes(&drain(&mut machine)));
    assert!(IDLE_WAIT >= Duration::from_secs(600));
}

#[test]
fn a_client_with_a_pending_request_is_not_idle() {
    let (mut machine, now) = identified_bridge();
    machine.handle(now, Input::Frame(EVAL));
    assert!(matches!(drain(&mut machine).as_slice(), [Output::Request(..)]));
    machine.handle(now + 2 * IDLE_WAIT, Input::Deadline);
    assert!(!closes(&drain(&mut machine)));
}

#[test]
fn a_console_without_a_hello_deadline_sets_no_timer() {
    let mut machine = ReplMachine::new(None);
    assert!(drain(&mut machine).is_empty());
    machine.handle(Instant::now(), Input::Frame(br#"{"method":"hello"}"#));
    let [Output::Request(ticket, _)] = drain(&mut machine)[..] else { panic!("a session is requested") };
    let opened = RubyReply::ConsoleOpened { session: "s1".to_owned() };
    machine.handle(Instant::now(), Input::Answer(ticket, Ok(opened.into())));
    assert!(matches!(drain(&mut machine).as_slice(), [Output::Send(_)]));
}

#[test]
fn the_next_request_waits_for_the_reply_before_it() {
    let (mut machine, now) = identified_bridge();
    machine.handle(now, Input::Frame(EVAL));
    let [Output::Request(ticket, _)] = drain(&mut machine)[..] else { panic!("a call is submitted") };
    assert!(!machine.wants_frame());
    machine.handle(now, Input::Answer(Ticket(ticket.0 + 1), Ok(RubyReply::NoUpstream.into())));
    assert!(drain(&mut machine).is_empty() && !machine.wants_frame(), "this answers another request");
    machine.handle(now, Input::Answer(ticket, Ok(RubyReply::NoUpstream.into())));
    assert!(matches!(drain(&mut machine).as_slice(), [Output::Send(_)]));
    assert!(machine.wants_frame());
}

#[test]
fn a_line_above_the_limit_closes_the_connection() {
    let (mut machine, now) = identified_bridge();
    machine.handle(now, Input::Oversize { limit: machine.max_line_bytes() });
    let outputs = drain(&mut machine);
    let [Output::Send(frame), Output::Close] = outputs.as_slice() else { panic!("{outputs:?}") };
    let frame = String::from_utf8_lossy(frame);
    assert!(frame.contains("Message exceeds maximum size (1048576 bytes)"), "{frame}");
    assert!(!machine.wants_frame());
}

#[test]
fn a_console_with_a_hello_deadline_is_closed_without_hello() {
    let now = Instant::now();
    let late = now + HELLO_WAIT;
    let mut unidentified = ReplMachine::new(None).with_hello_deadline(now);
    assert_eq!(unidentified.poll(), Some(Output::WakeAt(late)));
    unidentified.handle(now, Input::Frame(br#"{"method":"ping","id":1}"#));
    assert!(matches!(unidentified.poll(), Some(Output::Send(_))));
    unidentified.handle(late, Input::Deadline);
    assert_eq!(unidentified.poll(), Some(Output::Close));
    assert!(!unidentified.wants_frame());

    // The `hello` is valid, and the backend has not answered yet.
    let mut identified = ReplMachine::new(None).with_hello_deadline(now);
    identified.handle(now, Input::Frame(br#"{"method":"hello","id":1}"#));
    identified.handle(late, Input::Deadline);
    let outputs: Vec<_> = std::iter::from_fn(|| identified.poll()).collect();
    assert!(matches!(outputs.as_slice(), [Output::WakeAt(_), Output::Request(..)]), "{outputs:?}");
}

#[test]
fn lines_before_hello_have_a_lower_limit() {
    let mut bridge = BridgeMachine::new(None, AttachInfo::new("one", "nonce1"), Instant::now());
    let mut repl = ReplMachine::new(None);
    assert_eq!(
        (bridge.max_line_bytes(), repl.max_line_bytes()),
        (HELLO_LINE_BYTES - 1, HELLO_LINE_BYTES - 1)
    );
    assert!(repl.requires_object());
    for machine in [&mut bridge as &mut dyn Machine<Request = _, Reply = _, Event = _, Error = _>, &mut repl]
    {
        machine.handle(Instant::now(), Input::Oversize { limit: machine.max_line_bytes() });
        let error = std::iter::from_fn(|| machine.poll()).find_map(|output| match output {
            Output::Send(frame) => Some(String::from_utf8_lossy(&frame).into_owned()),
            Output::SendShared(_) | Output::Request(..) | Output::WakeAt(_) | Output::Close => None,
        });
        assert!(error.unwrap().contains("Message exceeds maximum size (65536 bytes)"));
    }
}

/// The reply to `line` on an identified bridge whose backend answers with `reply`, and the most bytes that it reserves.
fn replied(line: &[u8], reply: RubyReply) -> (serde_json::Value, usize) {
    let (mut machine, now) = identified_bridge();
    machine.handle(now, Input::Frame(line));
    let outputs = drain(&mut machine);
    let [Output::Request(ticket, request)] = outputs.as_slice() else { panic!("{outputs:?}") };
    let reserved = machine.max_reply_bytes(request);
    machine.handle(now, Input::Answer(*ticket, Ok(reply.into())));
    let outputs = drain(&mut machine);
    let [Output::Send(frame)] = outputs.as_slice() else { panic!("{outputs:?}") };
    (serde_json::from_slice(frame).unwrap(), reserved)
}

#[test]
fn a_restart_of_ruby_is_told_in_the_text_and_in_a_member() {
    let evaluated = |outcome| {
        RubyReply::Evaluated(EvaluationResult {
            outcome,
            printed: Vec::new(),
            omitted_bytes: 0,
            restart_reason: Some("killed by signal 9".to_owned()),
        })
    };
    let notice = "[Ruby was restarted before this evaluation (killed by signal 9): variables, methods, constants and \
                  loaded files of earlier evaluations are lost]";
    let (reply, _) = replied(EVAL, evaluated(Ok("2".to_owned())));
    assert_eq!(reply["result"]["result"], format!("2\n{notice}"));
    assert_eq!(reply["result"]["restarted"], notice);
    let failure = RubyFailure {
        kind: RubyFailureKind::Raised,
        message: "no".to_owned(),
        class: None,
        file: None,
        line: None,
        backtrace: Vec::new(),
        hint: None,
    };
    let (reply, _) = replied(EVAL, evaluated(Err(failure)));
    assert_eq!(reply["error"]["message"], format!("Ruby evaluation error: no\n{notice}"));
    assert_eq!(reply["error"]["data"]["restarted"], notice);
}

#[test]
fn replies_that_may_be_large_reserve_memory() {
    let request = |name: &str| RubyRequest::Call {
        repeat: None,
        caller: Caller::default(),
        job: Box::new(RubyJob::Tool { name: name.to_owned(), input: "{}".to_owned() }),
    };
    let (bridge, _) = identified_bridge();
    assert_eq!(bridge.max_reply_bytes(&request("read_file")), MAX_REPLY_BYTES, "it may return an image");
    assert_eq!(bridge.max_reply_bytes(&request("shell")), 0, "its output is short, and it may run for long");
    assert_eq!(replied(EVAL, RubyReply::NoUpstream).1, MAX_REPLY_BYTES);
}
