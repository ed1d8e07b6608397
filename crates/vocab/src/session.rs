//! What sessions and runs are made of.

use std::path::PathBuf;

use crate::{AgentId, Failure, MediaId, MessageId, RunId, ToolCallId};

/// How hard a model is to think.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reasoning {
    /// Not at all.
    Off,
    /// A little.
    Low,
    /// Somewhat.
    Medium,
    /// Hard.
    High,
    /// As hard as it can.
    Xhigh,
    /// As the model sees fit.
    Adaptive,
}

/// What answers in a session, and how. `None` leaves the choice to the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentChoice {
    /// The agent.
    pub agent: Option<AgentId>,
    /// The model, by its configured name or the provider's.
    pub model: Option<String>,
    /// How hard it is to think.
    pub reasoning: Option<Reasoning>,
}

/// What a session was created with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewSession {
    /// What people call it.
    pub title: Option<String>,
    /// The door it came through, such as `supr`; `chat` for the terminal.
    pub door: String,
    /// The working folder of its tools.
    pub folder: PathBuf,
    /// What answers.
    pub choice: AgentChoice,
    /// Instructions that come before everything else.
    pub system: Option<String>,
    /// Where its first messages were copied from.
    pub forked_from: Option<Fork>,
}

/// The origin of a session that began as a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fork {
    /// The session that was copied.
    pub session: crate::SessionId,
    /// The last message that was copied.
    pub message: MessageId,
}

/// What somebody said to a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserInput {
    /// The text; may be empty if there is media.
    pub text: String,
    /// Files that came along.
    pub media: Vec<Media>,
    /// What is to answer this once, where it differs from the session's own choice.
    pub choice: AgentChoice,
    /// Repeated with the same key, an input starts nothing and gives the run it started first.
    pub key: Option<String>,
    /// A W3C `traceparent` of the caller.
    pub traceparent: Option<String>,
}

/// A stored file with what is known of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Media {
    /// Its content, by hash.
    pub id: MediaId,
    /// The name it was given.
    pub name: String,
    /// Its type, from its bytes.
    pub mime: String,
    /// Its size in bytes.
    pub size: u64,
}

/// Who speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The person or program that uses the session.
    User,
    /// The agent.
    Assistant,
    /// Parlor itself, for people to read; agents do not see it.
    System,
}

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Unique everywhere.
    pub id: MessageId,
    /// Who spoke.
    pub role: Role,
    /// What was said.
    pub text: String,
    /// Files that came along.
    pub media: Vec<Media>,
}

/// What a session's agent and its people can look back on, piece by piece.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HistoryItem {
    /// Somebody spoke.
    Message(Message),
    /// The agent used a tool.
    ToolUse(ToolUse),
    /// A run ended here before its work was done: it failed or was stopped.
    BrokenOff(RunEnding),
}

/// A call of a tool and what came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolUse {
    /// The call.
    pub call: ToolCallId,
    /// The tool.
    pub tool: String,
    /// Its input, as JSON text.
    pub input: String,
    /// What it gave back; none while it works.
    pub result: Option<Result<String, Failure>>,
}

/// What a run consumed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens read, without those below.
    pub input_tokens: u64,
    /// Tokens written.
    pub output_tokens: u64,
    /// Tokens read from a provider's cache.
    pub cache_read_tokens: u64,
    /// Tokens written to a provider's cache.
    pub cache_write_tokens: u64,
    /// What it cost, in millionths of a dollar, where prices are known.
    pub cost_micros: u64,
}

impl Usage {
    /// This and that together.
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
    /// It did its work; its last message, if it had any.
    Completed {
        /// The answer.
        message: Option<MessageId>,
    },
    /// It could not.
    Failed(Failure),
    /// It was stopped.
    Stopped {
        /// By whom or what.
        cause: StopCause,
        /// The message that holds the reason.
        message: MessageId,
    },
}

/// Who or what stopped a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StopCause {
    /// A client, for this reason.
    Client {
        /// In words for people.
        reason: String,
    },
    /// The program ended. Inputs that wait behind the run are started when the session is opened again.
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

/// An input that waits for the run before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuedInput {
    /// The run it will become.
    pub run: RunId,
    /// What it says.
    pub input: UserInput,
}
