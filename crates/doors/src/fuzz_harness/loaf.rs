//! Checks the guarantees of the loaf door.
//!
//! Each request is answered once, with its id. Each turn ends once: completed, interrupted or with an error; an
//! interrupted turn ends as interrupted. The answer of a completed turn equals the streamed text. Tool calls are reported
//! one after another.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use parlor_vocab::{AgentChoice, AgentId, Credentials, FrontendRequest, ModelOption, Preferences, Timestamp};
use serde::de::IgnoredAny;
use serde_json::Value;
use serde_json::value::RawValue;

use super::fake_frontend::{FakeFrontend, Update};
use super::{DeterministicSource, LINE_BYTES};
use crate::lines::{Line, Lines};
use crate::loaf::{LoafMachine, ServerParams};
use crate::{Input, Machine, Output};

pub(super) struct Conversation<'a> {
    machine: LoafMachine,
    frontend: FakeFrontend<'a>,
    is_closed: bool,
    /// The number of answers that are missing for each id.
    missing_answers: HashMap<String, i64>,
    /// The turns by their ids.
    turns: HashMap<String, Turn>,
    /// The number of open tool calls of each turn.
    open_calls: HashMap<String, usize>,
    /// The last turn of each session.
    current_turns: HashMap<String, String>,
    /// The last assistant message of each session.
    last_messages: HashMap<String, String>,
    received: Vec<Vec<u8>>,
}

#[derive(Default)]
struct Turn {
    /// The text since the last assistant message.
    streamed: String,
    /// Whether an assistant message has sent `streamed`.
    is_sent: bool,
    ends: usize,
    /// Whether the client was told that the turn is being interrupted.
    is_interrupted: bool,
}

/// The models that the client can select.
pub(super) fn models() -> Vec<ModelOption> {
    let model = |id: &str, provider: &str| ModelOption {
        id: id.to_owned(),
        provider: provider.to_owned(),
        provider_label: None,
        label: id.to_owned(),
        description: String::new(),
        context_window: None,
        choice: AgentChoice { agent: AgentId::parse(id).ok(), ..AgentChoice::default() },
    };
    vec![model("local", "openai"), model("routed", "openrouter")]
}

impl<'a> Conversation<'a> {
    pub(super) fn new(choices: &'a [u8]) -> Self {
        let source = DeterministicSource::new(Timestamp(1));
        let (model, provider, thinking, route) = Default::default();
        let params = ServerParams {
            folder: "/".into(),
            user_home: None,
            chats_path: "/chats".into(),
            preferences: Preferences { model, provider, reasoning: thinking, route, setup_done: false },
            models: models(),
            credentials: Credentials::default(),
            skill_folders: Vec::new(),
            skill_count: 0,
            agent_commands: HashMap::new(),
            tools: Vec::new(),
            clock: Arc::clone(&source) as _,
            ids: source,
        };
        Self {
            machine: LoafMachine::new(params),
            frontend: FakeFrontend::new(choices),
            is_closed: false,
            missing_answers: HashMap::new(),
            turns: HashMap::new(),
            open_calls: HashMap::new(),
            current_turns: HashMap::new(),
            last_messages: HashMap::new(),
            received: Vec::new(),
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
        while let Some(update) = self.frontend.serve_next() {
            self.on_backend_update(update);
        }
        let open: Vec<_> = self.missing_answers.iter().filter(|(_, count)| **count != 0).collect();
        assert!(open.is_empty(), "not answered once: {open:?}");
        for (id, turn) in &self.turns {
            assert_eq!(turn.ends, 1, "turn {id}");
        }
        self.received
    }

    fn on_line(&mut self, line: Line<'_>) {
        while !self.machine.wants_frame() && !self.is_closed {
            let update =
                self.frontend.serve_next().expect("a machine that takes no frame waits for the backend");
            self.on_backend_update(update);
        }
        if self.is_closed {
            return;
        }
        let input = match line {
            Line::Whole(line) => {
                if let Some(id) = expected_answer_id(&String::from_utf8_lossy(line)) {
                    *self.missing_answers.entry(id).or_default() += 1;
                }
                Input::Frame(line)
            }
            Line::Oversize => {
                *self.missing_answers.entry("null".to_owned()).or_default() += 1;
                Input::Oversize { limit: LINE_BYTES }
            }
        };
        self.machine.handle(Instant::now(), input);
        self.drain();
        for _ in 0..self.frontend.burst() {
            if let Some(update) = self.frontend.act() {
                self.on_backend_update(update);
            }
        }
    }

    fn on_backend_update(&mut self, update: Update) {
        match update {
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
                Output::SendShared(_) => panic!("this door shares no frames"),
                Output::Request(ticket, request) => self.on_request(ticket, request),
                Output::Close => self.is_closed = true,
                Output::WakeAt(_) => panic!("this door sets no timer"),
            }
        }
    }

    fn on_request(&mut self, ticket: crate::Ticket, request: FrontendRequest) {
        if let Some(refusal) = self.frontend.submit(ticket, request) {
            self.machine.handle(Instant::now(), Input::Answer(ticket, Err(refusal)));
        }
    }

    fn on_frame(&mut self, frame: Vec<u8>) {
        assert!(!frame.contains(&b'\n'), "a frame is one line");
        let text = std::str::from_utf8(&frame).expect("a frame is UTF-8");
        if let Some(rest) = text.strip_prefix(r#"{"jsonrpc":"2.0","id":"#) {
            let id: &RawValue = first_value(rest);
            let count = self.missing_answers.entry(id.get().to_owned()).or_default();
            *count -= 1;
            assert!(*count >= 0, "no request for the answer {text}");
        } else {
            let event: Value = serde_json::from_str(text).expect("an event is JSON");
            assert_eq!(event["method"], "event", "{text}");
            self.on_event(&event["params"]);
        }
        self.received.push(frame);
    }

    fn on_event(&mut self, event: &Value) {
        let payload = &event["payload"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (session, turn) = (text(&payload["session_id"]), text(&payload["turn_id"]));
        match event["type"].as_str().expect("an event has a type") {
            "session.status" if payload["status_label"] == "preparing..." => {
                assert!(self.turns.insert(turn.clone(), Turn::default()).is_none(), "a turn begins once");
                self.current_turns.insert(session, turn);
            }
            "session.status" if payload["status_label"] == "interrupting..." => {
                let current_turn = self.current_turns.get(&session).and_then(|turn| self.turns.get_mut(turn));
                current_turn.expect("a turn to interrupt").is_interrupted = true;
            }
            // A turn that another client began, in a chat that this client has resumed.
            "session.status" if !turn.is_empty() && !self.turns.contains_key(&turn) => {
                self.turns.insert(turn.clone(), Turn::default());
                self.current_turns.insert(session, turn);
            }
            "session.stream.chunk" => {
                let turn_state = self.turns.get_mut(&turn).expect("a turn that has begun");
                assert_eq!(turn_state.ends, 0, "a turn that has ended sends no text");
                if std::mem::take(&mut turn_state.is_sent) {
                    turn_state.streamed.clear();
                }
                turn_state.streamed.push_str(payload["chunk"]["answerText"].as_str().expect("a text"));
            }
            "session.message.appended" if payload["message"]["kind"] == "assistant" => {
                let current_turn = self.current_turns.get(&session).and_then(|turn| self.turns.get_mut(turn));
                if let Some(turn_state) = current_turn {
                    turn_state.is_sent = true;
                }
                self.last_messages.insert(session, text(&payload["message"]["text"]));
            }
            "session.tool.call.started" => {
                let open = self.open_calls.entry(turn).or_default();
                assert_eq!(*open, 0, "tool calls are reported one after another");
                *open += 1;
            }
            "session.tool.call.completed" => *self.open_calls.get_mut(&turn).expect("it was started") -= 1,
            "session.tool.results" => assert_eq!(self.open_calls.get(&turn), Some(&0)),
            kind @ ("session.completed" | "session.interrupted" | "session.error") => {
                let turn_state = self.turns.get_mut(&turn).expect("a turn that has begun");
                turn_state.ends += 1;
                assert_eq!(turn_state.ends, 1, "a turn ends once");
                let is_reported_correctly = !turn_state.is_interrupted || kind == "session.interrupted";
                assert!(is_reported_correctly, "an interrupted turn ends as interrupted");
                if kind == "session.completed" && !turn_state.streamed.is_empty() {
                    assert_eq!(
                        self.last_messages.get(&session),
                        Some(&turn_state.streamed),
                        "the answer equals the streamed text"
                    );
                }
            }
            _ => {}
        }
    }
}

/// The first JSON value in a text.
fn first_value(text: &str) -> &RawValue {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<&RawValue>();
    values.next().expect("a value").expect("a value")
}

/// The raw id of the answer to a line; `None` if the line must get no answer.
fn expected_answer_id(line: &str) -> Option<String> {
    let is_blank = |c: char| c == '\u{feff}' || (c.is_whitespace() && c != '\u{85}');
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
            // A lone surrogate is replaced, so the text is not blank.
            Err(_) => "?".to_owned(),
        })
    };
    let is_valid = text("jsonrpc").as_deref() == Some("2.0")
        && text("method").is_some_and(|method| !method.trim_matches(is_blank).is_empty());
    match members.get("id") {
        _ if !is_valid => null(),
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
