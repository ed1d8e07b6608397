//! Turns the messages of a saved session into events: each prompt with all that follows it becomes a run.

use parlor_engine::{tool_step, writing_step};
use parlor_vocab::{
    AgentId, Failure, FailureCode, IdSource, Media, Message, MessageEvent, MessageId, Role, RunEnding,
    RunEvent, RunId, SessionEvent, StepEvent, StepId, StopCause, Timestamp, ToolCallId, ToolEvent, Usage,
    UserInput,
};

use super::blocks::Part;
use crate::settings::LOCAL;

/// The beginning of the messages that `synaps` writes after an interrupted turn.
const INTERRUPTED: &str = "[Request interrupted";
/// The message after a turn that the user stopped.
const INTERRUPTED_BY_USER: &str = "[Request interrupted by user]";
/// The message after a turn during which the program died.
const INTERRUPTED_BY_CRASH: &str = "[Request interrupted: Synaps stopped unexpectedly]";

/// Makes the events of one session.
pub(super) struct Converter<'a> {
    ids: &'a dyn IdSource,
    agent: AgentId,
    model: String,
    /// The usage of the whole session. The first run records it, because the file has none for each run.
    usage: Option<Usage>,
    /// The time of the present message. Times never go backwards.
    at: Timestamp,
    run: Option<OpenRun>,
    skipped: usize,
    events: Vec<(Timestamp, SessionEvent)>,
}

/// The run that has not ended yet.
struct OpenRun {
    id: RunId,
    sequence: u64,
    steps: u64,
    /// The open step of the model.
    step: Option<StepId>,
    /// Calls without a result, each with its id in the file, its id in the log and its step.
    calls: Vec<(String, ToolCallId, StepId)>,
    last_message: Option<MessageId>,
}

impl<'a> Converter<'a> {
    pub(super) fn new(ids: &'a dyn IdSource, agent: Option<AgentId>, model: String, usage: Usage) -> Self {
        let agent = agent.or_else(|| AgentId::parse(LOCAL).ok()).expect("the name is short");
        let usage = Some(usage).filter(|usage| *usage != Usage::default());
        let (events, at) = (Vec::new(), Timestamp::default());
        Self { ids, agent, model, usage, at, run: None, skipped: 0, events }
    }

    /// How many parts have no place in the log.
    pub(super) fn skipped(&self) -> usize {
        self.skipped
    }

    /// Adds the next message.
    pub(super) fn add(&mut self, at: Timestamp, is_user: bool, parts: Vec<Part>) {
        self.at = self.at.max(at);
        if is_user { self.add_user(parts) } else { self.add_assistant(parts) }
    }

    /// Ends the last run. `interrupted` is the text of an answer during which the program died.
    pub(super) fn finish(mut self, interrupted: Option<&str>) -> Vec<(Timestamp, SessionEvent)> {
        match interrupted {
            Some(text) if self.run.is_some() => {
                self.add_message(text);
                self.end_run(Some(crashed()));
            }
            Some(_) | None => self.complete_run(),
        }
        self.events
    }

    fn add_user(&mut self, parts: Vec<Part>) {
        let (mut texts, mut media) = (Vec::new(), Vec::new());
        for part in parts {
            match part {
                Part::Text(text) => texts.push(text),
                Part::Media(file) => media.push(file),
                Part::CallResult { id, output, is_error } => self.add_call_result(&id, output, is_error),
                Part::Thinking(_) | Part::File(_) | Part::Call { .. } => self.skipped += 1,
            }
        }
        let text = texts.join("\n");
        if text.is_empty() && media.is_empty() {
            return;
        }
        if self.run.is_some() && media.is_empty() && text.starts_with(INTERRUPTED) {
            let reason = "Stopped by user.".to_owned();
            return self.end_run(Some(match text.as_str() {
                INTERRUPTED_BY_USER => Interruption::Stopped(StopCause::Client { reason }),
                INTERRUPTED_BY_CRASH => crashed(),
                // "[Request interrupted]", after the program was asked to end, and other texts that begin like it.
                _ => Interruption::Stopped(StopCause::Shutdown),
            }));
        }
        self.complete_run();
        self.start_run(text, media);
    }

    fn add_assistant(&mut self, parts: Vec<Part>) {
        for part in parts {
            match part {
                Part::Text(text) if self.run.is_none() => {
                    let id = MessageId::generate(self.ids.next());
                    let message = Message { id, role: Role::Assistant, text, media: Vec::new() };
                    self.events.push((self.at, SessionEvent::MessageAdded(message)));
                }
                Part::Text(text) => self.add_message(&text),
                Part::Thinking(text) => match self.ensure_step() {
                    Some(step) => self.record(RunEvent::Step(StepEvent::Reasoned { step, text })),
                    None => self.skipped += 1,
                },
                Part::Call { id, tool, input } => self.add_call(id, tool, input),
                Part::Media(_) | Part::File(_) | Part::CallResult { .. } => self.skipped += 1,
            }
        }
        self.close_step();
    }

    fn start_run(&mut self, text: String, media: Vec<Media>) {
        let id = RunId::generate(self.ids.next());
        let (steps, step, calls) = (0, None, Vec::new());
        self.run = Some(OpenRun { id, sequence: 0, steps, step, calls, last_message: None });
        self.record(RunEvent::Started {
            parent: None,
            agent: self.agent.clone(),
            model: Some(self.model.clone()),
            input: UserInput { text, media, ..UserInput::default() },
            missing_agent: None,
            message: MessageId::generate(self.ids.next()),
        });
        if let Some(usage) = self.usage.take() {
            self.record(RunEvent::UsageAdded { usage, model: Some(self.model.clone()) });
        }
    }

    /// Adds a text of the agent, unless it is empty.
    fn add_message(&mut self, text: &str) {
        if text.is_empty() || self.ensure_step().is_none() {
            return;
        }
        let (message, text) = (MessageId::generate(self.ids.next()), text.to_owned());
        self.record(RunEvent::Message(MessageEvent::Started { message: message.clone() }));
        let last = message.clone();
        self.record(RunEvent::Message(MessageEvent::Completed { message, text, media: Vec::new() }));
        if let Some(run) = &mut self.run {
            run.last_message = Some(last);
        }
    }

    fn add_call(&mut self, saved_id: String, tool: String, input: String) {
        self.close_step();
        let Some(step) = self.new_step() else { return self.skipped += 1 };
        // The ids of the calls in the file are kept, because clients and people may know them.
        let call = ToolCallId::parse(&saved_id).unwrap_or_else(|_| ToolCallId::generate(self.ids.next()));
        let (kind, title) = tool_step(&tool);
        self.record(RunEvent::Step(StepEvent::Started { step: step.clone(), kind, title }));
        self.record(RunEvent::Tool(ToolEvent::Called {
            step: step.clone(),
            call: call.clone(),
            tool,
            input,
        }));
        if let Some(run) = &mut self.run {
            run.calls.push((saved_id, call, step));
        }
    }

    fn add_call_result(&mut self, saved_id: &str, output: String, is_error: bool) {
        let found = self.run.as_mut().and_then(|run| {
            let index = run.calls.iter().position(|(id, ..)| id == saved_id)?;
            Some(run.calls.remove(index))
        });
        let Some((_, call, step)) = found else { return self.skipped += 1 };
        if is_error {
            return self.fail_call(call, step, failure(FailureCode::ToolError, output));
        }
        self.record(RunEvent::Tool(ToolEvent::Completed { call, output, details: None, duration_ms: 0 }));
        self.record(RunEvent::Step(StepEvent::Completed { step, summary: String::new(), duration_ms: 0 }));
    }

    fn fail_call(&mut self, call: ToolCallId, step: StepId, failure: Failure) {
        self.record(RunEvent::Tool(ToolEvent::Failed { call, failure: failure.clone(), duration_ms: 0 }));
        self.record(RunEvent::Step(StepEvent::Failed { step, failure, duration_ms: 0 }));
    }

    fn complete_run(&mut self) {
        self.end_run(None);
    }

    fn end_run(&mut self, interruption: Option<Interruption>) {
        self.close_step();
        let open = self.run.as_mut().map(|run| std::mem::take(&mut run.calls)).unwrap_or_default();
        for (_, call, step) in open {
            let message = "the session has no result of this call".to_owned();
            self.fail_call(call, step, failure(FailureCode::RunInterrupted, message));
        }
        let Some(run) = &self.run else { return };
        let ending = match interruption {
            None => RunEnding::Completed { message: run.last_message.clone() },
            Some(Interruption::Crashed(failure)) => RunEnding::Failed(failure),
            Some(Interruption::Stopped(cause)) => {
                let message = MessageId::generate(self.ids.next());
                let (id, text) = (message.clone(), cause.reason().to_owned());
                let media = Vec::new();
                self.record(RunEvent::Message(MessageEvent::Completed { message: id, text, media }));
                RunEnding::Stopped { cause, message }
            }
        };
        self.record(RunEvent::Ended { ending, duration_ms: 0 });
        self.run = None;
    }

    /// The open step of the model, which begins here if there is none. `None` without a run.
    fn ensure_step(&mut self) -> Option<StepId> {
        let run = self.run.as_ref()?;
        if let Some(step) = &run.step {
            return Some(step.clone());
        }
        let (kind, title) = writing_step(run.steps == 0);
        let step = self.new_step()?;
        self.record(RunEvent::Step(StepEvent::Started { step: step.clone(), kind, title }));
        if let Some(run) = &mut self.run {
            run.step = Some(step.clone());
        }
        Some(step)
    }

    fn close_step(&mut self) {
        if let Some(step) = self.run.as_mut().and_then(|run| run.step.take()) {
            let summary = String::new();
            self.record(RunEvent::Step(StepEvent::Completed { step, summary, duration_ms: 0 }));
        }
    }

    fn new_step(&mut self) -> Option<StepId> {
        let run = self.run.as_mut()?;
        run.steps += 1;
        StepId::parse(&format!("step_{}", run.steps)).ok()
    }

    fn record(&mut self, event: RunEvent) {
        if let Some(run) = &mut self.run {
            run.sequence += 1;
            let (run, sequence) = (run.id.clone(), run.sequence);
            self.events.push((self.at, SessionEvent::Run { run, sequence, event }));
        }
    }
}

/// Why a run did not complete.
enum Interruption {
    Stopped(StopCause),
    Crashed(Failure),
}

fn crashed() -> Interruption {
    let message = "The program ended during the run.".to_owned();
    Interruption::Crashed(Failure { code: FailureCode::RunInterrupted, message, retryable: true })
}

fn failure(code: FailureCode, message: String) -> Failure {
    Failure { code, message, retryable: false }
}
