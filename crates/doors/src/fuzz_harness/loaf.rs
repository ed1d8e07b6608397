//! The promises of the loaf door.
//!
//! Each request is answered once, under the id that it came with. Each turn that begins to be prepared ends once:
//! completed, interrupted or with an error; one that somebody interrupts ends so. The answer of a completed turn is what was streamed. Tools are told
//! one after another.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use parlor_vocab::{
    AgentChoice, AgentId, Clock, Credentials, FrontendRequest, IdSource, ModelOption, Preferences, Timestamp,
    UniqueNumber,
};
use serde::de::IgnoredAny;
use serde_json::Value;
use serde_json::value::RawValue;

use super::LINE_BYTES;
use super::fake_frontend::{FakeFrontend, Update};
use crate::lines::{Line, Lines};
use crate::loaf::{LoafMachine, Server};
use crate::{Input, Machine, Output};

pub(super) struct Conversation<'a> {
    machine: LoafMachine,
    frontend: FakeFrontend<'a>,
    is_closed: bool,
    /// How many answers are owed under each id.
    owed: HashMap<String, i64>,
    /// Turns: what was streamed, and whether they have ended.
    turns: HashMap<String, Turn>,
    /// Tools whose end was not told yet, by turn.
    tools: HashMap<String, usize>,
    /// The turn that began last in each session.
    current: HashMap<String, String>,
    /// The last assistant message of each session.
    said: HashMap<String, String>,
    heard: Vec<Vec<u8>>,
}

#[derive(Default)]
struct Turn {
    streamed: String,
    ends: usize,
    /// Somebody was told that it is being interrupted.
    is_interrupted: bool,
}

struct Counting(AtomicU64);

impl Clock for Counting {
    fn now(&self) -> Timestamp {
        Timestamp(1)
    }
}

impl IdSource for Counting {
    fn next(&self) -> UniqueNumber {
        UniqueNumber(self.0.fetch_add(1, Ordering::Relaxed).into())
    }
}

/// The models there are.
pub(super) fn offers() -> Vec<ModelOption> {
    let offer = |id: &str, provider: &str| ModelOption {
        id: id.to_owned(),
        provider: provider.to_owned(),
        shown_provider: None,
        label: id.to_owned(),
        description: String::new(),
        window: None,
        choice: AgentChoice { agent: AgentId::parse(id).ok(), ..AgentChoice::default() },
    };
    vec![offer("local", "openai"), offer("routed", "openrouter")]
}

impl<'a> Conversation<'a> {
    pub(super) fn new(choices: &'a [u8]) -> Self {
        let source = Arc::new(Counting(AtomicU64::new(0)));
        let (model, provider, thinking, route) = Default::default();
        let server = Server {
            folder: "/".into(),
            user_home: None,
            chats: "/chats".into(),
            kept: Preferences { model, provider, reasoning: thinking, route, setup_done: false },
            offers: offers(),
            logins: Credentials::default(),
            skill_folders: Vec::new(),
            skills: 0,
            tools: Vec::new(),
            clock: Arc::clone(&source) as _,
            ids: source,
        };
        Self {
            machine: LoafMachine::new(server),
            frontend: FakeFrontend::new(choices),
            is_closed: false,
            owed: HashMap::new(),
            turns: HashMap::new(),
            tools: HashMap::new(),
            current: HashMap::new(),
            said: HashMap::new(),
            heard: Vec::new(),
        }
    }

    pub(super) fn play<C: AsRef<[u8]>>(mut self, chunks: &[C]) -> Vec<Vec<u8>> {
        self.drain();
        let mut lines = Lines::new(LINE_BYTES).ending_at_return();
        for chunk in chunks {
            lines.push(chunk.as_ref());
            while let Some(line) = lines.next_line() {
                self.on_line(line);
            }
        }
        if let Some(line) = lines.finish() {
            self.on_line(line);
        }
        self.frontend.close();
        while let Some(happening) = self.frontend.oblige() {
            self.on_happening(happening);
        }
        let open: Vec<_> = self.owed.iter().filter(|(_, count)| **count != 0).collect();
        assert!(open.is_empty(), "not answered once: {open:?}");
        for (id, turn) in &self.turns {
            assert_eq!(turn.ends, 1, "turn {id}");
        }
        self.heard
    }

    fn on_line(&mut self, line: Line<'_>) {
        while !self.machine.wants_frame() && !self.is_closed {
            let happening = self.frontend.oblige().expect("a machine that waits is answered");
            self.on_happening(happening);
        }
        if self.is_closed {
            return;
        }
        let input = match line {
            Line::Whole(line) => {
                if let Some(id) = owed_under(&String::from_utf8_lossy(line)) {
                    *self.owed.entry(id).or_default() += 1;
                }
                Input::Frame(line)
            }
            Line::Oversize => {
                *self.owed.entry("null".to_owned()).or_default() += 1;
                Input::Oversize { limit: LINE_BYTES }
            }
        };
        self.machine.handle(Instant::now(), input);
        self.drain();
        for _ in 0..self.frontend.burst() {
            if let Some(happening) = self.frontend.act() {
                self.on_happening(happening);
            }
        }
    }

    fn on_happening(&mut self, happening: Update) {
        match happening {
            Update::Answer(ticket, answer) => {
                self.machine.handle(Instant::now(), Input::Answer(ticket, answer));
            }
            Update::Event(event) => self.machine.handle(Instant::now(), Input::Event(&event)),
        }
        self.drain();
    }

    fn drain(&mut self) {
        while let Some(output) = self.machine.poll() {
            match output {
                Output::Send(frame) => self.on_frame(frame),
                Output::Request(ticket, command) => self.on_ask(ticket, command),
                Output::Close => self.is_closed = true,
                Output::WakeAt(_) => panic!("this door waits for nothing"),
            }
        }
    }

    fn on_ask(&mut self, ticket: crate::Ticket, command: FrontendRequest) {
        if let Some(refusal) = self.frontend.ask(ticket, command) {
            self.machine.handle(Instant::now(), Input::Answer(ticket, Err(refusal)));
        }
    }

    fn on_frame(&mut self, frame: Vec<u8>) {
        assert!(!frame.contains(&b'\n'), "a frame is one line");
        let text = std::str::from_utf8(&frame).expect("a frame is UTF-8");
        if let Some(rest) = text.strip_prefix(r#"{"jsonrpc":"2.0","id":"#) {
            let id: &RawValue = first_value(rest);
            let count = self.owed.entry(id.get().to_owned()).or_default();
            *count -= 1;
            assert!(*count >= 0, "nobody asked for {text}");
        } else {
            let event: Value = serde_json::from_str(text).expect("an event is JSON");
            assert_eq!(event["method"], "event", "{text}");
            self.on_event(&event["params"]);
        }
        self.heard.push(frame);
    }

    fn on_event(&mut self, event: &Value) {
        let payload = &event["payload"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (session, turn) = (text(&payload["session_id"]), text(&payload["turn_id"]));
        match event["type"].as_str().expect("an event has a type") {
            "session.status" if payload["status_label"] == "preparing..." => {
                assert!(self.turns.insert(turn.clone(), Turn::default()).is_none(), "a turn begins once");
                self.current.insert(session, turn);
            }
            "session.status" if payload["status_label"] == "interrupting..." => {
                let current = self.current.get(&session).and_then(|turn| self.turns.get_mut(turn));
                current.expect("a turn to interrupt").is_interrupted = true;
            }
            "session.stream.chunk" => {
                let known = self.turns.get_mut(&turn).expect("a turn that has begun");
                assert_eq!(known.ends, 0, "a turn that has ended says no more");
                known.streamed.push_str(payload["chunk"]["answerText"].as_str().expect("a text"));
            }
            "session.message.appended" if payload["message"]["kind"] == "assistant" => {
                self.said.insert(session, text(&payload["message"]["text"]));
            }
            "session.tool.call.started" => {
                let open = self.tools.entry(turn).or_default();
                assert_eq!(*open, 0, "tools are told one after another");
                *open += 1;
            }
            "session.tool.call.completed" => *self.tools.get_mut(&turn).expect("it was started") -= 1,
            "session.tool.results" => assert_eq!(self.tools.get(&turn), Some(&0)),
            kind @ ("session.completed" | "session.interrupted" | "session.error") => {
                let known = self.turns.get_mut(&turn).expect("a turn that has begun");
                known.ends += 1;
                assert_eq!(known.ends, 1, "a turn ends once");
                let as_told = !known.is_interrupted || kind == "session.interrupted";
                assert!(as_told, "a turn that was interrupted is never anything else");
                if kind == "session.completed" && !known.streamed.is_empty() {
                    assert_eq!(
                        self.said.get(&session),
                        Some(&known.streamed),
                        "the answer is what was streamed"
                    );
                }
            }
            _ => {}
        }
    }
}

/// The JSON value at the beginning of a text.
fn first_value(text: &str) -> &RawValue {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<&RawValue>();
    values.next().expect("a value").expect("a value")
}

/// The id under which a line is answered, if it is.
fn owed_under(line: &str) -> Option<String> {
    let is_blank = |letter: char| letter == '\u{feff}' || (letter.is_whitespace() && letter != '\u{85}');
    let line = line.trim_matches(is_blank);
    let null = || Some("null".to_owned());
    if line.is_empty() {
        return None;
    }
    let Ok(members) = serde_json::from_str::<HashMap<String, &RawValue>>(line) else {
        let _: Result<IgnoredAny, _> = serde_json::from_str(line);
        return null();
    };
    let text = |name: &str| {
        let raw: &&RawValue = members.get(name)?;
        raw.get().starts_with('"').then(|| match serde_json::from_str::<String>(raw.get()) {
            Ok(text) => text,
            // Half a surrogate pair, which is replaced and so no blank.
            Err(_) => "?".to_owned(),
        })
    };
    let is_right = text("jsonrpc").as_deref() == Some("2.0")
        && text("method").is_some_and(|method| !method.trim_matches(is_blank).is_empty());
    match members.get("id") {
        _ if !is_right => null(),
        None => None,
        Some(id)
            if id.get().starts_with(['"', '-', 'n'])
                || id.get().starts_with(|first: char| first.is_ascii_digit()) =>
        {
            Some(id.get().to_owned())
        }
        Some(_) => null(),
    }
}
