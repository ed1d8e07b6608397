//! The messages in a saved session: content as a text or as blocks, in the form of Anthropic's API.
//!
//! A message or block of an unknown form is skipped and counted. Sequences are read one element at a time, so that the memory
//! stays in proportion to the size of the file.

use std::fmt;

use parlor_vocab::{Media, NamedFile};
use serde::Deserialize;
use serde::de::{Deserializer, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// A message of a saved session.
#[derive(Debug)]
pub(super) struct SavedMessage {
    /// Whether the user wrote it; otherwise the agent did.
    pub(super) is_user: bool,
    pub(super) parts: Vec<Part>,
}

/// A part of a message.
#[derive(Debug, PartialEq)]
pub(super) enum Part {
    Text(String),
    /// The model's reasoning.
    Thinking(String),
    /// A file that is not stored yet.
    File(NamedFile),
    /// A stored file.
    Media(Media),
    /// A tool call of the agent. The input is JSON text.
    Call {
        id: String,
        tool: String,
        input: String,
    },
    /// The result of a tool call.
    CallResult {
        id: String,
        output: String,
        is_error: bool,
    },
}

/// The messages that could be read.
#[derive(Debug, Default)]
pub(super) struct SavedMessages {
    pub(super) messages: Vec<SavedMessage>,
    /// How many messages and blocks could not be read.
    pub(super) skipped: usize,
}

impl SavedMessages {
    /// Adds a message, if it has a known form.
    pub(super) fn push(&mut self, raw: &RawValue) {
        #[derive(Deserialize)]
        struct Wire {
            role: String,
            content: Content,
        }
        let Ok(Wire { role, content }) = serde_json::from_str(raw.get()) else {
            // An empty message keeps the numbers of the messages behind it.
            self.skipped += 1;
            return self.messages.push(SavedMessage { is_user: true, parts: Vec::new() });
        };
        self.skipped += content.skipped;
        let is_user = role == "user";
        if !is_user && role != "assistant" {
            self.skipped += 1;
        }
        let parts = if is_user || role == "assistant" { content.parts } else { Vec::new() };
        self.messages.push(SavedMessage { is_user, parts });
    }
}

impl<'de> Deserialize<'de> for SavedMessages {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Read;
        impl<'de> Visitor<'de> for Read {
            type Value = SavedMessages;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array of messages")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<SavedMessages, A::Error> {
                let mut messages = SavedMessages::default();
                while let Some(raw) = elements.next_element::<&RawValue>()? {
                    messages.push(raw);
                }
                Ok(messages)
            }
        }
        deserializer.deserialize_seq(Read)
    }
}

#[derive(Default)]
struct Content {
    parts: Vec<Part>,
    skipped: usize,
}

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Read;
        impl<'de> Visitor<'de> for Read {
            type Value = Content;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text or an array of blocks")
            }

            fn visit_str<E>(self, text: &str) -> Result<Content, E> {
                Ok(Content { parts: vec![Part::Text(text.to_owned())], skipped: 0 })
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Content, A::Error> {
                let mut content = Content::default();
                while let Some(raw) = elements.next_element::<&RawValue>()? {
                    match part(raw) {
                        Some(part) => content.parts.push(part),
                        None => content.skipped += 1,
                    }
                }
                Ok(content)
            }
        }
        deserializer.deserialize_any(Read)
    }
}

/// All members that some block has.
#[derive(Deserialize)]
struct Block {
    #[serde(rename = "type")]
    kind: String,
    text: Option<String>,
    thinking: Option<String>,
    id: Option<String>,
    name: Option<String>,
    input: Option<Box<RawValue>>,
    tool_use_id: Option<String>,
    content: Option<Content>,
    is_error: Option<bool>,
    title: Option<String>,
    source: Option<Source>,
}

/// The content of an image or a document.
#[derive(Deserialize)]
struct Source {
    #[serde(rename = "type")]
    kind: String,
    data: String,
}

fn part(raw: &RawValue) -> Option<Part> {
    let block: Block = serde_json::from_str(raw.get()).ok()?;
    match block.kind.as_str() {
        "text" => Some(Part::Text(block.text?)),
        "thinking" => Some(Part::Thinking(block.thinking?)),
        "tool_use" => {
            let input = block.input.as_ref().map_or("{}", |input| input.get()).to_owned();
            Some(Part::Call { id: block.id?, tool: block.name?, input })
        }
        "tool_result" => {
            let output = block.content.map(text_of).unwrap_or_default();
            let is_error = block.is_error.unwrap_or(false);
            Some(Part::CallResult { id: block.tool_use_id?, output, is_error })
        }
        "image" | "document" => {
            let Source { kind, data } = block.source?;
            let bytes = match kind.as_str() {
                "text" => data.into_bytes(),
                "base64" => base64_simd::STANDARD.decode_to_vec(data).ok()?,
                _ => return None,
            };
            let name = block.title.unwrap_or_else(|| block.kind.clone());
            let is_storable = !bytes.is_empty();
            is_storable.then_some(Part::File(NamedFile { name, bytes }))
        }
        _ => None,
    }
}

/// The texts of a tool's result. Other parts, such as images, are named.
fn text_of(content: Content) -> String {
    let text = |part: Part| match part {
        Part::Text(text) => Some(text),
        Part::File(file) => Some(format!("[{}]", file.name)),
        Part::Thinking(_) | Part::Media(_) | Part::Call { .. } | Part::CallResult { .. } => None,
    };
    content.parts.into_iter().filter_map(text).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> SavedMessages {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn blocks_of_all_kinds_are_read() {
        let read = read(
            r#"[{"role":"user","content":"hi"},
            {"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"s"},{"type":"text","text":"look"},
              {"type":"tool_use","id":"t","name":"bash","input":{"command": "ls"}}]},
            {"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":[{"type":"text","text":"a"},
              {"type":"text","text":"b"}],"is_error":true},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"aGk="}},
              {"type":"document","title":"n.txt","source":{"type":"text","media_type":"text/plain","data":"note"}}]}]"#,
        );
        assert_eq!(read.skipped, 0);
        let file =
            |name: &str, bytes: &[u8]| Part::File(NamedFile { name: name.to_owned(), bytes: bytes.to_vec() });
        let (id, text) = ("t".to_owned(), |text: &str| text.to_owned());
        let parts: Vec<Vec<Part>> = read.messages.into_iter().map(|message| message.parts).collect();
        let expected = [
            vec![Part::Text(text("hi"))],
            vec![
                Part::Thinking(text("hm")),
                Part::Text(text("look")),
                Part::Call { id: id.clone(), tool: text("bash"), input: text("{\"command\": \"ls\"}") },
            ],
            vec![
                Part::CallResult { id, output: text("a\nb"), is_error: true },
                file("image", b"hi"),
                file("n.txt", b"note"),
            ],
        ];
        assert_eq!(parts, expected);
    }

    #[test]
    fn what_has_no_known_form_is_skipped_and_counted() {
        let read = read(
            r#"[7,{"role":7,"content":"x"},{"role":"user"},{"role":"system","content":"x"},{"role":"user","content":[3,
            {"type":"text"},{"type":"strange"},{"type":"image","source":{"type":"base64","data":"%"}},{"type":"text","text":"kept"}]}]"#,
        );
        assert_eq!((read.messages.len(), read.skipped), (5, 8));
        assert_eq!(read.messages[4].parts, [Part::Text("kept".to_owned())]);
    }
}
