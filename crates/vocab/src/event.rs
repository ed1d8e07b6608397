//! Events of a session. A session's log holds them in order; an appended event never changes.

use crate::{
    AgentChoice, AgentId, EventId, Failure, Media, Message, MessageId, NewSession, PolicyMode, QuestionEvent,
    QueuedInput, RunEnding, RunId, StepId, Timestamp, ToolCallId, ToolDetails, Usage, UserInput,
};

/// The number of an event in its session's log. The first event has number 1, and there are no gaps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Seq(pub u64);

impl Seq {
    /// The position before the first event.
    pub const START: Self = Self(0);
}

/// An event in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The event's number within its session.
    pub seq: Seq,
    /// Globally unique. Ids sort by time.
    pub id: EventId,
    /// When the event happened.
    pub at: Timestamp,
    /// What happened.
    pub event: SessionEvent,
}

/// An event that has not been appended, so it has no [`Seq`] yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewEntry {
    /// Globally unique. Ids sort by time.
    pub id: EventId,
    /// When the event happened.
    pub at: Timestamp,
    /// What happened.
    pub event: SessionEvent,
}

impl NewEntry {
    /// The log entry that this event becomes under number `seq`.
    pub fn with_seq(self, seq: Seq) -> Entry {
        Entry { seq, id: self.id, at: self.at, event: self.event }
    }
}

/// A change of a session's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionEvent {
    /// The session was created. Always the first event.
    Created(NewSession),
    /// The title changed.
    Renamed {
        /// The new title.
        title: String,
    },
    /// The agent, model or reasoning effort of later runs changed. `None` fields stay as they were.
    AgentChosen(AgentChoice),
    /// The policy's mode of later runs changed.
    ModeChosen {
        /// The new mode.
        mode: PolicyMode,
    },
    /// An input was queued behind the active run.
    Queued(QueuedInput),
    /// Queued inputs were dropped and will not run.
    Unqueued {
        /// The runs that the inputs would have started.
        runs: Vec<RunId>,
    },
    /// All messages were removed from the history.
    Cleared,
    /// A summary replaced older messages.
    Compacted {
        /// The message that replaces the older ones.
        summary: Message,
        /// The first message that was kept unchanged; `None` if the summary replaced all of them.
        kept_from: Option<MessageId>,
    },
    /// A message outside of any run: a fork copied it, or parlor wrote it.
    MessageAdded(Message),
    /// An event of one run.
    Run {
        /// The run.
        run: RunId,
        /// The event's number within its run: from 1, without gaps.
        sequence: u64,
        /// What happened.
        event: RunEvent,
    },
}

/// A change of a run's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunEvent {
    /// The run began. Always its first event.
    Started {
        /// The run that delegated this one; `None` unless this run belongs to a subagent.
        parent: Option<RunId>,
        /// The agent that answers, after defaults were applied.
        agent: AgentId,
        /// The provider's id of the model that answers, after defaults were applied. If the agent uses no model: the
        /// name that the client chose, if any.
        model: Option<String>,
        /// The agent of the session, if it is not configured any more and `agent` answers instead. Only in the first
        /// of such runs, so that clients show it once.
        missing_agent: Option<AgentId>,
        /// The user's input.
        input: UserInput,
        /// The id of the input's message in the history.
        message: MessageId,
    },
    /// A user added text to the active run.
    Steered {
        /// The added input.
        input: UserInput,
        /// The id of the input's message in the history.
        message: MessageId,
    },
    /// An event of an agent's message.
    Message(MessageEvent),
    /// An event of a step.
    Step(StepEvent),
    /// An event of a tool call.
    Tool(ToolEvent),
    /// An event of a question about a tool call.
    Question(QuestionEvent),
    /// An event of a subagent that works for this run.
    Subagent(SubagentEvent),
    /// An error occurred that does not by itself end the run.
    ErrorRaised {
        /// The part of the run that failed.
        scope: ErrorScope,
        /// What went wrong.
        failure: Failure,
    },
    /// One model call consumed tokens. The usage of a run is the sum of these events.
    UsageAdded {
        /// The tokens and the cost of this call alone.
        usage: Usage,
        /// The provider's id of the model that was called.
        model: Option<String>,
    },
    /// The run ended. Always its last event, exactly once.
    Ended {
        /// Whether the run completed, failed or was stopped.
        ending: RunEnding,
        /// Milliseconds since [`Started`](Self::Started).
        duration_ms: u64,
    },
}

impl RunEvent {
    /// What to tell people about a run that another agent answers than the one of its session.
    pub fn missing_agent_notice(&self) -> Option<String> {
        let Self::Started { agent, missing_agent: Some(missing), .. } = self else { return None };
        let missing = missing.as_str();
        Some(format!(
            "The agent {missing:?} is no longer configured, so {agent} answers. Choose another agent or model to change \
             this."
        ))
    }
}

/// An event of a message that the agent writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MessageEvent {
    /// The agent begins to write.
    Started {
        /// The new message's id.
        message: MessageId,
    },
    /// The message is complete.
    Completed {
        /// The message.
        message: MessageId,
        /// The whole text: the concatenation of the message's deltas.
        text: String,
        /// Files that the agent attached.
        media: Vec<Media>,
    },
}

/// An event of a step: one model call, or one tool call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepEvent {
    /// The step began.
    Started {
        /// The new step's id.
        step: StepId,
        /// A model call or a tool call.
        kind: StepKind,
        /// A short description for people.
        title: String,
    },
    /// The step made progress.
    Updated {
        /// The step.
        step: StepId,
        /// A short description for people.
        headline: String,
        /// From 0 to 100.
        percent: u8,
    },
    /// The model's reasoning in this step is complete.
    Reasoned {
        /// The step.
        step: StepId,
        /// The whole reasoning text: the concatenation of its deltas.
        text: String,
    },
    /// The step succeeded.
    Completed {
        /// The step.
        step: StepId,
        /// A short description for people.
        summary: String,
        /// Milliseconds since the step began.
        duration_ms: u64,
    },
    /// The step failed.
    Failed {
        /// The step.
        step: StepId,
        /// What went wrong.
        failure: Failure,
        /// Milliseconds since the step began.
        duration_ms: u64,
    },
}

/// An event of a tool call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToolEvent {
    /// The agent called a tool.
    Called {
        /// The step that consists of this call.
        step: StepId,
        /// The new call's id.
        call: ToolCallId,
        /// The name under which the agent knows the tool.
        tool: String,
        /// The tool's input, as JSON text.
        input: String,
    },
    /// The tool reported progress.
    Progressed {
        /// The call.
        call: ToolCallId,
        /// A short description for people.
        message: String,
        /// From 0 to 100.
        percent: u8,
    },
    /// The call succeeded.
    Completed {
        /// The call.
        call: ToolCallId,
        /// The result that the agent reads.
        output: String,
        /// What the result has beside the text; `None` for most calls.
        details: Option<Box<ToolDetails>>,
        /// Milliseconds since the call.
        duration_ms: u64,
    },
    /// The call failed. The run goes on.
    Failed {
        /// The call.
        call: ToolCallId,
        /// What went wrong; the agent reads it.
        failure: Failure,
        /// Milliseconds since the call.
        duration_ms: u64,
    },
}

/// An event of a subagent: an agent that works for a run, in a child run of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SubagentEvent {
    /// The run delegated a task.
    Started {
        /// The child run, which records events of its own.
        child: RunId,
        /// The name that people see.
        name: String,
        /// The task, as text that the subagent reads.
        task: String,
    },
    /// The subagent made progress.
    Updated {
        /// The child run, which records events of its own.
        child: RunId,
        /// A short description for people.
        status: String,
    },
    /// The subagent ended.
    Done {
        /// The child run, which records events of its own.
        child: RunId,
        /// The subagent's answer, or what went wrong.
        result: Result<String, Failure>,
        /// Milliseconds since the subagent began.
        duration_ms: u64,
    },
}

/// What a step consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepKind {
    /// The first model call of a run.
    Planning,
    /// A later model call.
    Reasoning,
    /// A tool call.
    Tool,
}

/// Which part of a run an error concerns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ErrorScope {
    /// The run as a whole.
    Run,
    /// One tool call.
    Tool(ToolCallId),
}
