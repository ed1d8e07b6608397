//! One session of an imagined registry: its log, the run that is active, and what waits.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parlor_vocab::{
    AgentId, Entry, ErrorScope, EventId, Media, MediaId, MessageEvent, MessageId, QueuedInput, RunEnding,
    RunEvent, RunId, Seq, SessionEvent, SessionRefusal, SessionReply, StepEvent, StepId, StepKind, StopCause,
    SubagentEvent, Timestamp, ToolCallId, ToolEvent, Usage, UserInput,
};

use super::choices::Choices;
use super::fake_registry::failure;

/// How many inputs may wait here: few, so that there are often too many.
const MAX_QUEUED: usize = 2;

#[derive(Default)]
pub(super) struct FakeSession {
    pub(super) log: Vec<Arc<Entry>>,
    run: Option<Run>,
    queue: VecDeque<QueuedInput>,
    /// How many events each run has.
    sequences: HashMap<RunId, u64>,
}

struct Run {
    id: RunId,
    /// What is being said.
    spoken: Option<(MessageId, String)>,
    calls: Vec<ToolCallId>,
    children: Vec<RunId>,
}

impl FakeSession {
    pub(super) fn append(&mut self, names: &mut u64, event: SessionEvent) {
        *names += 1;
        let id = EventId::parse(&format!("evt_{names}")).expect("a short text");
        let (seq, at) = (Seq(self.log.len() as u64 + 1), Timestamp(0));
        self.log.push(Arc::new(Entry { seq, id, at, event }));
    }

    /// What is being said at the moment.
    pub(super) fn speaking(&self) -> Option<(&RunId, &MessageId, &String)> {
        let run = self.run.as_ref()?;
        run.spoken.as_ref().map(|(message, text)| (&run.id, message, text))
    }

    /// Whether a message was begun before a place.
    pub(super) fn has_begun(&self, message: &MessageId, place: usize) -> bool {
        let begins = |entry: &Arc<Entry>| {
            let SessionEvent::Run { event, .. } = &entry.event else { return false };
            matches!(event, RunEvent::Message(MessageEvent::Started { message: begun }) if begun == message)
        };
        self.log.iter().take(place).any(begins)
    }

    pub(super) fn is_idle(&self) -> bool {
        self.run.is_none()
    }

    pub(super) fn send(&mut self, names: &mut u64, input: UserInput) -> Result<SessionReply, SessionRefusal> {
        if input.choice.agent.as_ref().is_some_and(|agent| agent.as_str() == "nobody") {
            return Err(SessionRefusal::UnknownAgent(input.choice.agent.expect("it is there")));
        }
        let run = named(names, RunId::parse);
        if self.run.is_none() {
            self.start(names, run.clone(), input);
            return Ok(SessionReply::Started(run));
        }
        if self.queue.len() == MAX_QUEUED {
            return Err(SessionRefusal::QueueFull { limit: MAX_QUEUED });
        }
        let queued = QueuedInput { run: run.clone(), input };
        self.append(names, SessionEvent::Queued(queued.clone()));
        self.queue.push_back(queued);
        Ok(SessionReply::Queued { run, waiting: self.queue.len() })
    }

    pub(super) fn stop(
        &mut self,
        names: &mut u64,
        asked: Option<&RunId>,
        cause: StopCause,
    ) -> Result<SessionReply, SessionRefusal> {
        let active = self.run.as_ref().map(|run| run.id.clone()).ok_or(SessionRefusal::NoActiveRun)?;
        if let Some(asked) = asked.filter(|asked| **asked != active) {
            return Err(SessionRefusal::WrongRun { asked: asked.clone(), active });
        }
        let message = named(names, MessageId::parse);
        let text = cause.reason().to_owned();
        self.finish_speaking(names);
        self.record(
            names,
            &active,
            RunEvent::Message(MessageEvent::Completed { message: message.clone(), text, media: vec![] }),
        );
        self.end(names, RunEnding::Stopped { cause, message });
        Ok(SessionReply::Stopping(active))
    }

    fn start(&mut self, names: &mut u64, id: RunId, input: UserInput) {
        let (spoken, calls, children) = (None, Vec::new(), Vec::new());
        self.run = Some(Run { id: id.clone(), spoken, calls, children });
        self.begin(names, &id, None, input);
    }

    fn begin(&mut self, names: &mut u64, id: &RunId, parent: Option<RunId>, input: UserInput) {
        let agent = AgentId::parse("a").expect("a short text");
        let message = named(names, MessageId::parse);
        self.record(names, id, RunEvent::Started { parent, agent, model: None, input, message });
    }

    fn record(&mut self, names: &mut u64, run: &RunId, event: RunEvent) {
        let sequence = self.sequences.entry(run.clone()).or_default();
        *sequence += 1;
        let event = SessionEvent::Run { run: run.clone(), sequence: *sequence, event };
        self.append(names, event);
    }

    /// The run does something that runs do.
    pub(super) fn perform(&mut self, names: &mut u64, choices: &mut Choices<'_>) {
        let choice = choices.next();
        let text = ["a", "\u{e4}\u{1f600}", "\n\"", ""][usize::from(choice >> 6)].to_owned();
        let Some(run) = &mut self.run else { return };
        let (id, duration_ms) = (run.id.clone(), 1);
        let step = StepId::parse("step_001").expect("a short text");
        let event = match choice % 12 {
            0..=2 => match &mut run.spoken {
                Some((_, spoken)) => return spoken.push_str(&text),
                None => {
                    let message = named(names, MessageId::parse);
                    run.spoken = Some((message.clone(), String::new()));
                    RunEvent::Message(MessageEvent::Started { message })
                }
            },
            3 => return self.finish_speaking(names),
            4 => RunEvent::Step(StepEvent::Started { step, kind: StepKind::Planning, title: text }),
            5 => RunEvent::Step(StepEvent::Reasoned { step, text }),
            6 => {
                let call = named(names, ToolCallId::parse);
                run.calls.push(call.clone());
                RunEvent::Tool(ToolEvent::Called { step, call, tool: "shell".to_owned(), input: text })
            }
            7 => match (run.calls.pop(), choice > 127) {
                (Some(call), true) => {
                    RunEvent::Tool(ToolEvent::Completed { call, output: text, duration_ms })
                }
                (Some(call), false) => {
                    RunEvent::Tool(ToolEvent::Failed { call, failure: failure(&text), duration_ms })
                }
                (None, _) => RunEvent::ErrorRaised { scope: ErrorScope::Run, failure: failure(&text) },
            },
            8 => match run.children.pop() {
                Some(child) => {
                    self.record(names, &child, ended(RunEnding::Completed { message: None }));
                    RunEvent::Subagent(SubagentEvent::Done { child, result: Ok(text), duration_ms })
                }
                None => {
                    let child = named(names, RunId::parse);
                    run.children.push(child.clone());
                    let event = RunEvent::Subagent(SubagentEvent::Started {
                        child: child.clone(),
                        name: "s".to_owned(),
                        task: text,
                    });
                    self.record(names, &id, event);
                    return self.begin(names, &child, Some(id), UserInput::default());
                }
            },
            9 => RunEvent::Consumed { usage: Usage::default(), model: None },
            _ => {
                let ending = match choice > 127 {
                    true => RunEnding::Completed { message: None },
                    false => RunEnding::Failed(failure("choice")),
                };
                self.finish_speaking(names);
                return self.end(names, ending);
            }
        };
        self.record(names, &id, event);
    }

    fn finish_speaking(&mut self, names: &mut u64) {
        let Some(run) = &mut self.run else { return };
        let Some((message, text)) = run.spoken.take() else { return };
        let id = run.id.clone();
        // Some answers bring a file along.
        let media = if text.is_empty() { vec![file()] } else { Vec::new() };
        self.record(names, &id, RunEvent::Message(MessageEvent::Completed { message, text, media }));
    }

    fn end(&mut self, names: &mut u64, ending: RunEnding) {
        let Some(run) = self.run.take() else { return };
        for child in run.children {
            self.record(names, &child, ended(RunEnding::Failed(failure("over"))));
        }
        self.record(names, &run.id, ended(ending));
        if let Some(QueuedInput { run, input }) = self.queue.pop_front() {
            self.start(names, run, input);
        }
    }
}

fn ended(ending: RunEnding) -> RunEvent {
    RunEvent::Ended { ending, duration_ms: 1 }
}

fn file() -> Media {
    let id = MediaId::parse("m").expect("a short text");
    Media { id, name: "f".to_owned(), mime: "image/png".to_owned(), size: 1 }
}

/// A new id.
fn named<T, E: std::fmt::Debug>(names: &mut u64, parse: impl Fn(&str) -> Result<T, E>) -> T {
    *names += 1;
    parse(&format!("n{names}")).expect("a short text")
}
