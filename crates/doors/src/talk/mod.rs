//! The harness that fuzz targets and properties share: one connection, imagined to its end.
//!
//! A peer's bytes go through [`Lines`] to a door's machine just as a driver passes them. The engine
//! behind it is imagined: it keeps the engine's promises (a name has one bearer at a time, nothing
//! comes from a process before its start is answered or after its exit) and does all else as its
//! *whims* say, a string of bytes of which each decision takes one. After every single step the
//! machine is held to its own promises; a broken one is a panic.

mod engine;

use std::collections::{BTreeSet, HashMap};
use std::time::Instant;

use parlor_vocab::{Command, Event, Reply};
use serde_json::Value;

use self::engine::{Engine, Happening};
use crate::exec::{ExecMachine, MAX_REQUEST_ID_BYTES, method};
use crate::jsonrpc::{Message, RequestId};
use crate::lines::{Line, Lines};
use crate::{Input, Machine, Output, Ticket};

/// A line may be this long here: little, so that a fuzzer finds the way beyond it.
pub const LINE_BYTES: usize = 2048;

/// What is spoken.
#[derive(Clone, Copy, Debug)]
pub enum Dialect {
    /// `parlor_doors::exec`.
    Exec,
}

/// Plays a connection whose bytes arrive as `chunks`, with an engine of these `whims`. Returns the
/// frames that the peer got, which depend on the bytes and not on how they were cut.
///
/// # Panics
/// When the machine breaks a promise.
pub fn talk<C: AsRef<[u8]>>(dialect: Dialect, chunks: &[C], whims: &[u8]) -> Vec<Vec<u8>> {
    match dialect {
        Dialect::Exec => Talk::new(ExecMachine::default(), whims).play(chunks),
    }
}

/// Reads a fuzzer's input as chunks and whims: 0xFE cuts, and what follows 0xFF is whims. No UTF-8
/// text holds either, so plain text is an input too: one chunk, and an engine without whims.
pub fn script(input: &[u8]) -> (Vec<&[u8]>, &[u8]) {
    let mut halves = input.splitn(2, |byte| *byte == 0xFF);
    let stream = halves.next().unwrap_or_default();
    (stream.split(|byte| *byte == 0xFE).collect(), halves.next().unwrap_or_default())
}

/// Checks that [`Lines`] finds in `chunks` the lines that are there, each as soon as it is there,
/// and gives a line up as soon as it is too long.
///
/// # Panics
/// When it does not.
pub fn check_lines<C: AsRef<[u8]>>(chunks: &[C]) {
    const LIMIT: usize = 16;
    let own = |line: Line<'_>| match line {
        Line::Whole(bytes) => Some(bytes.to_vec()),
        Line::Oversize => None,
    };
    let (mut stream, mut newlines) = (Vec::new(), 0);
    let (mut lines, mut found) = (Lines::new(LIMIT), Vec::new());
    let mut asked_late = Lines::new(LIMIT);
    for chunk in chunks {
        stream.extend_from_slice(chunk.as_ref());
        asked_late.push(chunk.as_ref());
        lines.push(chunk.as_ref());
        while let Some(line) = lines.next_line() {
            found.push(own(line));
        }
        newlines += chunk.as_ref().iter().filter(|byte| **byte == b'\n').count();
        let unfinished = stream.rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
        assert_eq!(found.len(), newlines + usize::from(unfinished.len() > LIMIT));
    }
    found.extend(lines.finish().map(own));
    let mut there: Vec<_> = stream.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
    there.pop_if(|last| last.is_empty());
    let there: Vec<_> = there.into_iter().map(|line| Some(line).filter(|line| line.len() <= LIMIT)).collect();
    assert_eq!(found, there);

    let mut found = Vec::new();
    while let Some(line) = asked_late.next_line() {
        found.push(own(line));
    }
    found.extend(asked_late.finish().map(own));
    assert_eq!(found, there);
}

struct Talk<'a, M> {
    machine: M,
    engine: Engine<'a>,
    now: Instant,
    /// Whose answer the engine owes.
    asked: HashMap<Ticket, RequestId>,
    /// The processes that the peer was told of and that it may hear more of.
    running: BTreeSet<String>,
    heard: Vec<Vec<u8>>,
}

impl<'a, M: Machine<Ask = Command, Reply = Reply, Event = Event>> Talk<'a, M> {
    fn new(machine: M, whims: &'a [u8]) -> Self {
        let engine = Engine::new(whims);
        // Only a place to count from: no machine here asks for the time.
        let now = Instant::now();
        let (asked, running, heard) = (HashMap::new(), BTreeSet::new(), Vec::new());
        Self { machine, engine, now, asked, running, heard }
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
        while let Some(happening) = self.engine.answer().or_else(|| self.engine.exit()) {
            self.on_happening(happening);
        }
        assert!(self.asked.is_empty(), "requests without a reply: {:?}", self.asked);
        assert!(self.running.is_empty(), "processes without an end: {:?}", self.running);
        self.heard
    }

    fn on_line(&mut self, line: Line<'_>) {
        while !self.machine.wants_frame() {
            let happening = self.engine.answer().expect("only an open question keeps frames waiting");
            self.on_happening(happening);
        }
        let (owed, input) = match line {
            Line::Whole(frame) => (owed(frame), Input::Frame(frame)),
            Line::Oversize => (Some(RequestId::NONE), Input::Oversize { limit: LINE_BYTES }),
        };
        match (owed, self.hand_over(input).as_slice()) {
            (None, []) => {}
            (Some(id), [Output::Send(frame)]) => self.hear_reply(&id, frame),
            (Some(id), [Output::Ask(ticket, command)]) => {
                let before = self.asked.insert(*ticket, id);
                assert_eq!(before, None, "{ticket:?} is used twice");
                let may_wait = matches!(command, Command::WriteProcess { .. });
                assert_eq!(self.machine.wants_frame(), may_wait, "after {command:?}");
                self.engine.ask(*ticket, command.clone());
            }
            (owed, outputs) => panic!("owed a reply to {owed:?} and did {outputs:?}"),
        }
        for _ in 0..self.engine.zeal() {
            if let Some(happening) = self.engine.act() {
                self.on_happening(happening);
            }
        }
    }

    fn on_happening(&mut self, happening: Happening) {
        match happening {
            Happening::Answer(ticket, answer) => {
                let id = self.asked.remove(&ticket).expect("the engine answers what it was asked");
                match self.hand_over(Input::Answer(ticket, answer)).as_slice() {
                    [Output::Send(frame)] => self.hear_reply(&id, frame),
                    outputs => panic!("told an answer to {id:?} and did {outputs:?}"),
                }
            }
            Happening::Event(event) => match self.hand_over(Input::Event(&event)).as_slice() {
                [Output::Send(frame)] => self.hear_notification(frame),
                outputs => panic!("told {event:?} and did {outputs:?}"),
            },
        }
    }

    fn hand_over(&mut self, input: Input<'_, Reply, Event>) -> Vec<Output<Command>> {
        self.machine.handle(self.now, input);
        std::iter::from_fn(|| self.machine.poll()).collect()
    }

    fn hear_reply(&mut self, owed: &RequestId, frame: &[u8]) {
        let value = self.hear(frame);
        assert_eq!(value["id"], serde_json::json!(owed));
        if let Some(error) = value.get("error") {
            assert_eq!(members(&value), ["error", "id"]);
            assert_eq!(members(error), ["code", "message"]);
            assert!(error["code"].is_i64() && error["message"].is_string(), "{error}");
        } else {
            assert_eq!(members(&value), ["id", "result"]);
        }
        if let Some(process) = value["result"]["processId"].as_str() {
            assert!(self.running.insert(process.to_owned()), "{process:?} is started twice");
        }
    }

    fn hear_notification(&mut self, frame: &[u8]) {
        let value = self.hear(frame);
        assert_eq!(members(&value), ["method", "params"]);
        let process = value["params"]["processId"].as_str().expect("it is about a process");
        assert!(self.running.contains(process), "{process:?} is not running: {value}");
        match value["method"].as_str() {
            Some(method::OUTPUT_DELTA) => {}
            Some(method::EXITED) => drop(self.running.remove(process)),
            other => panic!("no notification has the method {other:?}"),
        }
    }

    fn hear(&mut self, frame: &[u8]) -> Value {
        assert!(!frame.contains(&b'\n'), "a frame is a line");
        self.heard.push(frame.to_vec());
        serde_json::from_slice(frame).expect("a frame is JSON")
    }
}

/// Under which id a frame is owed a reply, if it is.
fn owed(frame: &[u8]) -> Option<RequestId> {
    match Message::decode(frame) {
        _ if frame.trim_ascii().is_empty() => None,
        Ok(Message::Request { id: RequestId::Text(id), .. }) if id.len() > MAX_REQUEST_ID_BYTES => {
            Some(RequestId::NONE)
        }
        Ok(Message::Request { id, .. }) => Some(id),
        Ok(Message::Notification { method, .. }) if method == method::INITIALIZED => None,
        Ok(Message::Response { .. }) => None,
        Ok(Message::Notification { .. }) | Err(_) => Some(RequestId::NONE),
    }
}

fn members(value: &Value) -> Vec<&str> {
    let mut names: Vec<&str> =
        value.as_object().expect("an object").keys().map(std::ops::Deref::deref).collect();
    names.sort_unstable();
    names
}
