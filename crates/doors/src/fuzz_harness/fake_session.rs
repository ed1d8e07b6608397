//! One session of a fake registry: its log, its active run, and its queue.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parlor_vocab::{
    AgentId, Entry, ErrorScope, EventId, Media, MediaId, MessageEvent, MessageId, QueuedInput, RunEnding,
    RunEvent, RunId, Seq, SessionEvent, SessionRefusal, SessionReply, SessionUpdate, StepEvent, StepId,
    StepKind, StopCause, StreamKind, SubagentEvent, Timestamp, ToolCallId, ToolEvent, Usage, UserInput,
};

use super::choices::Choices;
use super::fake_registry::failure;

/// The most queued inputs. The limit is low, so that plays often exceed it.
const MAX_QUEUED: usize = 2;

#[derive(Default)]
pub(super) struct FakeSession {
    pub(super) log: Vec<Arc<Entry>>,
    run: Option<Run>,
    queue: VecDeque<QueuedInput>,
    /// The number of events of each run.
    sequences: HashMap<RunId, u64>,
}

struct Run {
    id: RunId,
    /// The open message and its text so far.
    open_message: Option<(MessageId, String)>,
    calls: Vec<ToolCallId>,
    children: Vec<RunId>,
}

/// A position in a session's log.
#[derive(Default)]
pub(super) struct LogCursor {
    /// The number of log entries that were reported.
    pub(super) position: usize,
    /// The bytes of the open message that were sent as deltas.
    sent_bytes: usize,
}

impl LogCursor {
    pub(super) fn at(position: usize) -> Self {
        Self { position, sent_bytes: 0 }
    }

    /// The next entry, or a delta of the message that the next entry completes or that is open at the end.
    pub(super) fn next(&mut self, fake: &FakeSession) -> Option<SessionUpdate> {
        let next = fake.log.get(self.position);
        let (run, message, text) = match next.map(|entry| &entry.event) {
            Some(SessionEvent::Run {
                run,
                event: RunEvent::Message(MessageEvent::Completed { message, text, .. }),
                ..
            }) => (run, message, text),
            Some(_) => return self.entry(next),
            None => fake.open_message()?,
        };
        let rest = text.get(self.sent_bytes..).unwrap_or_default();
        if !rest.is_empty() && fake.has_begun(message, self.position) {
            self.sent_bytes = text.len();
            let (run, stream) = (run.clone(), StreamKind::Message(message.clone()));
            return Some(SessionUpdate::Delta { run, stream, text: rest.to_owned() });
        }
        self.entry(next)
    }

    fn entry(&mut self, next: Option<&Arc<Entry>>) -> Option<SessionUpdate> {
        let entry = Arc::clone(next?);
        self.position += 1;
        if let SessionEvent::Run { event: RunEvent::Message(MessageEvent::Started { .. }), .. } = &entry.event
        {
            self.sent_bytes = 0;
        }
        Some(SessionUpdate::Entry(entry))
    }
}

impl FakeSession {
    pub(super) fn append(&mut self, id_counter: &mut u64, event: SessionEvent) {
        *id_counter += 1;
        let id = EventId::parse(&format!("evt_{id_counter}")).expect("a short text");
        let (seq, at) = (Seq(self.log.len() as u64 + 1), Timestamp(0));
        self.log.push(Arc::new(Entry { seq, id, at, event }));
    }

    /// The open message of the active run.
    pub(super) fn open_message(&self) -> Option<(&RunId, &MessageId, &String)> {
        let run = self.run.as_ref()?;
        run.open_message.as_ref().map(|(message, text)| (&run.id, message, text))
    }

    /// Whether the message starts within the first `position` log entries.
    pub(super) fn has_begun(&self, message: &MessageId, position: usize) -> bool {
        let begins = |entry: &Arc<Entry>| {
            let SessionEvent::Run { event, .. } = &entry.event else { return false };
            matches!(event, RunEvent::Message(MessageEvent::Started { message: begun }) if begun == message)
        };
        self.log.iter().take(position).any(begins)
    }

    pub(super) fn is_idle(&self) -> bool {
        self.run.is_none()
    }

    pub(super) fn send(
        &mut self,
        id_counter: &mut u64,
        input: UserInput,
    ) -> Result<SessionReply, SessionRefusal> {
        if input.choice.agent.as_ref().is_some_and(|agent| agent.as_str() == "nobody") {
            return Err(SessionRefusal::UnknownAgent(input.choice.agent.expect("it is there")));
        }
        let run = new_id(id_counter, RunId::parse);
        if self.run.is_none() {
            self.start(id_counter, run.clone(), input);
            return Ok(SessionReply::Started(run));
        }
        if self.queue.len() == MAX_QUEUED {
            return Err(SessionRefusal::QueueFull { limit: MAX_QUEUED });
        }
        let queued = QueuedInput { run: run.clone(), input };
        self.append(id_counter, SessionEvent::Queued(queued.clone()));
        self.queue.push_back(queued);
        Ok(SessionReply::Queued { run, waiting: self.queue.len() })
    }

    pub(super) fn stop(
        &mut self,
        id_counter: &mut u64,
        asked: Option<&RunId>,
        cause: StopCause,
    ) -> Result<SessionReply, SessionRefusal> {
        let active = self.run.as_ref().map(|run| run.id.clone()).ok_or(SessionRefusal::NoActiveRun)?;
        if let Some(asked) = asked.filter(|asked| **asked != active) {
            return Err(SessionRefusal::WrongRun { asked: asked.clone(), active });
        }
        let message = new_id(id_counter, MessageId::parse);
        let text = cause.reason().to_owned();
        self.finish_message(id_counter);
        self.record(
            id_counter,
            &active,
            RunEvent::Message(MessageEvent::Completed { message: message.clone(), text, media: vec![] }),
        );
        self.end(id_counter, RunEnding::Stopped { cause, message });
        Ok(SessionReply::Stopping(active))
    }

    fn start(&mut self, id_counter: &mut u64, id: RunId, input: UserInput) {
        let (open_message, calls, children) = (None, Vec::new(), Vec::new());
        self.run = Some(Run { id: id.clone(), open_message, calls, children });
        self.begin(id_counter, &id, None, input);
    }

    fn begin(&mut self, id_counter: &mut u64, id: &RunId, parent: Option<RunId>, input: UserInput) {
        let agent = AgentId::parse("a").expect("a short text");
        let message = new_id(id_counter, MessageId::parse);
        let (model, missing_agent) = (None, None);
        self.record(
            id_counter,
            id,
            RunEvent::Started { parent, agent, model, missing_agent, input, message },
        );
    }

    fn record(&mut self, id_counter: &mut u64, run: &RunId, event: RunEvent) {
        let sequence = self.sequences.entry(run.clone()).or_default();
        *sequence += 1;
        let event = SessionEvent::Run { run: run.clone(), sequence: *sequence, event };
        self.append(id_counter, event);
    }

    /// Adds one event to the active run, or some text to its open message.
    pub(super) fn advance_run(&mut self, id_counter: &mut u64, choices: &mut Choices<'_>) {
        let choice = choices.next();
        let text = ["a", "\u{e4}\u{1f600}", "\n\"", ""][usize::from(choice >> 6)].to_owned();
        let Some(run) = &mut self.run else { return };
        let (id, duration_ms) = (run.id.clone(), 1);
        let step = StepId::parse("step_001").expect("a short text");
        let event = match choice % 12 {
            0..=2 => match &mut run.open_message {
                Some((_, open_message)) => return open_message.push_str(&text),
                None => {
                    let message = new_id(id_counter, MessageId::parse);
                    run.open_message = Some((message.clone(), String::new()));
                    RunEvent::Message(MessageEvent::Started { message })
                }
            },
            3 => return self.finish_message(id_counter),
            4 => RunEvent::Step(StepEvent::Started { step, kind: StepKind::Planning, title: text }),
            5 => RunEvent::Step(StepEvent::Reasoned { step, text }),
            6 => {
                let call = new_id(id_counter, ToolCallId::parse);
                run.calls.push(call.clone());
                RunEvent::Tool(ToolEvent::Called { step, call, tool: "shell".to_owned(), input: text })
            }
            7 => match (run.calls.pop(), choice > 127) {
                (Some(call), true) => {
                    RunEvent::Tool(ToolEvent::Completed { call, output: text, details: None, duration_ms })
                }
                (Some(call), false) => {
                    RunEvent::Tool(ToolEvent::Failed { call, failure: failure(&text), duration_ms })
                }
                (None, _) => RunEvent::ErrorRaised { scope: ErrorScope::Run, failure: failure(&text) },
            },
            8 => match run.children.pop() {
                Some(child) => {
                    self.record(id_counter, &child, ended(RunEnding::Completed { message: None }));
                    RunEvent::Subagent(SubagentEvent::Done { child, result: Ok(text), duration_ms })
                }
                None => {
                    let child = new_id(id_counter, RunId::parse);
                    run.children.push(child.clone());
                    let event = RunEvent::Subagent(SubagentEvent::Started {
                        child: child.clone(),
                        name: "s".to_owned(),
                        task: text,
                    });
                    self.record(id_counter, &id, event);
                    return self.begin(id_counter, &child, Some(id), UserInput::default());
                }
            },
            9 => RunEvent::UsageAdded { usage: Usage::default(), model: None },
            _ => {
                let ending = match choice > 127 {
                    true => RunEnding::Completed { message: None },
                    false => RunEnding::Failed(failure("choice")),
                };
                self.finish_message(id_counter);
                return self.end(id_counter, ending);
            }
        };
        self.record(id_counter, &id, event);
    }

    fn finish_message(&mut self, id_counter: &mut u64) {
        let Some(run) = &mut self.run else { return };
        let Some((message, text)) = run.open_message.take() else { return };
        let id = run.id.clone();
        // Some messages have a file.
        let media = if text.is_empty() { vec![file()] } else { Vec::new() };
        self.record(id_counter, &id, RunEvent::Message(MessageEvent::Completed { message, text, media }));
    }

    fn end(&mut self, id_counter: &mut u64, ending: RunEnding) {
        let Some(run) = self.run.take() else { return };
        for child in run.children {
            self.record(id_counter, &child, ended(RunEnding::Failed(failure("over"))));
        }
        self.record(id_counter, &run.id, ended(ending));
        if let Some(QueuedInput { run, input }) = self.queue.pop_front() {
            self.start(id_counter, run, input);
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
fn new_id<T, E: std::fmt::Debug>(id_counter: &mut u64, parse: impl Fn(&str) -> Result<T, E>) -> T {
    *id_counter += 1;
    parse(&format!("n{id_counter}")).expect("a short text")
}
