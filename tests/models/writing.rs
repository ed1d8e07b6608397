//! Calls while they are written, as a parent of the synaps door sees them.
#![expect(clippy::unwrap_used, reason = "a helper of a test that cannot go on panics, as the test would")]

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Stdio};
use std::sync::{Arc, Barrier};

use serde_json::{Value, json};

use crate::forms::Form;
use crate::home::Home;
use crate::server::{Deed, Server};

struct Parent {
    child: Child,
    said: BufReader<ChildStdout>,
}

impl Parent {
    fn start(home: &Home) -> Self {
        let mut command = home.command(&["stdio", "synaps"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        Self { child, said }
    }

    fn say(&mut self, command: &Value) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{command}").unwrap();
    }

    /// The events of a turn, to its end. When the first piece of an input is seen, `on_piece` is done.
    fn turn(&mut self, on_piece: impl FnOnce(&mut Self)) -> Vec<Value> {
        self.say(&json!({"type": "prompt", "id": "p", "message": "go"}));
        let (mut events, mut on_piece) = (Vec::new(), Some(on_piece));
        loop {
            let mut line = String::new();
            assert_ne!(self.said.read_line(&mut line).unwrap(), 0, "it goes on");
            let frame: Value = serde_json::from_str(&line).unwrap();
            match frame["type"].as_str().unwrap() {
                "message_update" => {
                    let is_piece = frame["event"]["type"] == "toolcall_input_delta";
                    if let Some(act) = on_piece.take_if(|_| is_piece) {
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

impl Drop for Parent {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// What was told of each call: its id, and the kinds of events about it, in order.
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

fn written(events: &[Value], id: &str) -> String {
    let pieces = events.iter().filter(|event| event["tool_id"] == id);
    pieces.filter_map(|event| event["delta"].as_str()).collect()
}

/// A stream in which a call has begun.
fn begun(form: Form) -> String {
    let call = form.call("read_file", r#"{"path":"#);
    call.split_inclusive("\n\n").next().unwrap().to_owned()
}

const WHOLE: [&str; 4] = ["start", "input_delta", "input", "result"];

#[test]
fn a_call_is_told_from_its_start_to_its_result_in_each_form() {
    for form in Form::ALL {
        let input = r#"{"path": "one.txt"}"#;
        let server = Server::start(vec![
            Deed::Answer(form.call("read_file", input)),
            Deed::Answer(form.text("Done.") + &form.end()),
        ]);
        let home = form.home(&server.url, "");
        let events = Parent::start(&home).turn(|_| ());
        let calls = calls(&events);
        assert!(calls.len() == 1 && calls[0].1 == WHOLE, "{form:?}: {events:?}");
        assert_eq!(written(&events, &calls[0].0), input, "{form:?}");
    }
}

#[test]
fn a_call_that_breaks_off_is_closed_and_the_next_has_another_id() {
    let form = Form::Chat;
    let begun = begun(form);
    let barrier = Arc::new(Barrier::new(2));
    let server = Server::start(vec![
        Deed::CutLater(begun, Arc::clone(&barrier)),
        Deed::Answer(form.call("read_file", r#"{"path":"one.txt"}"#)),
        Deed::Answer(form.text("Done.") + &form.end()),
    ]);
    let home = form.home(&server.url, "");
    let events = Parent::start(&home).turn(|_| {
        barrier.wait();
    });
    let calls = calls(&events);
    assert_eq!(calls.len(), 2, "{events:?}");
    assert!(calls.iter().all(|(_, kinds)| kinds == &WHOLE), "{events:?}");
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
fn a_call_that_is_being_written_when_the_turn_is_stopped_is_closed() {
    let form = Form::Chat;
    let server = Server::start(vec![Deed::Hang(begun(form))]);
    let home = form.home(&server.url, "");
    let stop = json!({"type": "abort", "id": "a"});
    let events = Parent::start(&home).turn(|parent| parent.say(&stop));
    let calls = calls(&events);
    assert!(calls.len() == 1 && calls[0].1 == WHOLE, "{events:?}");
    server.wait_until_left();
}
