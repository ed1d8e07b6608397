//! Facts about a session, in the order in which they happened. Appended to the log, never changed.

use crate::{
    AgentChoice, AgentId, EventId, Failure, Media, Message, MessageId, NewSession, QueuedInput, RunEnding,
    RunId, StepId, Timestamp, ToolCallId, Usage, UserInput,
};

/// A place in a session's log: the first event has 1, and there are no gaps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Seq(pub u64);

impl Seq {
    /// Before the first event.
    pub const START: Self = Self(0);
}

/// An event with its place in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Where it stands.
    pub seq: Seq,
    /// Unique everywhere, and sortable by time.
    pub id: EventId,
    /// When it was appended.
    pub at: Timestamp,
    /// What happened.
    pub event: SessionEvent,
}

/// An event that is not in the log yet, hence without a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewEntry {
    /// Unique everywhere, and sortable by time.
    pub id: EventId,
    /// When it happened.
    pub at: Timestamp,
    /// What happened.
    pub event: SessionEvent,
}

impl NewEntry {
    /// The same event at its place.
    pub fn at_place(self, seq: Seq) -> Entry {
        Entry { seq, id: self.id, at: self.at, event: self.event }
    }
}

/// A fact about a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionEvent {
    /// It exists.
    Created(NewSession),
    /// It has another title.
    Renamed {
        /// The new one.
        title: String,
    },
    /// Something else answers from now on. `None` members are as before.
    Chosen(AgentChoice),
    /// An input waits for its turn.
    Queued(QueuedInput),
    /// Inputs that waited will not run.
    Unqueued {
        /// The runs they would have become.
        runs: Vec<RunId>,
    },
    /// All messages were forgotten.
    Cleared,
    /// Older messages were replaced by a summary.
    Compacted {
        /// What stands in their place.
        summary: Message,
        /// The first message that was kept as it was.
        kept_from: Option<MessageId>,
    },
    /// A message that belongs to no run: copied by a fork, or said by parlor itself.
    MessageAdded(Message),
    /// Something about a run.
    Run {
        /// Which run.
        run: RunId,
        /// Counts the run's events from 1 without gaps.
        sequence: u64,
        /// What happened.
        event: RunEvent,
    },
}

/// A fact about a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunEvent {
    /// It began. Always the first.
    Started {
        /// The run that started this one, if it is a subagent's.
        parent: Option<RunId>,
        /// The agent that really answers.
        agent: AgentId,
        /// The model that is really used, if any.
        model: Option<String>,
        /// What was said.
        input: UserInput,
        /// The message that holds it.
        message: MessageId,
    },
    /// Text joined the running turn.
    Steered {
        /// What was said.
        input: UserInput,
        /// The message that holds it.
        message: MessageId,
    },
    /// The agent speaks.
    Message(MessageEvent),
    /// A piece of its work.
    Step(StepEvent),
    /// A call of a tool.
    Tool(ToolEvent),
    /// Another agent works for this run.
    Subagent(SubagentEvent),
    /// Something went wrong that does not end the run by itself.
    ErrorRaised {
        /// What it concerns.
        scope: ErrorScope,
        /// What it is.
        failure: Failure,
    },
    /// What a model call consumed. A run's usage is the sum of these.
    Consumed {
        /// How much.
        usage: Usage,
        /// Of which model.
        model: Option<String>,
    },
    /// It is over. Always the last, and exactly once.
    Ended {
        /// How.
        ending: RunEnding,
        /// How long it took.
        duration_ms: u64,
    },
}

/// The agent speaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MessageEvent {
    /// It begins.
    Started {
        /// The message.
        message: MessageId,
    },
    /// It has spoken: the whole text, exactly its deltas put together.
    Completed {
        /// The message.
        message: MessageId,
        /// The whole text.
        text: String,
        /// Files that came along.
        media: Vec<Media>,
    },
}

/// A step of a run: a model call with what it thinks, or a tool call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepEvent {
    /// It began.
    Started {
        /// The step.
        step: StepId,
        /// What kind of work it is.
        kind: StepKind,
        /// A few words for people.
        title: String,
    },
    /// It goes on.
    Updated {
        /// The step.
        step: StepId,
        /// A few words for people.
        headline: String,
        /// From 0 to 100.
        percent: u8,
    },
    /// The agent has thought.
    Reasoned {
        /// The step it thought in.
        step: StepId,
        /// The whole thought, exactly its deltas put together.
        text: String,
    },
    /// It is done.
    Completed {
        /// The step.
        step: StepId,
        /// A few words for people.
        summary: String,
        /// How long it took.
        duration_ms: u64,
    },
    /// It went wrong.
    Failed {
        /// The step.
        step: StepId,
        /// How.
        failure: Failure,
        /// How long it took.
        duration_ms: u64,
    },
}

/// A call of a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToolEvent {
    /// It began.
    Called {
        /// The step that the call is.
        step: StepId,
        /// The call.
        call: ToolCallId,
        /// The tool.
        tool: String,
        /// Its input, as JSON text.
        input: String,
    },
    /// The tool is at work.
    Progressed {
        /// The call.
        call: ToolCallId,
        /// A few words for people.
        message: String,
        /// From 0 to 100.
        percent: u8,
    },
    /// The tool is done.
    Completed {
        /// The call.
        call: ToolCallId,
        /// What the agent gets to read.
        output: String,
        /// How long it took.
        duration_ms: u64,
    },
    /// The tool went wrong. The run goes on.
    Failed {
        /// The call.
        call: ToolCallId,
        /// How; the agent gets to read it.
        failure: Failure,
        /// How long it took.
        duration_ms: u64,
    },
}

/// Another agent works for a run, in a run of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SubagentEvent {
    /// It began.
    Started {
        /// Its run.
        child: RunId,
        /// Its name.
        name: String,
        /// What it is to do.
        task: String,
    },
    /// It is at work.
    Updated {
        /// Its run.
        child: RunId,
        /// A few words for people.
        status: String,
    },
    /// It is done.
    Done {
        /// Its run.
        child: RunId,
        /// What it found, or what went wrong.
        result: Result<String, Failure>,
        /// How long it took.
        duration_ms: u64,
    },
}

/// What kind of work a step is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepKind {
    /// The first model call of a run.
    Planning,
    /// A later one.
    Reasoning,
    /// A tool call.
    Tool,
}

/// What an error concerns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ErrorScope {
    /// The run as a whole.
    Run,
    /// One tool call.
    Tool(ToolCallId),
}
