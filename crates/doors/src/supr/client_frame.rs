//! A client's frame as it is read: the members that some frame type uses. All other members are validated and dropped.
//!
//! The `type` may stand behind the payload, so [`Payload`] has the members of all types. If a member stands twice, the
//! last one counts.

use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess};

use super::MAX_ATTACHMENTS;
use crate::json::{HandlerVisitor, KnownName, Member, ValidAny, ValueHandler};

/// A client's frame.
#[derive(Debug)]
pub(super) struct ClientFrame {
    pub(super) kind: Member,
    pub(super) id: Member,
    pub(super) session: Member,
    pub(super) timestamp: Member,
    /// Empty if the frame has no payload or a null one; `None` if the payload is not an object.
    pub(super) payload: Option<Payload>,
}

/// The payload of a frame.
#[derive(Debug, Default)]
pub(super) struct Payload {
    pub(super) content: Member,
    pub(super) key: Member,
    pub(super) reasoning: Member,
    pub(super) agent: Member,
    pub(super) model: Member,
    pub(super) when_busy: Member,
    pub(super) run: Member,
    pub(super) reason: Member,
    pub(super) question: Member,
    pub(super) answer: Member,
    pub(super) message: Member,
    pub(super) attachments: Attachments,
    /// A single file, whose members stand in the payload itself.
    pub(super) file: FileMembers,
}

/// The members that describe a file.
#[derive(Debug, Default, PartialEq)]
pub(super) struct FileMembers {
    pub(super) url: Member,
    pub(super) data: Member,
    pub(super) filename: Member,
    pub(super) content_type: Member,
    pub(super) caption: Member,
}

/// The `attachments` of a payload.
#[derive(Debug, Default, PartialEq)]
pub(super) enum Attachments {
    #[default]
    Missing,
    /// The member is not an array.
    Other,
    /// `None` stands for an item that is not an object.
    Files(Vec<Option<FileMembers>>),
    /// More than [`MAX_ATTACHMENTS`] items, all of them dropped.
    TooMany,
}

/// An object of which some members are read.
pub(super) trait ReadMembers: Default {
    /// The members that are read; all others are validated and dropped.
    const NAMES: &'static [&'static str];
    /// Whether null counts as an empty object.
    const NULL_IS_EMPTY: bool;

    /// Reads the value of the member `name`, which is one of [`NAMES`](Self::NAMES).
    fn read_member<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error>;
}

/// The members of an object; `None` if the value is of another type.
pub(super) struct MaybeObject<T>(pub(super) Option<T>);

impl<'de, T: ReadMembers> Deserialize<'de> for MaybeObject<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ObjectHandler<T>(PhantomData<T>);
        impl<'de, T: ReadMembers> ValueHandler<'de> for ObjectHandler<T> {
            type Value = MaybeObject<T>;

            fn other(self) -> MaybeObject<T> {
                MaybeObject(None)
            }
            fn null(self) -> MaybeObject<T> {
                MaybeObject(T::NULL_IS_EMPTY.then(T::default))
            }
            fn object<A: MapAccess<'de>>(self, mut map: A) -> Result<MaybeObject<T>, A::Error> {
                let mut object = T::default();
                while let Some(name) = map.next_key_seed(KnownName(T::NAMES))? {
                    match name {
                        Some(name) => object.read_member(name, &mut map)?,
                        None => drop(map.next_value::<ValidAny>()?),
                    }
                }
                Ok(MaybeObject(Some(object)))
            }
        }
        deserializer.deserialize_any(HandlerVisitor(ObjectHandler(PhantomData)))
    }
}

impl Default for ClientFrame {
    fn default() -> Self {
        let (kind, id, session, timestamp) = Default::default();
        Self { kind, id, session, timestamp, payload: Some(Payload::default()) }
    }
}

impl ReadMembers for ClientFrame {
    const NAMES: &'static [&'static str] = &["type", "id", "session_id", "timestamp", "payload"];
    const NULL_IS_EMPTY: bool = true;

    fn read_member<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            "type" => self.kind = map.next_value()?,
            "id" => self.id = map.next_value()?,
            "session_id" => self.session = map.next_value()?,
            "timestamp" => self.timestamp = map.next_value()?,
            _ => MaybeObject(self.payload) = map.next_value()?,
        }
        Ok(())
    }
}

impl ReadMembers for Payload {
    const NAMES: &'static [&'static str] = &[
        "content",
        "key",
        "reasoning",
        "agent_id",
        "model",
        "when_busy",
        "run_id",
        "reason",
        "question_id",
        "answer",
        "message",
        "attachments",
        "url",
        "data",
        "filename",
        "content_type",
        "caption",
    ];
    const NULL_IS_EMPTY: bool = true;

    fn read_member<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            "content" => self.content = map.next_value()?,
            "key" => self.key = map.next_value()?,
            "reasoning" => self.reasoning = map.next_value()?,
            "agent_id" => self.agent = map.next_value()?,
            "model" => self.model = map.next_value()?,
            "when_busy" => self.when_busy = map.next_value()?,
            "run_id" => self.run = map.next_value()?,
            "reason" => self.reason = map.next_value()?,
            "question_id" => self.question = map.next_value()?,
            "answer" => self.answer = map.next_value()?,
            "message" => self.message = map.next_value()?,
            "attachments" => self.attachments = map.next_value()?,
            _ => self.file.read_member(name, map)?,
        }
        Ok(())
    }
}

impl ReadMembers for FileMembers {
    const NAMES: &'static [&'static str] = &["url", "data", "filename", "content_type", "caption"];
    const NULL_IS_EMPTY: bool = false;

    fn read_member<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            "url" => self.url = map.next_value()?,
            "data" => self.data = map.next_value()?,
            "filename" => self.filename = map.next_value()?,
            "content_type" => self.content_type = map.next_value()?,
            _ => self.caption = map.next_value()?,
        }
        Ok(())
    }
}

impl<'de> Deserialize<'de> for Attachments {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AttachmentsHandler;
        impl<'de> ValueHandler<'de> for AttachmentsHandler {
            type Value = Attachments;

            fn other(self) -> Attachments {
                Attachments::Other
            }
            fn array<A: SeqAccess<'de>>(self, mut items: A) -> Result<Attachments, A::Error> {
                let mut files = Vec::new();
                while let Some(MaybeObject(file)) = items.next_element()? {
                    if files.len() == MAX_ATTACHMENTS {
                        drop(files);
                        while items.next_element::<ValidAny>()?.is_some() {}
                        return Ok(Attachments::TooMany);
                    }
                    files.push(file);
                }
                Ok(Attachments::Files(files))
            }
        }
        deserializer.deserialize_any(HandlerVisitor(AttachmentsHandler))
    }
}
