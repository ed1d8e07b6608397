//! The promises of the synaps door.
//!
//! Each command with an id is settled once: by its response, or by an error under that id. A turn
//! that has begun is an exception in one way: if it fails, the error comes before `agent_end` and the
//! response. An error without an id is for lines that have none. Of a call its start is told, then pieces of its input, its
//! input, and its result; of none only a part.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parlor_vocab::{
    AgentChoice, NewSession, RegistryEvent, RegistryRequest, RunEnding, RunEvent, Seq, SessionCommand,
    SessionEvent, SessionId, SessionUpdate,
};
use serde::Deserialize;
use serde_json::Value;

use super::LINE_BYTES;
use super::fake_registry::{FakeRegistry, Update};
use crate::lines::{Line, Lines};
use crate::synaps::{AssistantEvent, Child, LATE_FAILURE, RpcCommand, RpcEvent, SynapsMachine};
use crate::{Input, Machine, Output, Ticket};

/// What a parent looks for in the error of a command that cannot be served during a turn.
const BUSY: &str = "abort first";

/// A command that is to be settled.
#[derive(Clone, Debug, PartialEq)]
struct Owed {
    number: usize,
    id: String,
    /// What its response says.
    command: &'static str,
    came: Instant,
}

/// What was told of a call.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Told {
    Start,
    Input,
    Result,
}

/// What a line asks for.
enum Wish {
    Nothing,
    Shutdown,
    /// An error, under this id if there is one.
    Error(Option<String>),
    Settle(String, &'static str),
}

pub(super) struct Conversation<'a> {
    machine: SynapsMachine,
    registry: FakeRegistry<'a>,
    now: Instant,
    wake_at: Option<Instant>,
    is_closed: bool,
    is_draining: bool,
    /// What is not settled yet.
    open: Vec<Owed>,
    /// How many commands there were.
    commands: usize,
    /// For whom the registry is asked what.
    asked: HashMap<Ticket, Option<Owed>>,
    /// The prompt whose turn has been asked for and has not ended.
    turn: Option<Owed>,
    compacting: Option<Owed>,
    subagents: Vec<u64>,
    last_subagent: u64,
    /// The calls of the turn, with what was told of each last.
    calls: HashMap<String, Told>,
    heard: Vec<Vec<u8>>,
}

impl<'a> Conversation<'a> {
    pub(super) fn new(choices: &'a [u8]) -> Self {
        let (choice, folder) = (AgentChoice::default(), "/".into());
        let (title, system, forked_from) = (None, None, None);
        let child = Child {
            session: SessionId::parse("first").expect("a short text"),
            head: Seq(1),
            new_session: NewSession { title, door: "synaps".to_owned(), folder, choice, system, forked_from },
            default_model: "model \u{e4}".to_owned(),
            models: Vec::new(),
            tools: Vec::new(),
        };
        Self {
            machine: SynapsMachine::new(child),
            registry: FakeRegistry::new(choices),
            // Only a place to count from.
            now: Instant::now(),
            wake_at: None,
            is_closed: false,
            is_draining: false,
            open: Vec::new(),
            commands: 0,
            asked: HashMap::new(),
            turn: None,
            compacting: None,
            subagents: Vec::new(),
            last_subagent: 0,
            calls: HashMap::new(),
            heard: Vec::new(),
        }
    }

    pub(super) fn play<C: AsRef<[u8]>>(mut self, chunks: &[C]) -> Vec<Vec<u8>> {
        let first = self.take(None);
        assert!(matches!(first.as_slice(), [RpcEvent::Ready { protocol_version: 1, .. }]), "{first:?}");
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
        self.registry.close();
        while let Some(happening) = self.registry.oblige() {
            self.on_happening(happening);
        }
        assert!(self.open.is_empty(), "commands that were not settled: {:?}", self.open);
        assert!(self.turn.is_none() && self.compacting.is_none(), "something is still at work");
        self.heard
    }

    fn on_line(&mut self, line: Line<'_>) {
        while !self.machine.wants_frame() && !self.is_closed {
            match self.registry.oblige() {
                Some(happening) => self.on_happening(happening),
                None if self.is_draining => return,
                None => panic!("nothing is outstanding, but no frame is wanted"),
            }
        }
        if self.is_closed {
            return;
        }
        let (wish, input) = match line {
            Line::Whole(frame) => (wish(frame), Input::Frame(frame)),
            Line::Oversize => (Wish::Error(None), Input::Oversize { limit: LINE_BYTES }),
        };
        self.machine.handle(self.now, input);
        match wish {
            Wish::Nothing => assert!(self.take(None).is_empty(), "a blank line says nothing"),
            Wish::Error(owed) => match self.take(None).as_slice() {
                [RpcEvent::Error { id, message }] => assert!(*id == owed && !message.is_empty(), "{owed:?}"),
                frames => panic!("owed an error for {owed:?} and sent {frames:?}"),
            },
            Wish::Shutdown => {
                self.is_draining = true;
                assert!(self.take(None).is_empty(), "a shutdown has no answer");
                assert!(self.is_closed != self.is_busy(), "it closes unless something is at work");
            }
            Wish::Settle(id, command) => {
                self.commands += 1;
                let owed = Owed { number: self.commands, id, command, came: self.now };
                self.on_command(owed);
            }
        }
        for _ in 0..self.registry.burst() {
            self.now += Duration::from_secs(self.registry.seconds());
            if self.wake_at.is_some_and(|moment| moment <= self.now) {
                self.wake_at = None;
                self.machine.handle(self.now, Input::Deadline);
                assert!(self.take(None).is_empty() && self.is_closed, "the deadline ends the connection");
            }
            if let Some(happening) = self.registry.act() {
                self.on_happening(happening);
            }
        }
    }

    fn is_busy(&self) -> bool {
        self.turn.is_some() || self.compacting.is_some()
    }

    fn on_command(&mut self, owed: Owed) {
        let must_wait = matches!(owed.command, "prompt" | "new_session" | "compact") && self.is_busy();
        self.open.push(owed.clone());
        let frames = self.take(Some(&owed));
        if must_wait {
            let is_refused =
                matches!(frames.as_slice(), [RpcEvent::Error { message, .. }] if message.contains(BUSY));
            assert!(is_refused, "{owed:?} during a turn: {frames:?}");
        }
        for frame in &frames {
            self.settle(&owed, frame);
        }
        let is_asked = self.asked.values().flatten().any(|asked| *asked == owed);
        assert!(frames.len() == usize::from(!is_asked), "{owed:?}: {frames:?}, asked: {is_asked}");
    }

    fn on_happening(&mut self, happening: Update) {
        match happening {
            Update::Answer(ticket, answer) => {
                let owed = self.asked.remove(&ticket).expect("the registry answers what it was asked");
                let began = self.turn.is_some() && self.turn == owed;
                let failed = answer.is_err();
                self.machine.handle(self.now, Input::Answer(ticket, answer));
                let frames = self.take(owed.as_ref());
                let Some(owed) = owed else { return assert!(frames.is_empty(), "{frames:?}") };
                if began && failed {
                    self.turn = None;
                }
                let was_compacting = self.compacting.take_if(|compacting| *compacting == owed).is_some();
                for (index, frame) in frames.iter().enumerate() {
                    // Those who stopped a summary are answered after it.
                    match self.abort_of(frame).filter(|_| was_compacting && index > 0) {
                        Some(abort) => self.settle(&abort, frame),
                        None => self.settle(&owed, frame),
                    }
                }
            }
            Update::Event(event) => {
                self.machine.handle(self.now, Input::Event(&event));
                let frames = self.take(None);
                self.on_frames_of(&event, &frames);
            }
        }
    }

    /// The abort that `frame` answers.
    fn abort_of(&self, frame: &RpcEvent) -> Option<Owed> {
        let RpcEvent::Response { id, command, .. } = frame else { return None };
        let is_it = |owed: &&Owed| owed.command == "abort" && command == "abort" && owed.id == *id;
        self.open.iter().find(is_it).cloned()
    }

    /// `frame` is the one that settles `owed`.
    fn settle(&mut self, owed: &Owed, frame: &RpcEvent) {
        match frame {
            RpcEvent::Response { id, command, .. } => {
                assert_eq!((id.as_str(), command.as_str()), (owed.id.as_str(), owed.command));
            }
            RpcEvent::Error { id, message } => {
                assert!(id.as_ref() == Some(&owed.id) && !message.is_empty(), "{owed:?}: {frame:?}");
            }
            RpcEvent::Ready { .. }
            | RpcEvent::MessageUpdate { .. }
            | RpcEvent::SubagentStart { .. }
            | RpcEvent::SubagentUpdate { .. }
            | RpcEvent::SubagentDone { .. }
            | RpcEvent::AgentEnd { .. } => panic!("{owed:?} is not settled by {frame:?}"),
        }
        let index = self.open.iter().position(|open| open == owed);
        let index = index.unwrap_or_else(|| panic!("{owed:?} is settled again, by {frame:?}"));
        self.open.remove(index);
    }

    /// What happened in the turn became `frames`.
    fn on_frames_of(&mut self, event: &RegistryEvent, frames: &[RpcEvent]) {
        let mut frames = frames.iter();
        let ending = frames.as_slice().iter().any(|frame| matches!(frame, RpcEvent::AgentEnd { .. }));
        assert!(frames.len() == 0 || self.turn.is_some(), "frames of a turn without one: {frames:?}");
        while let Some(frame) = frames.as_slice().first().filter(|frame| !is_last_word(frame)) {
            frames.next();
            self.on_update(frame);
        }
        if !ending {
            return assert!(frames.len() == 0, "the last words of a turn that goes on: {frames:?}");
        }
        let turn = self.turn.take().expect("there is a turn");
        let begun = std::mem::take(&mut self.calls).into_iter().find(|(_, told)| *told == Told::Start);
        assert!(begun.is_none(), "the input of {begun:?} was never told");
        assert!(self.subagents.is_empty(), "subagents that were never done: {:?}", self.subagents);
        let SessionUpdate::Entry(entry) = &event.seen else { panic!("a delta ends no turn") };
        let SessionEvent::Run { event: RunEvent::Ended { ending, .. }, .. } = &entry.event else {
            panic!("{entry:?} ends no turn")
        };
        let is_late = self.now.duration_since(turn.came) > LATE_FAILURE;
        if matches!(ending, RunEnding::Failed(_)) && !is_late {
            let error = frames.next();
            let is_its = matches!(error, Some(RpcEvent::Error { id: Some(id), .. }) if *id == turn.id);
            assert!(is_its, "{turn:?} failed: {error:?}");
        }
        assert!(
            matches!(frames.next(), Some(RpcEvent::AgentEnd { .. })),
            "agent_end comes before the response"
        );
        let response = frames.next().expect("a turn has a response");
        let RpcEvent::Response { body, .. } = response else { panic!("{response:?} is no response") };
        assert_eq!(body["ok"], Value::Bool(!matches!(ending, RunEnding::Failed(_))));
        assert_eq!(body.contains_key("cancelled"), matches!(ending, RunEnding::Stopped { .. }));
        assert_eq!(body.contains_key("error"), matches!(ending, RunEnding::Failed(_)));
        self.settle(&turn, response);
        for frame in frames {
            let abort = self.abort_of(frame).unwrap_or_else(|| panic!("{frame:?} comes after the response"));
            self.settle(&abort, frame);
        }
    }

    fn on_update(&mut self, frame: &RpcEvent) {
        match frame {
            RpcEvent::MessageUpdate { event } => self.on_assistant(event),
            RpcEvent::SubagentStart { subagent_id, task_preview, .. } => {
                assert!(*subagent_id > self.last_subagent && task_preview.chars().count() <= 80, "{frame:?}");
                self.last_subagent = *subagent_id;
                self.subagents.push(*subagent_id);
            }
            RpcEvent::SubagentUpdate { subagent_id, .. } => {
                assert!(self.subagents.contains(subagent_id), "{frame:?} is of no subagent");
            }
            RpcEvent::SubagentDone { subagent_id, .. } => {
                let index = self.subagents.iter().position(|open| open == subagent_id);
                self.subagents.remove(index.unwrap_or_else(|| panic!("{frame:?} is of no subagent")));
            }
            RpcEvent::Ready { .. }
            | RpcEvent::AgentEnd { .. }
            | RpcEvent::Response { .. }
            | RpcEvent::Error { .. } => panic!("{frame:?} in the middle of a turn"),
        }
    }

    fn on_assistant(&mut self, event: &AssistantEvent) {
        let (id, before, now) = match event {
            AssistantEvent::TextDelta { .. } | AssistantEvent::ThinkingDelta { .. } => return,
            AssistantEvent::ToolcallStart { tool_id, .. } => (tool_id, None, Told::Start),
            AssistantEvent::ToolcallInputDelta { tool_id, .. } => (tool_id, Some(Told::Start), Told::Start),
            AssistantEvent::ToolcallInput { tool_id, .. } => (tool_id, Some(Told::Start), Told::Input),
            AssistantEvent::ToolcallResult { tool_id, .. } => (tool_id, Some(Told::Input), Told::Result),
        };
        assert_eq!(self.calls.insert(id.clone(), now), before, "{event:?}");
    }

    /// Takes out what the machine wants, on behalf of `owed`: passes requests on, and gives back
    /// the frames.
    fn take(&mut self, owed: Option<&Owed>) -> Vec<RpcEvent> {
        let mut frames = Vec::new();
        while let Some(output) = self.machine.poll() {
            match output {
                Output::Send(frame) => {
                    assert!(frame.is_ascii() && !frame.contains(&b'\n'), "a frame is a line of ASCII");
                    frames.push(serde_json::from_slice(&frame).expect("a frame is an event"));
                    self.heard.push(frame);
                }
                Output::Request(ticket, command) => {
                    self.note(owed, &command);
                    let owed = owed.filter(|_| is_waited_for(&command)).cloned();
                    if let Some(refusal) = self.registry.ask(ticket, command) {
                        self.turn.take_if(|turn| Some(&*turn) == owed.as_ref());
                        self.machine.handle(self.now, Input::Answer(ticket, Err(refusal)));
                        continue;
                    }
                    assert!(self.asked.insert(ticket, owed).is_none(), "{ticket:?} is used twice");
                }
                Output::WakeAt(moment) => self.wake_at = Some(moment),
                Output::Close => {
                    assert!(self.is_draining, "only a shutdown closes the connection");
                    self.is_closed = true;
                }
            }
        }
        frames
    }

    fn note(&mut self, owed: Option<&Owed>, command: &RegistryRequest) {
        if let RegistryRequest::Session(_, SessionCommand::Send { .. }) = command {
            assert!(!self.is_busy(), "two turns at a time");
            self.turn = owed.cloned();
        }
        if let RegistryRequest::Session(_, SessionCommand::Compact { .. }) = command {
            assert!(!self.is_busy(), "a summary during a turn");
            self.compacting = owed.cloned();
        }
    }
}

/// Whether the command that asks this is held up by it.
fn is_waited_for(command: &RegistryRequest) -> bool {
    !matches!(command, RegistryRequest::Watch { .. } | RegistryRequest::Leave(_))
}

/// Whether `frame` belongs to the end of a turn, after all that happened in it.
fn is_last_word(frame: &RpcEvent) -> bool {
    matches!(frame, RpcEvent::Error { .. } | RpcEvent::AgentEnd { .. } | RpcEvent::Response { .. })
}

/// What `frame` asks for.
fn wish(frame: &[u8]) -> Wish {
    #[derive(Deserialize)]
    struct Id {
        id: String,
    }
    if frame.iter().all(|byte| matches!(byte, b' ' | b'\t' | b'\r')) {
        return Wish::Nothing;
    }
    match serde_json::from_slice::<Value>(frame) {
        Ok(value) if value.is_object() => {}
        Ok(_) | Err(_) => return Wish::Error(None),
    }
    let Ok(command) = serde_json::from_slice::<RpcCommand>(frame) else {
        let id = serde_json::from_slice(frame).ok().map(|Id { id }| id);
        return Wish::Error(id.filter(|id| !id.is_empty()));
    };
    match command {
        RpcCommand::Prompt { id, .. } | RpcCommand::FollowUp { id, .. } => Wish::Settle(id, "prompt"),
        RpcCommand::Compact { id } => Wish::Settle(id, "compact"),
        RpcCommand::NewSession { id } => Wish::Settle(id, "new_session"),
        RpcCommand::GetMessages { id } => Wish::Settle(id, "get_messages"),
        RpcCommand::SetModel { id, .. } => Wish::Settle(id, "set_model"),
        RpcCommand::GetAvailableModels { id } => Wish::Settle(id, "get_available_models"),
        RpcCommand::Abort { id } => Wish::Settle(id, "abort"),
        RpcCommand::GetSessionStats { id } => Wish::Settle(id, "get_session_stats"),
        RpcCommand::GetState { id } => Wish::Settle(id, "get_state"),
        RpcCommand::ToolsList { id } => Wish::Settle(id.unwrap_or_default(), "tools_list"),
        RpcCommand::Shutdown => Wish::Shutdown,
    }
}
