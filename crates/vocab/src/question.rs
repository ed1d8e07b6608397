//! Questions: what an agent needs a person for before it goes on.

use crate::{PolicyRule, QuestionId, Sender, ToolCallId};

/// A question to a person, for example whether a tool call may be made. It is answered exactly once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// Globally unique.
    pub id: QuestionId,
    /// What the answer decides.
    pub kind: QuestionKind,
    /// The tool call that waits for the answer. A question about the project has an id of its own here, which no call has.
    pub call: ToolCallId,
    /// The name of the tool.
    pub tool: String,
    /// What the agent wants to do, in one line for people.
    pub title: String,
    /// Why the question is asked, in one sentence.
    pub reason: String,
    /// The exact command, or the change of a file. Shortened if it is long; the input of the call has all of it.
    pub detail: String,
    /// The rule that [`QuestionAnswer::AllowAlways`] remembers. `None` if that answer is not offered.
    pub remembered: Option<PolicyRule>,
    /// Whether the log has the whole input of the call, so that the call can be made after a restart. Not so if a secret
    /// was removed from it.
    pub is_repeatable: bool,
}

/// What the answer to a question decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QuestionKind {
    /// Whether a tool call is made.
    #[default]
    Call,
    /// Whether a command that failed in the sandbox runs once more without it.
    WiderRights,
    /// Whether the command of a call connects to a host. The command waits.
    Host,
    /// Whether the agent reads the instructions of the project, before its first step.
    ProjectTrust,
}

/// An event of a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QuestionEvent {
    /// The run waits for an answer.
    Asked(Question),
    /// The question is settled, exactly once.
    Settled {
        /// The question.
        question: QuestionId,
        /// Who or what settled it, and how.
        outcome: QuestionOutcome,
    },
}

/// How a question was settled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QuestionOutcome {
    /// A person answered.
    Answered {
        /// The answer.
        answer: QuestionAnswer,
        /// The client that the answer came through.
        by: Option<Sender>,
    },
    /// Nobody answered in time, so the call is refused.
    Expired,
    /// The run ended before an answer.
    Withdrawn,
}

/// A person's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QuestionAnswer {
    /// The call is made, this time.
    AllowOnce,
    /// The call is made, and [`Question::remembered`] becomes a rule of the project.
    AllowAlways,
    /// The call is refused.
    Deny {
        /// What the agent is told.
        message: Option<String>,
    },
}

impl QuestionAnswer {
    /// The answer with this name: `once`, `always` or `deny`.
    pub fn parse(name: &str, message: Option<String>) -> Option<Self> {
        match name {
            "once" => Some(Self::AllowOnce),
            "always" => Some(Self::AllowAlways),
            "deny" => Some(Self::Deny { message }),
            _ => None,
        }
    }

    /// The name on the wire.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::AllowOnce => "once",
            Self::AllowAlways => "always",
            Self::Deny { .. } => "deny",
        }
    }
}

impl QuestionOutcome {
    /// The name on the wire: that of the answer, or `expired`, or `withdrawn`.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Answered { answer, .. } => answer.as_str(),
            Self::Expired => "expired",
            Self::Withdrawn => "withdrawn",
        }
    }

    /// Whether the call may be made.
    pub fn is_allowed(&self) -> bool {
        matches!(self, Self::Answered { answer: QuestionAnswer::AllowOnce | QuestionAnswer::AllowAlways, .. })
    }
}
