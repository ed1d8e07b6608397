//! Checks the guarantees of the synaps door.
//!
//! Each command with an id is settled once: by its response, or by an error with its id. There is one exception: the
//! error of a failed turn comes before `agent_end` and the response. Lines without an id get errors without an id. Each
//! tool call has its start, the deltas of its input, its input and its result, in this order.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parlor_vocab::{
    AgentChoice, NewSession, RegistryEvent, RegistryRequest, RunEnding, RunEvent, Seq, SessionCommand,
    SessionEvent, SessionId, SessionUpdate, WhenBusy,
};
use serde::Deserialize;
use serde_json::Value;

use super::LINE_BYTES;
use super::fake_registry::{FakeRegistry, Update};
use crate::lines::{Line, Lines};
use crate::synaps::{AssistantEvent, ChildParams, LATE_FAILURE, RpcCommand, RpcEvent, SynapsMachine};
use crate::{Input, Machine, Output, Ticket};

/// The words that parents search for in the error of a command that is refused during a turn.
const BUSY: &str = "abort first";

/// Stands for `prompt` with `steer`, which may come during a turn.
const STEER: &str = "steer";

/// A command that must be settled.
#[derive(Clone, Debug, PartialEq)]
struct OpenCommand {
    number: usize,
    id: String,
    /// The `command` of its response; [`STEER`] for a prompt that steers.
    command: &'static str,
    received_at: Instant,
}

/// What was sent of a tool call.
#[derive(Clone, Copy, Debug, PartialEq)]
enum CallProgress {
    Start,
    Input,
    Result,
}

/// What must follow a line.
enum Expectation {
    Nothing,
    Shutdown,
    /// An error, with this id if there is one.
    Error(Option<String>),
    Settle(String, &'static str),
}

pub(super) struct Conversation<'a> {
    machine: SynapsMachine,
    registry: FakeRegistry<'a>,
    now: Instant,
    wake_at: Option<Instant>,
    is_closed: bool,
    is_shutting_down: bool,
    /// The commands that are not settled yet.
    open: Vec<OpenCommand>,
    /// The number of commands so far.
    commands: usize,
    /// The requests that the backend has not answered yet, and their commands.
    pending: HashMap<Ticket, Option<OpenCommand>>,
    /// The prompt of the running turn.
    turn: Option<OpenCommand>,
    compacting: Option<OpenCommand>,
    subagents: Vec<u64>,
    last_subagent: u64,
    /// The tool calls of the turn.
    calls: HashMap<String, CallProgress>,
    received: Vec<Vec<u8>>,
}

impl<'a> Conversation<'a> {
    pub(super) fn new(choices: &'a [u8]) -> Self {
        let (choice, folder) = (AgentChoice::default(), "/".into());
        let (title, system, forked_from) = (None, None, None);
        let params = ChildParams {
            session: SessionId::parse("first").expect("a short text"),
            head: Seq(1),
            is_new: true,
            active: None,
            key_prefix: "child".to_owned(),
            new_session: NewSession { title, door: "synaps".to_owned(), folder, choice, system, forked_from },
            default_model: "model \u{e4}".to_owned(),
            models: Vec::new(),
            routes: Vec::new(),
            tools: Vec::new(),
        };
        Self {
            machine: SynapsMachine::new(params),
            registry: FakeRegistry::new(choices),
            // The machine measures durations only.
            now: Instant::now(),
            wake_at: None,
            is_closed: false,
            is_shutting_down: false,
            open: Vec::new(),
            commands: 0,
            pending: HashMap::new(),
            turn: None,
            compacting: None,
            subagents: Vec::new(),
            last_subagent: 0,
            calls: HashMap::new(),
            received: Vec::new(),
        }
    }

    pub(super) fn play<C: AsRef<[u8]>>(mut self, chunks: &[C]) -> Vec<Vec<u8>> {
        let first = self.drain(None);
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
        while let Some(update) = self.registry.serve_next() {
            self.on_backend_update(update);
        }
        assert!(self.open.is_empty(), "commands that were not settled: {:?}", self.open);
        assert!(self.turn.is_none() && self.compacting.is_none(), "a turn or a compaction has not ended");
        self.received
    }

    fn on_line(&mut self, line: Line<'_>) {
        while !self.machine.wants_frame() && !self.is_closed {
            match self.registry.serve_next() {
                Some(update) => self.on_backend_update(update),
                None if self.is_shutting_down => return,
                None => panic!("the backend has nothing to do, but the machine takes no frame"),
            }
        }
        if self.is_closed {
            return;
        }
        let (expectation, input) = match line {
            Line::Whole(frame) => (expectation(frame), Input::Frame(frame)),
            Line::Oversize => (Expectation::Error(None), Input::Oversize { limit: LINE_BYTES }),
        };
        self.machine.handle(self.now, input);
        match expectation {
            Expectation::Nothing => assert!(self.drain(None).is_empty(), "a blank line has no answer"),
            Expectation::Error(open_command) => match self.drain(None).as_slice() {
                [RpcEvent::Error { id, message }] => {
                    assert!(*id == open_command && !message.is_empty(), "{open_command:?}")
                }
                frames => panic!("expected an error for {open_command:?}, got {frames:?}"),
            },
            Expectation::Shutdown => {
                self.is_shutting_down = true;
                assert!(self.drain(None).is_empty(), "a shutdown has no answer");
                assert!(
                    self.is_closed != self.is_busy(),
                    "it closes unless a turn or a compaction is running"
                );
            }
            Expectation::Settle(id, command) => {
                self.commands += 1;
                let open_command = OpenCommand { number: self.commands, id, command, received_at: self.now };
                self.on_command(open_command);
            }
        }
        for _ in 0..self.registry.burst() {
            self.now += Duration::from_secs(self.registry.seconds());
            if self.wake_at.is_some_and(|moment| moment <= self.now) {
                self.wake_at = None;
                self.machine.handle(self.now, Input::Deadline);
                assert!(self.drain(None).is_empty() && self.is_closed, "the deadline ends the connection");
            }
            if let Some(update) = self.registry.act() {
                self.on_backend_update(update);
            }
        }
    }

    fn is_busy(&self) -> bool {
        self.turn.is_some() || self.compacting.is_some()
    }

    fn on_command(&mut self, open_command: OpenCommand) {
        let must_wait =
            matches!(open_command.command, "prompt" | "new_session" | "compact") && self.is_busy();
        self.open.push(open_command.clone());
        let frames = self.drain(Some(&open_command));
        if must_wait {
            let is_refused =
                matches!(frames.as_slice(), [RpcEvent::Error { message, .. }] if message.contains(BUSY));
            assert!(is_refused, "{open_command:?} during a turn: {frames:?}");
        }
        for frame in &frames {
            self.settle(&open_command, frame);
        }
        let is_asked = self.pending.values().flatten().any(|pending| *pending == open_command);
        assert!(frames.len() == usize::from(!is_asked), "{open_command:?}: {frames:?}, asked: {is_asked}");
    }

    fn on_backend_update(&mut self, update: Update) {
        match update {
            Update::Answer(ticket, answer) => {
                let open_command =
                    self.pending.remove(&ticket).expect("the backend answers pending requests only");
                let began = self.turn.is_some() && self.turn == open_command;
                let failed = answer.is_err();
                self.machine.handle(self.now, Input::Answer(ticket, answer));
                let frames = self.drain(open_command.as_ref());
                let Some(open_command) = open_command else {
                    return assert!(frames.is_empty(), "{frames:?}");
                };
                if began && failed {
                    self.turn = None;
                }
                let was_compacting =
                    self.compacting.take_if(|compacting| *compacting == open_command).is_some();
                for (index, frame) in frames.iter().enumerate() {
                    // The `abort` commands of a compaction are answered after it.
                    match self.abort_of(frame).filter(|_| was_compacting && index > 0) {
                        Some(abort) => self.settle(&abort, frame),
                        None => self.settle(&open_command, frame),
                    }
                }
            }
            Update::Event(event) => {
                self.machine.handle(self.now, Input::Event(&event));
                let frames = self.drain(None);
                self.on_frames_of(&event, &frames);
            }
        }
    }

    /// The abort that `frame` answers.
    fn abort_of(&self, frame: &RpcEvent) -> Option<OpenCommand> {
        let RpcEvent::Response { id, command, .. } = frame else { return None };
        let is_it = |open_command: &&OpenCommand| {
            open_command.command == "abort" && command == "abort" && open_command.id == *id
        };
        self.open.iter().find(is_it).cloned()
    }

    /// Checks that `frame` settles `open_command`.
    fn settle(&mut self, open_command: &OpenCommand, frame: &RpcEvent) {
        match frame {
            RpcEvent::Response { id, command, .. } => {
                let expected = if open_command.command == STEER { "prompt" } else { open_command.command };
                assert_eq!((id.as_str(), command.as_str()), (open_command.id.as_str(), expected));
            }
            RpcEvent::Error { id, message } => {
                assert!(
                    id.as_ref() == Some(&open_command.id) && !message.is_empty(),
                    "{open_command:?}: {frame:?}"
                );
            }
            RpcEvent::Ready { .. }
            | RpcEvent::MessageUpdate { .. }
            | RpcEvent::SubagentStart { .. }
            | RpcEvent::SubagentUpdate { .. }
            | RpcEvent::SubagentDone { .. }
            | RpcEvent::AgentEnd { .. } => panic!("{open_command:?} is not settled by {frame:?}"),
        }
        let index = self.open.iter().position(|open| open == open_command);
        let index = index.unwrap_or_else(|| panic!("{open_command:?} is settled again, by {frame:?}"));
        self.open.remove(index);
    }

    /// Checks the frames that an event of the turn became.
    fn on_frames_of(&mut self, event: &RegistryEvent, frames: &[RpcEvent]) {
        let mut frames = frames.iter();
        let ending = frames.as_slice().iter().any(|frame| matches!(frame, RpcEvent::AgentEnd { .. }));
        assert!(frames.len() == 0 || self.turn.is_some(), "frames of a turn without one: {frames:?}");
        while let Some(frame) = frames.as_slice().first().filter(|frame| !is_end_frame(frame)) {
            frames.next();
            self.on_update(frame);
        }
        if !ending {
            return assert!(frames.len() == 0, "the last frames of a turn that has not ended: {frames:?}");
        }
        let turn = self.turn.take().expect("there is a turn");
        let started = std::mem::take(&mut self.calls)
            .into_iter()
            .find(|(_, progress)| *progress == CallProgress::Start);
        assert!(started.is_none(), "the input of {started:?} was never sent");
        assert!(self.subagents.is_empty(), "subagents that were never done: {:?}", self.subagents);
        let SessionUpdate::Entry(entry) = &event.update else { panic!("a delta ends no turn") };
        let SessionEvent::Run { event: RunEvent::Ended { ending, .. }, .. } = &entry.event else {
            panic!("{entry:?} ends no turn")
        };
        let is_late = self.now.duration_since(turn.received_at) > LATE_FAILURE;
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
            AssistantEvent::ToolcallStart { tool_id, .. } => (tool_id, None, CallProgress::Start),
            AssistantEvent::ToolcallInputDelta { tool_id, .. } => {
                (tool_id, Some(CallProgress::Start), CallProgress::Start)
            }
            AssistantEvent::ToolcallInput { tool_id, .. } => {
                (tool_id, Some(CallProgress::Start), CallProgress::Input)
            }
            AssistantEvent::ToolcallResult { tool_id, .. } => {
                (tool_id, Some(CallProgress::Input), CallProgress::Result)
            }
        };
        assert_eq!(self.calls.insert(id.clone(), now), before, "{event:?}");
    }

    /// Drains the machine after `open_command` or an event: submits its requests, and returns its frames.
    fn drain(&mut self, open_command: Option<&OpenCommand>) -> Vec<RpcEvent> {
        let mut frames = Vec::new();
        while let Some(output) = self.machine.poll() {
            match output {
                Output::Send(frame) => {
                    assert!(frame.is_ascii() && !frame.contains(&b'\n'), "a frame is a line of ASCII");
                    frames.push(serde_json::from_slice(&frame).expect("a frame is an event"));
                    self.received.push(frame);
                }
                Output::Request(ticket, command) => {
                    self.check_request(open_command, &command);
                    let open_command = open_command.filter(|_| is_waited_for(&command)).cloned();
                    if let Some(refusal) = self.registry.submit(ticket, command) {
                        self.turn.take_if(|turn| Some(&*turn) == open_command.as_ref());
                        self.machine.handle(self.now, Input::Answer(ticket, Err(refusal)));
                        continue;
                    }
                    assert!(self.pending.insert(ticket, open_command).is_none(), "{ticket:?} is used twice");
                }
                Output::SendShared(_) => panic!("this door shares no frames"),
                Output::WakeAt(moment) => self.wake_at = Some(moment),
                Output::Close => {
                    assert!(self.is_shutting_down, "only a shutdown closes the connection");
                    self.is_closed = true;
                }
            }
        }
        frames
    }

    fn check_request(&mut self, open_command: Option<&OpenCommand>, command: &RegistryRequest) {
        if let RegistryRequest::Session(_, SessionCommand::Send { when_busy, .. }) = command {
            let steers = open_command.is_some_and(|open_command| open_command.command == STEER);
            assert_eq!(*when_busy == WhenBusy::Steer, steers, "{open_command:?}");
            if !steers {
                assert!(!self.is_busy(), "two turns at a time");
                self.turn = open_command.cloned();
            }
        }
        if let RegistryRequest::Session(_, SessionCommand::Compact { .. }) = command {
            assert!(!self.is_busy(), "a summary during a turn");
            self.compacting = open_command.cloned();
        }
    }
}

/// Whether a command waits for the answer to this request.
fn is_waited_for(command: &RegistryRequest) -> bool {
    !matches!(
        command,
        RegistryRequest::Watch { .. } | RegistryRequest::Release(_) | RegistryRequest::DeleteIfUnused(_)
    )
}

/// Whether `frame` belongs to the end of a turn.
fn is_end_frame(frame: &RpcEvent) -> bool {
    matches!(frame, RpcEvent::Error { .. } | RpcEvent::AgentEnd { .. } | RpcEvent::Response { .. })
}

/// What must follow `frame`.
fn expectation(frame: &[u8]) -> Expectation {
    #[derive(Deserialize)]
    struct Id {
        id: String,
    }
    if frame.iter().all(|byte| matches!(byte, b' ' | b'\t' | b'\r')) {
        return Expectation::Nothing;
    }
    match serde_json::from_slice::<Value>(frame) {
        Ok(value) if value.is_object() => {}
        Ok(_) | Err(_) => return Expectation::Error(None),
    }
    let Ok(command) = serde_json::from_slice::<RpcCommand>(frame) else {
        let id = serde_json::from_slice(frame).ok().map(|Id { id }| id);
        return Expectation::Error(id.filter(|id| !id.is_empty()));
    };
    match command {
        RpcCommand::Prompt { id, steer: true, .. } => Expectation::Settle(id, STEER),
        RpcCommand::Prompt { id, .. } | RpcCommand::FollowUp { id, .. } => Expectation::Settle(id, "prompt"),
        RpcCommand::Compact { id } => Expectation::Settle(id, "compact"),
        RpcCommand::NewSession { id } => Expectation::Settle(id, "new_session"),
        RpcCommand::GetMessages { id } => Expectation::Settle(id, "get_messages"),
        RpcCommand::SetModel { id, .. } => Expectation::Settle(id, "set_model"),
        RpcCommand::GetAvailableModels { id } => Expectation::Settle(id, "get_available_models"),
        RpcCommand::Abort { id } => Expectation::Settle(id, "abort"),
        RpcCommand::GetSessionStats { id } => Expectation::Settle(id, "get_session_stats"),
        RpcCommand::GetState { id } => Expectation::Settle(id, "get_state"),
        RpcCommand::ToolsList { id } => Expectation::Settle(id.unwrap_or_default(), "tools_list"),
        RpcCommand::Shutdown => Expectation::Shutdown,
    }
}
