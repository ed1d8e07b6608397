//! The written form of the types in [`parlor_vocab`] that frames carry.
//!
//! Each `…Form` describes a type of `parlor_vocab` to serde; names are in snake case. Members that a reader does not know
//! are ignored, and optional ones may be missing, so that a later version can add some.

use parlor_vocab::{
    AgentChoice, AgentId, ClosingPart, Media, MediaId, Message, MessageId, PolicyMode, QuestionAnswer,
    QuestionId, QueuedInput, Reasoning, Role, RunId, Sender, SessionCommand, SessionId, SessionRefusal,
    SessionReply, StepId, StreamKind, ToolCallId, UserInput, WhenBusy,
};
use serde::{Deserialize, Serialize};

/// A [`SessionCommand`] on the wire.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WireCommand(#[serde(with = "CommandForm")] pub SessionCommand);

/// A borrowed [`SessionCommand`], written like a [`WireCommand`].
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(transparent)]
pub struct BorrowedCommand<'a>(#[serde(with = "CommandForm")] pub &'a SessionCommand);

/// A [`SessionReply`] on the wire.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WireReply(#[serde(with = "ReplyForm")] pub SessionReply);

/// A [`SessionRefusal`] on the wire.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WireRefusal(#[serde(with = "RefusalForm")] pub SessionRefusal);

/// A [`StreamKind`] on the wire.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WireStream(#[serde(with = "StreamForm")] pub StreamKind);

#[derive(Serialize, Deserialize)]
#[serde(remote = "SessionCommand", rename_all = "snake_case")]
enum CommandForm {
    Send {
        #[serde(with = "InputForm")]
        input: UserInput,
        #[serde(with = "WhenBusyForm")]
        when_busy: WhenBusy,
    },
    Stop {
        #[serde(with = "optional_id", default, skip_serializing_if = "Option::is_none")]
        run: Option<RunId>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    ClearQueue,
    Unqueue(#[serde(with = "id")] RunId),
    ClearHistory,
    Compact {
        keep: usize,
    },
    Rename {
        title: String,
    },
    ChooseAgent(#[serde(with = "ChoiceForm")] AgentChoice),
    ChooseMode(#[serde(with = "ModeForm")] PolicyMode),
    AnswerQuestion {
        #[serde(with = "id")]
        question: QuestionId,
        #[serde(with = "AnswerForm")]
        answer: QuestionAnswer,
        #[serde(with = "optional_sender", default, skip_serializing_if = "Option::is_none")]
        by: Option<Sender>,
    },
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "PolicyMode", rename_all = "snake_case")]
enum ModeForm {
    ReadOnly,
    Workspace,
    Full,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "QuestionAnswer", rename_all = "snake_case")]
enum AnswerForm {
    AllowOnce,
    AllowAlways,
    Deny {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message: Option<String>,
    },
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "WhenBusy", rename_all = "snake_case")]
enum WhenBusyForm {
    Refuse,
    Enqueue,
    Steer,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "UserInput")]
struct InputForm {
    text: String,
    #[serde(with = "media_list", default, skip_serializing_if = "Vec::is_empty")]
    media: Vec<Media>,
    #[serde(with = "ChoiceForm", default)]
    choice: AgentChoice,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    traceparent: Option<String>,
    #[serde(with = "optional_sender", default, skip_serializing_if = "Option::is_none")]
    by: Option<Sender>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    can_answer: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_attended: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Sender")]
struct SenderForm {
    door: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    client: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "AgentChoice")]
struct ChoiceForm {
    #[serde(with = "optional_id", default, skip_serializing_if = "Option::is_none")]
    agent: Option<AgentId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    #[serde(with = "optional_reasoning", default, skip_serializing_if = "Option::is_none")]
    reasoning: Option<Reasoning>,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Reasoning", rename_all = "snake_case")]
enum ReasoningForm {
    Off,
    Low,
    Medium,
    High,
    Xhigh,
    Adaptive,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Media")]
struct MediaForm {
    #[serde(with = "id")]
    id: MediaId,
    name: String,
    mime: String,
    size: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "SessionReply", rename_all = "snake_case")]
enum ReplyForm {
    Started(#[serde(with = "id")] RunId),
    Queued {
        #[serde(with = "id")]
        run: RunId,
        waiting: usize,
    },
    Steered(#[serde(with = "id")] RunId),
    Stopping(#[serde(with = "id")] RunId),
    Unqueued(#[serde(with = "input_list")] Vec<QueuedInput>),
    Compacted(#[serde(with = "MessageForm")] Message),
    Done,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "QueuedInput")]
struct QueuedInputForm {
    #[serde(with = "id")]
    run: RunId,
    #[serde(with = "InputForm")]
    input: UserInput,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Message")]
struct MessageForm {
    #[serde(with = "id")]
    id: MessageId,
    #[serde(with = "RoleForm")]
    role: Role,
    text: String,
    #[serde(with = "media_list", default, skip_serializing_if = "Vec::is_empty")]
    media: Vec<Media>,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Role", rename_all = "snake_case")]
enum RoleForm {
    User,
    Assistant,
    System,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "StreamKind", rename_all = "snake_case")]
enum StreamForm {
    Message(#[serde(with = "id")] MessageId),
    Reasoning(#[serde(with = "id")] StepId),
    ToolOutput(#[serde(with = "id")] ToolCallId),
    ToolInput {
        #[serde(with = "id")]
        call: ToolCallId,
        tool: String,
    },
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "SessionRefusal", rename_all = "snake_case")]
enum RefusalForm {
    UnknownSession(#[serde(with = "id")] SessionId),
    SessionExists(#[serde(with = "id")] SessionId),
    SessionHeld {
        #[serde(with = "id")]
        session: SessionId,
        holder: String,
    },
    NoNode {
        #[serde(with = "id")]
        session: SessionId,
        workspace: String,
    },
    TooManySessions {
        limit: usize,
    },
    Busy {
        #[serde(with = "id")]
        active: RunId,
    },
    QueueFull {
        limit: usize,
    },
    NoActiveRun,
    WrongRun {
        #[serde(with = "id")]
        asked: RunId,
        #[serde(with = "id")]
        active: RunId,
    },
    TooManyRuns {
        limit: usize,
    },
    Compacting,
    BackgroundProcesses,
    NotCompacted {
        reason: String,
    },
    UnknownMessage(#[serde(with = "id")] MessageId),
    UnknownQuestion(#[serde(with = "id")] QuestionId),
    QuestionSettled {
        #[serde(with = "id")]
        question: QuestionId,
        outcome: String,
    },
    InvalidAnswer {
        reason: String,
    },
    UnknownAgent(#[serde(with = "id")] AgentId),
    TooManyRequests {
        limit: usize,
    },
    TooManyQueuedBytes {
        limit: usize,
    },
    KeyTooLong {
        limit: usize,
    },
    TitleTooLong {
        limit: usize,
    },
    TitleBlank,
    Closing {
        #[serde(with = "ClosingForm")]
        part: ClosingPart,
    },
    TooManyWatched {
        limit: usize,
    },
    MediaUnavailable {
        reason: String,
    },
    LogUnavailable {
        reason: String,
    },
    RequestTooLong {
        limit: usize,
    },
    OutcomeUnknown(#[serde(with = "id")] SessionId),
    OwnerSilent {
        #[serde(with = "id")]
        session: SessionId,
        owner: String,
    },
    Internal,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "ClosingPart", rename_all = "snake_case")]
enum ClosingForm {
    Connection,
    Session(#[serde(with = "id")] SessionId),
    Program,
}

/// Ids as text.
pub(super) mod id {
    use std::fmt::Display;
    use std::str::FromStr;

    use parlor_vocab::IdError;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(in crate::peer) fn serialize<T: Display, S: Serializer>(
        id: &T,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_str(id)
    }

    pub(in crate::peer) fn deserialize<'de, T, D>(deserializer: D) -> Result<T, D::Error>
    where
        T: FromStr<Err = IdError>,
        D: Deserializer<'de>,
    {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

/// Ids that may be missing.
mod optional_id {
    use std::fmt::Display;
    use std::str::FromStr;

    use parlor_vocab::IdError;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<T, S>(id: &Option<T>, serializer: S) -> Result<S::Ok, S::Error>
    where
        T: Display,
        S: Serializer,
    {
        id.as_ref().map(ToString::to_string).serialize(serializer)
    }

    pub(super) fn deserialize<'de, T, D>(deserializer: D) -> Result<Option<T>, D::Error>
    where
        T: FromStr<Err = IdError>,
        D: Deserializer<'de>,
    {
        let text = Option::<String>::deserialize(deserializer)?;
        text.map(|text| text.parse().map_err(D::Error::custom)).transpose()
    }
}

/// Defines a module that reads and writes a list by the form of its items.
macro_rules! list {
    ($(#[$doc:meta])* $module:ident, $item:ident, $form:literal) => {
        $(#[$doc])*
        mod $module {
            use serde::{Deserialize, Deserializer, Serialize, Serializer};

            use super::*;

            #[derive(Serialize)]
            struct Borrowed<'a>(#[serde(with = $form)] &'a $item);

            #[derive(Deserialize)]
            struct Owned(#[serde(with = $form)] $item);

            pub(super) fn serialize<S: Serializer>(
                items: &[$item],
                serializer: S,
            ) -> Result<S::Ok, S::Error> {
                items.iter().map(Borrowed).collect::<Vec<_>>().serialize(serializer)
            }

            pub(super) fn deserialize<'de, D: Deserializer<'de>>(
                deserializer: D,
            ) -> Result<Vec<$item>, D::Error> {
                let items = Vec::<Owned>::deserialize(deserializer)?;
                Ok(items.into_iter().map(|Owned(item)| item).collect())
            }
        }
    };
}

list!(
    /// Attached files.
    media_list, Media, "MediaForm"
);

list!(
    /// Inputs that wait.
    input_list, QueuedInput, "QueuedInputForm"
);

/// A module that reads and writes a value that may be missing, in the form of the value.
macro_rules! optional {
    ($(#[$doc:meta])* $module:ident, $item:ident, $form:literal) => {
        $(#[$doc])*
        mod $module {
            use serde::{Deserialize, Deserializer, Serialize, Serializer};

            use super::*;

            #[derive(Serialize)]
            struct Borrowed<'a>(#[serde(with = $form)] &'a $item);

            #[derive(Deserialize)]
            struct Owned(#[serde(with = $form)] $item);

            pub(super) fn serialize<S: Serializer>(
                item: &Option<$item>,
                serializer: S,
            ) -> Result<S::Ok, S::Error> {
                item.as_ref().map(Borrowed).serialize(serializer)
            }

            pub(super) fn deserialize<'de, D: Deserializer<'de>>(
                deserializer: D,
            ) -> Result<Option<$item>, D::Error> {
                Ok(Option::<Owned>::deserialize(deserializer)?.map(|Owned(item)| item))
            }
        }
    };
}

optional!(
    /// A reasoning effort that may be missing.
    optional_reasoning, Reasoning, "ReasoningForm"
);

optional!(
    /// The sender of an input, if it is known.
    optional_sender, Sender, "SenderForm"
);

#[cfg(test)]
mod tests;
