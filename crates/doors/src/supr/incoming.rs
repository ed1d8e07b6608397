//! A client's frame as it is read: the members that some type uses, and nothing of all others.
//!
//! The type may stand behind the payload, so the payload has the members of all types. Of a member that comes twice the
//! last one counts.

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess};

use super::MAX_ATTACHMENTS;
use crate::json::{Checked, Lenient, LenientVisitor, Member};

/// The members of a frame; `None` if it is neither an object nor null.
pub(super) struct MaybeFrame(pub(super) Option<Frame>);

/// The members of a frame.
#[derive(Debug, Default)]
pub(super) struct Frame {
    pub(super) kind: Member,
    pub(super) id: Member,
    pub(super) session: Member,
    pub(super) timestamp: Member,
    /// Empty if there is none or it is null; `None` if it is no object.
    pub(super) payload: Option<Payload>,
}

/// The members of a payload.
#[derive(Debug, Default)]
pub(super) struct Payload {
    pub(super) content: Member,
    pub(super) key: Member,
    pub(super) reasoning: Member,
    pub(super) agent: Member,
    pub(super) model: Member,
    pub(super) run: Member,
    pub(super) reason: Member,
    pub(super) attachments: Attachments,
    /// Of a single file.
    pub(super) file: FileMembers,
}

/// The members of a file.
#[derive(Debug, Default, PartialEq)]
pub(super) struct FileMembers {
    pub(super) url: Member,
    pub(super) data: Member,
    pub(super) filename: Member,
    pub(super) content_type: Member,
    pub(super) caption: Member,
}

/// The files of a payload.
#[derive(Debug, Default, PartialEq)]
pub(super) enum Attachments {
    #[default]
    Missing,
    /// They are no array.
    Other,
    /// None in the place of what is no object.
    Files(Vec<Option<FileMembers>>),
    /// More than [`MAX_ATTACHMENTS`], of which none is kept.
    TooMany,
}

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "snake_case")]
enum FrameField {
    Type,
    Id,
    SessionId,
    Timestamp,
    Payload,
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "snake_case")]
enum PayloadField {
    Content,
    Key,
    Reasoning,
    AgentId,
    Model,
    RunId,
    Reason,
    Attachments,
    Url,
    Data,
    Filename,
    ContentType,
    Caption,
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "snake_case")]
enum FileField {
    Url,
    Data,
    Filename,
    ContentType,
    Caption,
    #[serde(other)]
    Other,
}

impl<'de> Deserialize<'de> for MaybeFrame {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AnyFrame;
        impl<'de> Lenient<'de> for AnyFrame {
            type Value = MaybeFrame;

            fn other(self) -> MaybeFrame {
                MaybeFrame(None)
            }
            fn null(self) -> MaybeFrame {
                MaybeFrame(Some(Frame::empty()))
            }
            fn object<A: MapAccess<'de>>(self, map: A) -> Result<MaybeFrame, A::Error> {
                Frame::read(map).map(|frame| MaybeFrame(Some(frame)))
            }
        }
        deserializer.deserialize_any(LenientVisitor(AnyFrame))
    }
}

impl Frame {
    fn empty() -> Self {
        Self { payload: Some(Payload::default()), ..Self::default() }
    }

    fn read<'de, A: MapAccess<'de>>(mut map: A) -> Result<Self, A::Error> {
        let mut frame = Self::empty();
        while let Some(field) = map.next_key()? {
            match field {
                FrameField::Type => frame.kind = map.next_value()?,
                FrameField::Id => frame.id = map.next_value()?,
                FrameField::SessionId => frame.session = map.next_value()?,
                FrameField::Timestamp => frame.timestamp = map.next_value()?,
                FrameField::Payload => {
                    let MaybePayload(payload) = map.next_value()?;
                    frame.payload = payload;
                }
                FrameField::Other => {
                    map.next_value::<Checked>()?;
                }
            }
        }
        Ok(frame)
    }
}

struct MaybePayload(Option<Payload>);

impl<'de> Deserialize<'de> for MaybePayload {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AnyPayload;
        impl<'de> Lenient<'de> for AnyPayload {
            type Value = MaybePayload;

            fn other(self) -> MaybePayload {
                MaybePayload(None)
            }
            fn null(self) -> MaybePayload {
                MaybePayload(Some(Payload::default()))
            }
            fn object<A: MapAccess<'de>>(self, map: A) -> Result<MaybePayload, A::Error> {
                Payload::read(map).map(|payload| MaybePayload(Some(payload)))
            }
        }
        deserializer.deserialize_any(LenientVisitor(AnyPayload))
    }
}

impl Payload {
    fn read<'de, A: MapAccess<'de>>(mut map: A) -> Result<Self, A::Error> {
        let mut payload = Self::default();
        while let Some(field) = map.next_key()? {
            let member = match field {
                PayloadField::Content => &mut payload.content,
                PayloadField::Key => &mut payload.key,
                PayloadField::Reasoning => &mut payload.reasoning,
                PayloadField::AgentId => &mut payload.agent,
                PayloadField::Model => &mut payload.model,
                PayloadField::RunId => &mut payload.run,
                PayloadField::Reason => &mut payload.reason,
                PayloadField::Url => &mut payload.file.url,
                PayloadField::Data => &mut payload.file.data,
                PayloadField::Filename => &mut payload.file.filename,
                PayloadField::ContentType => &mut payload.file.content_type,
                PayloadField::Caption => &mut payload.file.caption,
                PayloadField::Attachments => {
                    payload.attachments = map.next_value()?;
                    continue;
                }
                PayloadField::Other => {
                    map.next_value::<Checked>()?;
                    continue;
                }
            };
            *member = map.next_value()?;
        }
        Ok(payload)
    }
}

impl<'de> Deserialize<'de> for Attachments {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AnyAttachments;
        impl<'de> Lenient<'de> for AnyAttachments {
            type Value = Attachments;

            fn other(self) -> Attachments {
                Attachments::Other
            }
            fn array<A: SeqAccess<'de>>(self, mut items: A) -> Result<Attachments, A::Error> {
                let mut files = Vec::new();
                while let Some(MaybeFile(file)) = items.next_element()? {
                    if files.len() == MAX_ATTACHMENTS {
                        drop(files);
                        while items.next_element::<Checked>()?.is_some() {}
                        return Ok(Attachments::TooMany);
                    }
                    files.push(file);
                }
                Ok(Attachments::Files(files))
            }
        }
        deserializer.deserialize_any(LenientVisitor(AnyAttachments))
    }
}

struct MaybeFile(Option<FileMembers>);

impl<'de> Deserialize<'de> for MaybeFile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AnyFile;
        impl<'de> Lenient<'de> for AnyFile {
            type Value = MaybeFile;

            fn other(self) -> MaybeFile {
                MaybeFile(None)
            }
            fn object<A: MapAccess<'de>>(self, mut map: A) -> Result<MaybeFile, A::Error> {
                let mut file = FileMembers::default();
                while let Some(field) = map.next_key()? {
                    let member = match field {
                        FileField::Url => &mut file.url,
                        FileField::Data => &mut file.data,
                        FileField::Filename => &mut file.filename,
                        FileField::ContentType => &mut file.content_type,
                        FileField::Caption => &mut file.caption,
                        FileField::Other => {
                            map.next_value::<Checked>()?;
                            continue;
                        }
                    };
                    *member = map.next_value()?;
                }
                Ok(MaybeFile(Some(file)))
            }
        }
        deserializer.deserialize_any(LenientVisitor(AnyFile))
    }
}
