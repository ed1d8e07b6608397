//! Tool calls while the model writes them, as a client of the synaps door sees them.
#![expect(clippy::unwrap_used, reason = "test helpers panic on failure, as the tests do")]

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Stdio};
use std::sync::{Arc, Barrier};

use serde_json::{Value, json};

use crate::api_format::ApiFormat;
use crate::home::Home;
use crate::scripted_server::{Reply, ScriptedServer};

/// A running `parlor stdio synaps`. Ends on drop.
struct SynapsChild {
    child: Child,
    stdout: BufReader<ChildStdout>,
}

impl SynapsChild {
    fn start(home: &Home) -> Self {
        let mut command = home.command(&["stdio", "synaps"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Self { child, stdout }
    }

    fn send(&mut self, command: &Value) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{command}").unwrap();
    }

    /// Runs a turn and returns its events. Calls `on_first_delta` at the first delta of a tool input.
    fn run_turn(&mut self, on_first_delta: impl FnOnce(&mut Self)) -> Vec<Value> {
        self.send(&json!({"type": "prompt", "id": "p", "message": "go"}));
        let (mut events, mut on_first_delta) = (Vec::new(), Some(on_first_delta));
        loop {
            let mut line = String::new();
            assert_ne!(self.stdout.read_line(&mut line).unwrap(), 0, "the child closed its stdout");
            let frame: Value = serde_json::from_str(&line).unwrap();
            match frame["type"].as_str().unwrap() {
                "message_update" => {
                    let is_delta = frame["event"]["type"] == "toolcall_input_delta";
                    if let Some(act) = on_first_delta.take_if(|_| is_delta) {
                        act(self);
                    }
                    events.push(frame["event"].clone());
                }
                "response" => return events,
                _ => {}
            }
        }
    }
}

impl Drop for SynapsChild {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// The id of each call, and the types of its events in order; repeated deltas count once.
fn calls(events: &[Value]) -> Vec<(String, Vec<String>)> {
    let mut calls: Vec<(String, Vec<String>)> = Vec::new();
    for event in events {
        let Some(id) = event["tool_id"].as_str() else { continue };
        let kind = event["type"].as_str().unwrap().trim_start_matches("toolcall_").to_owned();
        match calls.iter_mut().find(|(known, _)| known == id) {
            Some((_, kinds)) => kinds.push(kind),
            None => calls.push((id.to_owned(), vec![kind])),
        }
    }
    for (_, kinds) in &mut calls {
        kinds.dedup_by(|later, earlier| later == earlier && later == "input_delta");
    }
    calls
}

fn streamed_input(events: &[Value], id: &str) -> String {
    let call_events = events.iter().filter(|event| event["tool_id"] == id);
    call_events.filter_map(|event| event["delta"].as_str()).collect()
}

/// The beginning of a stream with a tool call.
fn call_start(api: ApiFormat) -> String {
    let call = api.call("read_file", r#"{"path":"#);
    call.split_inclusive("\n\n").next().unwrap().to_owned()
}

const ALL_EVENTS: [&str; 4] = ["start", "input_delta", "input", "result"];

#[test]
fn a_call_is_reported_from_its_start_to_its_result_in_each_format() {
    for api in ApiFormat::ALL {
        let input = r#"{"path": "one.txt"}"#;
        let server = ScriptedServer::start(vec![
            Reply::Stream(api.call("read_file", input)),
            Reply::Stream(api.text("Done.") + &api.end()),
        ]);
        let home = api.home(&server.url, "");
        let events = SynapsChild::start(&home).run_turn(|_| ());
        let calls = calls(&events);
        assert!(calls.len() == 1 && calls[0].1 == ALL_EVENTS, "{api:?}: {events:?}");
        assert_eq!(streamed_input(&events, &calls[0].0), input, "{api:?}");
    }
}

#[test]
fn a_call_that_breaks_off_is_closed_and_the_next_has_another_id() {
    let api = ApiFormat::Chat;
    let call_start = call_start(api);
    let barrier = Arc::new(Barrier::new(2));
    let server = ScriptedServer::start(vec![
        Reply::CutStreamAtBarrier(call_start, Arc::clone(&barrier)),
        Reply::Stream(api.call("read_file", r#"{"path":"one.txt"}"#)),
        Reply::Stream(api.text("Done.") + &api.end()),
    ]);
    let home = api.home(&server.url, "");
    let events = SynapsChild::start(&home).run_turn(|_| {
        barrier.wait();
    });
    let calls = calls(&events);
    assert_eq!(calls.len(), 2, "{events:?}");
    assert!(calls.iter().all(|(_, kinds)| kinds == &ALL_EVENTS), "{events:?}");
    let results: Vec<&Value> = events
        .iter()
        .filter(|event| event["type"] == "toolcall_result")
        .map(|event| &event["result"])
        .collect();
    assert_eq!(results[0], "not carried out: the answer broke off");
    assert!(results[1].as_str().unwrap().contains("content 0"), "{results:?}");
    assert_eq!(server.bodies().len(), 3);
}

#[test]
fn an_incomplete_call_is_closed_when_the_turn_is_stopped() {
    let api = ApiFormat::Chat;
    let server = ScriptedServer::start(vec![Reply::HangingStream(call_start(api))]);
    let home = api.home(&server.url, "");
    let stop = json!({"type": "abort", "id": "a"});
    let events = SynapsChild::start(&home).run_turn(|child| child.send(&stop));
    let calls = calls(&events);
    assert!(calls.len() == 1 && calls[0].1 == ALL_EVENTS, "{events:?}");
    server.wait_until_disconnected();
}
