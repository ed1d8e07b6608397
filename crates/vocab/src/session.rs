//! The parts of sessions and runs: inputs, messages, history, usage and endings.

use std::path::PathBuf;

use crate::{AgentId, Failure, MediaId, MessageId, RunId, SessionId, ToolCallId};

/// How much effort a model puts into reasoning before it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reasoning {
    /// No reasoning.
    Off,
    /// The lowest effort.
    Low,
    /// A medium effort.
    Medium,
    /// A high effort.
    High,
    /// The highest effort that the provider offers.
    Xhigh,
    /// The model chooses the effort for each answer.
    Adaptive,
}

/// Which agent and model answer. `None` means: as configured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentChoice {
    /// The agent, by its configured name.
    pub agent: Option<AgentId>,
    /// The model, by its configured name or by the provider's name for it.
    pub model: Option<String>,
    /// The model's reasoning effort.
    pub reasoning: Option<Reasoning>,
}

/// The properties that a session is created with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewSession {
    /// A title for people.
    pub title: Option<String>,
    /// The door that created the session, such as `supr`; `chat` for the terminal.
    pub door: String,
    /// The working folder of the session's tools.
    pub folder: PathBuf,
    /// Which agent and model answer.
    pub choice: AgentChoice,
    /// Instructions that precede all messages.
    pub system: Option<String>,
    /// The session whose messages this one begins with, if it is a fork.
    pub forked_from: Option<ForkOrigin>,
}

/// The origin of a forked session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForkOrigin {
    /// The session that was copied.
    pub session: SessionId,
    /// The last message that was copied.
    pub message: MessageId,
}

/// A user's input to a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserInput {
    /// The text. May be empty if files are attached.
    pub text: String,
    /// Attached files.
    pub media: Vec<Media>,
    /// Overrides the session's choice for this run only.
    pub choice: AgentChoice,
    /// An idempotency key. A second input with the same key, through the same door, starts nothing; its reply is the run
    /// of the first.
    pub key: Option<String>,
    /// The caller's W3C `traceparent`.
    pub traceparent: Option<String>,
    /// Who sent it. `None` in sessions that older versions recorded.
    pub by: Option<Sender>,
    /// Whether the client that sent it shows questions to a person. If not, the policy decides in that person's place.
    pub can_answer: bool,
    /// Whether a person certainly sees a question of this client at once, because it is the terminal, the page, or speaks a
    /// protocol in which clients have to show questions. Only then a question may come before the agent's first step.
    pub is_attended: bool,
}

/// The client that sent an input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sender {
    /// The door that the input came through, such as `supr`; `chat` for the terminal.
    pub door: String,
    /// The name that the client gave itself.
    pub client: Option<String>,
}

impl Sender {
    /// A client of this door that gave itself no name.
    pub fn at(door: &str) -> Self {
        Self { door: door.to_owned(), client: None }
    }
}

/// A reference to a stored file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Media {
    /// The hash of the content.
    pub id: MediaId,
    /// The file name that the client gave.
    pub name: String,
    /// The MIME type, detected from the content.
    pub mime: String,
    /// The size in bytes.
    pub size: u64,
}

/// The author of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The person or program that uses the session.
    User,
    /// The agent.
    Assistant,
    /// Parlor itself. Such messages are for people; agents do not see them.
    System,
}

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Globally unique.
    pub id: MessageId,
    /// The author.
    pub role: Role,
    /// The whole text.
    pub text: String,
    /// Attached files.
    pub media: Vec<Media>,
}

/// One item of a session's history, as agents and people read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HistoryItem {
    /// A message.
    Message(Message),
    /// A tool call of the agent.
    ToolUse(ToolUse),
    /// A run ended here without completing: it failed or was stopped.
    UnfinishedRun {
        /// The message that the run answers. All items between it and this one belong to the run.
        input: Option<MessageId>,
        /// Why the run did not complete.
        ending: RunEnding,
    },
}

/// A tool call and its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolUse {
    /// The call's id.
    pub call: ToolCallId,
    /// The name under which the agent knows the tool.
    pub tool: String,
    /// The tool's input, as JSON text.
    pub input: String,
    /// The tool's output or failure; `None` while it runs.
    pub result: Option<Result<String, Failure>>,
}

/// Tokens and money that model calls consumed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens that the model read, without the cached ones below.
    pub input_tokens: u64,
    /// Tokens that the model wrote.
    pub output_tokens: u64,
    /// Tokens that were read from the provider's cache.
    pub cache_read_tokens: u64,
    /// Tokens that were written to the provider's cache.
    pub cache_write_tokens: u64,
    /// The cost in millionths of a dollar; 0 where the price is not known.
    pub cost_micros: u64,
}

impl Usage {
    /// The sum of both, saturating.
    #[must_use]
    pub fn plus(self, more: Self) -> Self {
        Self {
            input_tokens: self.input_tokens.saturating_add(more.input_tokens),
            output_tokens: self.output_tokens.saturating_add(more.output_tokens),
            cache_read_tokens: self.cache_read_tokens.saturating_add(more.cache_read_tokens),
            cache_write_tokens: self.cache_write_tokens.saturating_add(more.cache_write_tokens),
            cost_micros: self.cost_micros.saturating_add(more.cost_micros),
        }
    }
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunEnding {
    /// The agent finished its work.
    Completed {
        /// The agent's last message, if it wrote any.
        message: Option<MessageId>,
    },
    /// The run could not go on.
    Failed(Failure),
    /// The run was stopped before it finished.
    Stopped {
        /// Who or what stopped it.
        cause: StopCause,
        /// The message in the history that states the reason.
        message: MessageId,
    },
}

/// Who or what stopped a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StopCause {
    /// A client stopped it.
    Client {
        /// The client's reason, in words for people.
        reason: String,
    },
    /// The program shut down. Queued inputs start when the session is opened again.
    Shutdown,
}

impl StopCause {
    /// Why the run was stopped, in words for people.
    pub fn reason(&self) -> &str {
        match self {
            Self::Client { reason } => reason,
            Self::Shutdown => "The program is ending.",
        }
    }
}

/// An input in the queue of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuedInput {
    /// The id of the run that the input will start.
    pub run: RunId,
    /// The input.
    pub input: UserInput,
}
