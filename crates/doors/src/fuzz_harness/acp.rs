//! Checks the guarantees of the ACP door: each request is answered at most once, with its id, all are answered once the
//! backend has ended all runs, and every frame is one line of JSON.

use std::collections::HashMap;
use std::time::Instant;

use parlor_vocab::{AgentId, PolicyMode};
use serde_json::Value;

use super::LINE_BYTES;
use super::fake_frontend::{FakeFrontend, Update};
use super::loaf::models;
use crate::acp::{AcpAgent, AcpMachine, AcpParams};
use crate::lines::{Line, Lines};
use crate::{Input, Machine, Output};

pub(super) struct Conversation<'a> {
    machine: AcpMachine,
    frontend: FakeFrontend<'a>,
    now: Instant,
    /// The moment of the last deadline that the machine asked for.
    wake_at: Option<Instant>,
    /// How many more answers than requests each id has had.
    answers: HashMap<String, i64>,
    received: Vec<Vec<u8>>,
}

impl<'a> Conversation<'a> {
    pub(super) fn new(choices: &'a [u8]) -> Self {
        let agent =
            |id: AgentId| AcpAgent { name: id.to_string(), id, uses_model: true, commands: Vec::new() };
        let params = AcpParams {
            folder: Some("/".into()),
            agents: models().into_iter().filter_map(|model| model.choice.agent).map(agent).collect(),
            mode: PolicyMode::default(),
            models: models(),
            logins: vec!["example".to_owned()],
            key_services: Vec::new(),
            has_screen: true,
            media_folder: "/media".into(),
            sends_usage: true,
            key_prefix: "key".to_owned(),
        };
        Self {
            machine: AcpMachine::new(params),
            frontend: FakeFrontend::new(choices),
            now: Instant::now(),
            wake_at: None,
            answers: HashMap::new(),
            received: Vec::new(),
        }
    }

    pub(super) fn play<C: AsRef<[u8]>>(mut self, chunks: &[C]) -> Vec<Vec<u8>> {
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
        self.frontend.close();
        while let Some(update) = self.frontend.serve_next() {
            self.on_update(update);
        }
        for (id, count) in &self.answers {
            assert!(*count <= 0, "{id} was answered more often than it was asked");
        }
        self.received
    }

    fn on_line(&mut self, line: Line<'_>) {
        while !self.machine.wants_frame() {
            let Some(update) = self.frontend.serve_next() else { break };
            self.on_update(update);
        }
        let input = match line {
            Line::Whole(frame) => {
                let value = serde_json::from_slice::<Value>(frame.trim_ascii()).unwrap_or_default();
                let is_answer = value.get("result").is_some() || value.get("error").is_some();
                // A request without a method is answered too, with an error.
                if let Some(id) = value.get("id").filter(|_| value.get("method").is_some() || !is_answer) {
                    *self.answers.entry(id.to_string()).or_default() -= 1;
                }
                Input::Frame(frame)
            }
            Line::Oversize => Input::Oversize { limit: LINE_BYTES },
        };
        self.machine.handle(self.now, input);
        self.drain();
        for _ in 0..self.frontend.burst() {
            if let Some(update) = self.frontend.act() {
                self.on_update(update);
            }
        }
        if let Some(at) = self.wake_at.take() {
            self.now = self.now.max(at);
            self.machine.handle(self.now, Input::Deadline);
            self.drain();
        }
    }

    fn on_update(&mut self, update: Update) {
        match update {
            Update::Answer(ticket, answer) => self.machine.handle(self.now, Input::Answer(ticket, answer)),
            Update::Event(event) => self.machine.handle(self.now, Input::Event(&event)),
        }
        self.drain();
    }

    fn drain(&mut self) {
        while let Some(output) = self.machine.poll() {
            match output {
                Output::Send(frame) => self.receive(frame),
                Output::SendShared(_) => panic!("this door shares no frames"),
                Output::Request(ticket, request) => {
                    if let Some(refusal) = self.frontend.submit(ticket, request) {
                        self.machine.handle(self.now, Input::Answer(ticket, Err(refusal)));
                    }
                }
                Output::WakeAt(at) => self.wake_at = Some(at),
                Output::Close => panic!("a connection ends when the client closes it"),
            }
        }
    }

    fn receive(&mut self, frame: Vec<u8>) {
        assert!(!frame.contains(&b'\n'), "a frame is a line");
        let value: Value = serde_json::from_slice(&frame).expect("a frame is JSON");
        assert_eq!(value["jsonrpc"], "2.0");
        let is_answer = value.get("result").is_some() || value.get("error").is_some();
        if let Some(id) = value.get("id").filter(|id| is_answer && !id.is_null()) {
            *self.answers.entry(id.to_string()).or_default() += 1;
        }
        self.received.push(frame);
    }
}
