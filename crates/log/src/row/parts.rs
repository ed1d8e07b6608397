//! The stored form of the parts of events: choices, inputs, messages, failures, usage.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fmt;
use std::ops::Deref;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use parlor_vocab::{
    AgentChoice, AgentId, Failure, ForkOrigin, Media, MediaId, Message, MessageId, Reasoning, Role, Sender,
    SessionId, Usage, UserInput,
};
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::RowError;

/// Text that is borrowed from the event to encode, or from the row to decode where it has no escapes.
#[derive(Serialize)]
#[serde(transparent)]
pub(super) struct Text<'a>(Cow<'a, str>);

impl Text<'_> {
    pub(super) fn into_owned(self) -> String {
        self.0.into_owned()
    }
}

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

/// Like the implementation for `Cow<str>`, but borrows without `#[serde(borrow)]` at each field.
impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Borrow;

        impl<'de> Visitor<'de> for Borrow {
            type Value = Cow<'de, str>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("text")
            }

            fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Cow::Borrowed(text))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Cow::Owned(text.to_owned()))
            }
        }

        deserializer.deserialize_str(Borrow).map(Text)
    }
}

pub(super) fn text(of: &str) -> Text<'_> {
    Text(Cow::Borrowed(of))
}

pub(super) fn optional_text(of: &Option<String>) -> Option<Text<'_>> {
    of.as_deref().map(text)
}

#[derive(Serialize, Deserialize, Default)]
#[serde(default)]
pub(super) struct ChoiceRow<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(borrow)]
    agent: Option<Text<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<Text<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning: Option<ReasoningRow>,
}

impl ChoiceRow<'_> {
    pub(super) fn is_empty(&self) -> bool {
        self.agent.is_none() && self.model.is_none() && self.reasoning.is_none()
    }

    pub(super) fn into_choice(self) -> Result<AgentChoice, RowError> {
        Ok(AgentChoice {
            agent: self.agent.map(|id| AgentId::parse(&id)).transpose()?,
            model: self.model.map(Text::into_owned),
            reasoning: self.reasoning.map(ReasoningRow::into_reasoning),
        })
    }
}

impl<'a> From<&'a AgentChoice> for ChoiceRow<'a> {
    fn from(choice: &'a AgentChoice) -> Self {
        Self {
            agent: choice.agent.as_ref().map(|id| text(id.as_str())),
            model: optional_text(&choice.model),
            reasoning: choice.reasoning.map(ReasoningRow::from),
        }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ReasoningRow {
    Off,
    Low,
    Medium,
    High,
    Xhigh,
    Adaptive,
}

impl ReasoningRow {
    fn into_reasoning(self) -> Reasoning {
        match self {
            Self::Off => Reasoning::Off,
            Self::Low => Reasoning::Low,
            Self::Medium => Reasoning::Medium,
            Self::High => Reasoning::High,
            Self::Xhigh => Reasoning::Xhigh,
            Self::Adaptive => Reasoning::Adaptive,
        }
    }
}

impl From<Reasoning> for ReasoningRow {
    fn from(reasoning: Reasoning) -> Self {
        match reasoning {
            Reasoning::Off => Self::Off,
            Reasoning::Low => Self::Low,
            Reasoning::Medium => Self::Medium,
            Reasoning::High => Self::High,
            Reasoning::Xhigh => Self::Xhigh,
            Reasoning::Adaptive => Self::Adaptive,
        }
    }
}

/// A path: as text, or as hexadecimal digits if it is not UTF-8.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum FolderRow<'a> {
    #[serde(borrow)]
    Text(Text<'a>),
    Bytes {
        hex: String,
    },
}

impl FolderRow<'_> {
    pub(super) fn into_path(self) -> Result<PathBuf, RowError> {
        match self {
            Self::Text(text) => Ok(text.into_owned().into()),
            Self::Bytes { hex } => {
                let digit = |byte: u8| (byte as char).to_digit(16).map(|digit| digit as u8);
                let pairs = hex.as_bytes().chunks(2).map(|pair| match pair {
                    [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
                    _ => None,
                });
                let bytes: Option<Vec<u8>> = pairs.collect();
                bytes.map(|bytes| std::ffi::OsString::from_vec(bytes).into()).ok_or(RowError::Folder)
            }
        }
    }
}

impl<'a> From<&'a Path> for FolderRow<'a> {
    fn from(path: &'a Path) -> Self {
        let path: &OsStr = path.as_os_str();
        match path.to_str() {
            Some(path) => Self::Text(text(path)),
            None => Self::Bytes { hex: path.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect() },
        }
    }
}

#[derive(Serialize, Deserialize)]
pub(super) struct ForkRow<'a> {
    #[serde(borrow)]
    session: Text<'a>,
    message: Text<'a>,
}

impl ForkRow<'_> {
    pub(super) fn into_fork(self) -> Result<ForkOrigin, RowError> {
        Ok(ForkOrigin {
            session: SessionId::parse(&self.session)?,
            message: MessageId::parse(&self.message)?,
        })
    }
}

impl<'a> From<&'a ForkOrigin> for ForkRow<'a> {
    fn from(fork: &'a ForkOrigin) -> Self {
        Self { session: text(fork.session.as_str()), message: text(fork.message.as_str()) }
    }
}

#[derive(Serialize, Deserialize)]
pub(super) struct InputRow<'a> {
    #[serde(borrow)]
    text: Text<'a>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    media: Vec<MediaRow<'a>>,
    #[serde(default, skip_serializing_if = "ChoiceRow::is_empty")]
    choice: ChoiceRow<'a>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<Text<'a>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    traceparent: Option<Text<'a>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    by: Option<SenderRow<'a>>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    can_answer: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    attended: bool,
}

#[derive(Serialize, Deserialize)]
pub(super) struct SenderRow<'a> {
    #[serde(borrow)]
    door: Text<'a>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    client: Option<Text<'a>>,
}

impl SenderRow<'_> {
    pub(super) fn into_sender(self) -> Sender {
        Sender { door: self.door.into_owned(), client: self.client.map(Text::into_owned) }
    }
}

impl<'a> From<&'a Sender> for SenderRow<'a> {
    fn from(by: &'a Sender) -> Self {
        Self { door: text(&by.door), client: optional_text(&by.client) }
    }
}

impl InputRow<'_> {
    pub(super) fn into_input(self) -> Result<UserInput, RowError> {
        Ok(UserInput {
            text: self.text.into_owned(),
            media: all_media(self.media)?,
            choice: self.choice.into_choice()?,
            key: self.key.map(Text::into_owned),
            traceparent: self.traceparent.map(Text::into_owned),
            by: self.by.map(SenderRow::into_sender),
            can_answer: self.can_answer,
            is_attended: self.attended,
        })
    }
}

impl<'a> From<&'a UserInput> for InputRow<'a> {
    fn from(input: &'a UserInput) -> Self {
        Self {
            text: text(&input.text),
            media: input.media.iter().map(MediaRow::from).collect(),
            choice: ChoiceRow::from(&input.choice),
            key: optional_text(&input.key),
            traceparent: optional_text(&input.traceparent),
            by: input.by.as_ref().map(SenderRow::from),
            can_answer: input.can_answer,
            attended: input.is_attended,
        }
    }
}

#[derive(Serialize, Deserialize)]
pub(super) struct MediaRow<'a> {
    #[serde(borrow)]
    id: Text<'a>,
    name: Text<'a>,
    mime: Text<'a>,
    size: u64,
}

pub(super) fn all_media(rows: Vec<MediaRow<'_>>) -> Result<Vec<Media>, RowError> {
    let one = |row: MediaRow<'_>| {
        let id = MediaId::parse(&row.id)?;
        Ok(Media { id, name: row.name.into_owned(), mime: row.mime.into_owned(), size: row.size })
    };
    rows.into_iter().map(one).collect()
}

impl<'a> From<&'a Media> for MediaRow<'a> {
    fn from(media: &'a Media) -> Self {
        Self {
            id: text(media.id.as_str()),
            name: text(&media.name),
            mime: text(&media.mime),
            size: media.size,
        }
    }
}

#[derive(Serialize, Deserialize)]
pub(super) struct MessageRow<'a> {
    #[serde(borrow)]
    id: Text<'a>,
    role: RoleRow,
    text: Text<'a>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    media: Vec<MediaRow<'a>>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum RoleRow {
    User,
    Assistant,
    System,
}

impl MessageRow<'_> {
    pub(super) fn into_message(self) -> Result<Message, RowError> {
        let role = match self.role {
            RoleRow::User => Role::User,
            RoleRow::Assistant => Role::Assistant,
            RoleRow::System => Role::System,
        };
        let (id, media) = (MessageId::parse(&self.id)?, all_media(self.media)?);
        Ok(Message { id, role, text: self.text.into_owned(), media })
    }
}

impl<'a> From<&'a Message> for MessageRow<'a> {
    fn from(message: &'a Message) -> Self {
        let role = match message.role {
            Role::User => RoleRow::User,
            Role::Assistant => RoleRow::Assistant,
            Role::System => RoleRow::System,
        };
        let media = message.media.iter().map(MediaRow::from).collect();
        Self { id: text(message.id.as_str()), role, text: text(&message.text), media }
    }
}

#[derive(Serialize, Deserialize)]
pub(super) struct FailureRow<'a> {
    #[serde(borrow)]
    code: Text<'a>,
    message: Text<'a>,
    retryable: bool,
}

impl FailureRow<'_> {
    pub(super) fn into_failure(self) -> Failure {
        let Self { code, message, retryable } = self;
        Failure { code: (*code).into(), message: message.into_owned(), retryable }
    }
}

impl<'a> From<&'a Failure> for FailureRow<'a> {
    fn from(failure: &'a Failure) -> Self {
        Self {
            code: text(failure.code.as_str()),
            message: text(&failure.message),
            retryable: failure.retryable,
        }
    }
}

#[derive(Serialize, Deserialize)]
pub(super) struct UsageRow {
    input_tokens: u64,
    output_tokens: u64,
    cache_read_tokens: u64,
    cache_write_tokens: u64,
    cost_micros: u64,
}

impl UsageRow {
    pub(super) fn into_usage(self) -> Usage {
        let Self { input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, cost_micros } = self;
        Usage { input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, cost_micros }
    }
}

impl From<&Usage> for UsageRow {
    fn from(usage: &Usage) -> Self {
        let Usage { input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, cost_micros } =
            *usage;
        Self { input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, cost_micros }
    }
}
