//! Decodes a line into a command, or says why it is none: the id and the text of the `error` frame for a bad line.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, SeqAccess, Visitor};

use super::wire::{RpcAttachment, RpcCommand};
use super::{MAX_ATTACHMENTS, attachment};
use crate::json::{ValidAny, error_text};

/// Why a line is not a command.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FrameError {
    /// The id of the command, if the line has one. The parent waits for an answer with this id.
    pub(super) id: Option<String>,
    /// The parser's error text.
    pub(super) message: String,
}

/// Decodes a line; `None` if the line is blank.
pub(super) fn command(line: &[u8]) -> Result<Option<RpcCommand>, FrameError> {
    // JSON's own white space. A line with any other white space is an error.
    let is_blank = |byte: &&u8| matches!(**byte, b' ' | b'\t' | b'\r');
    let Some(first) = line.iter().find(|byte| !is_blank(byte)) else { return Ok(None) };
    // A derived decoder would also accept an array, by position.
    if *first == b'[' {
        return Err(FrameError {
            id: None,
            message: "invalid type: sequence, expected a JSON object".to_owned(),
        });
    }
    // The decoders below do not validate the members that they skip. A line that is not valid JSON has no id.
    if let Err(error) = serde_json::from_slice::<ValidAny>(line) {
        return Err(FrameError { id: None, message: error_text(&error) });
    }
    read(line).map(Some).map_err(|error| frame_error(line, &error))
}

/// Decodes each command into a type of its own. Serde would decode the tagged enum by building a tree of the whole line
/// first, which takes many times its bytes.
fn read(line: &[u8]) -> serde_json::Result<RpcCommand> {
    let Head { kind } = serde_json::from_slice(line)?;
    let id = || serde_json::from_slice(line).map(|Id { id }| id);
    Ok(match kind {
        Kind::Prompt => {
            let Prompt { id, message, attachments, steer } = serde_json::from_slice(line)?;
            RpcCommand::Prompt { id, message, attachments, steer }
        }
        Kind::FollowUp => {
            let FollowUp { id, message } = serde_json::from_slice(line)?;
            RpcCommand::FollowUp { id, message }
        }
        Kind::SetModel => {
            let SetModel { id, model } = serde_json::from_slice(line)?;
            RpcCommand::SetModel { id, model }
        }
        Kind::ToolsList => {
            let MaybeId { id } = serde_json::from_slice(line)?;
            RpcCommand::ToolsList { id }
        }
        Kind::Compact => RpcCommand::Compact { id: id()? },
        Kind::NewSession => RpcCommand::NewSession { id: id()? },
        Kind::GetMessages => RpcCommand::GetMessages { id: id()? },
        Kind::GetAvailableModels => RpcCommand::GetAvailableModels { id: id()? },
        Kind::Abort => RpcCommand::Abort { id: id()? },
        Kind::GetSessionStats => RpcCommand::GetSessionStats { id: id()? },
        Kind::GetState => RpcCommand::GetState { id: id()? },
        Kind::Shutdown => RpcCommand::Shutdown,
    })
}

#[derive(Deserialize)]
#[serde(expecting = "a JSON object")]
struct Head {
    #[serde(rename = "type")]
    kind: Kind,
}

/// The types of [`RpcCommand`].
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Prompt,
    FollowUp,
    Compact,
    NewSession,
    GetMessages,
    SetModel,
    GetAvailableModels,
    Abort,
    GetSessionStats,
    GetState,
    ToolsList,
    Shutdown,
}

#[derive(Deserialize)]
struct Prompt {
    id: String,
    message: String,
    #[serde(default, deserialize_with = "attachments")]
    attachments: Vec<RpcAttachment>,
    #[serde(default)]
    steer: bool,
}

#[derive(Deserialize)]
struct FollowUp {
    id: String,
    message: String,
}

#[derive(Deserialize)]
struct SetModel {
    id: String,
    model: String,
}

#[derive(Deserialize)]
struct MaybeId {
    id: Option<String>,
}

#[derive(Deserialize)]
struct Id {
    id: String,
}

/// Decodes attachments and keeps one more than the limit at most. An invalid path is reported before too many
/// attachments, so the first invalid one beyond the limit replaces the last that was kept.
fn attachments<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<RpcAttachment>, D::Error> {
    struct Attachments;
    impl<'de> Visitor<'de> for Attachments {
        type Value = Vec<RpcAttachment>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a sequence")
        }
        fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
            let mut kept: Vec<RpcAttachment> = Vec::new();
            while let Some(item) = items.next_element::<RpcAttachment>()? {
                if kept.len() <= MAX_ATTACHMENTS {
                    kept.push(item);
                } else if attachment::has_invalid_path(&item)
                    && !kept.iter().any(attachment::has_invalid_path)
                {
                    kept.pop();
                    kept.push(item);
                }
            }
            Ok(kept)
        }
    }
    deserializer.deserialize_seq(Attachments)
}

/// The error of a line that could not be decoded.
fn frame_error(line: &[u8], error: &serde_json::Error) -> FrameError {
    let id = serde_json::from_slice(line).ok().map(|Id { id }| id).filter(|id| !id.is_empty());
    // The position means nothing, because the line was decoded in several passes.
    let position = format!(" at line {} column {}", error.line(), error.column());
    let message = error_text(error);
    FrameError { id, message: message.strip_suffix(&position).unwrap_or(&message).to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode_error(line: &str) -> FrameError {
        command(line.as_bytes()).unwrap_err()
    }

    #[test]
    fn an_error_has_the_id_of_the_command_if_there_is_one() {
        assert_eq!(decode_error(r#"{"type":"bogus","id":"q"}"#).id.as_deref(), Some("q"));
        let missing = decode_error(r#"{"type":"prompt","id":"q"}"#);
        assert_eq!((missing.id.as_deref(), missing.message.as_str()), (Some("q"), "missing field `message`"));
        for line in [
            "not json",
            "[]",
            r#"["shutdown"]"#,
            r#""shutdown""#,
            "42",
            "null",
            r#"{"type":"prompt","id":7,"message":"x"}"#,
            r#"{"type":"bogus","id":""}"#,
            r#"{"type":"get_state","id":"a","id":"b"}"#,
            r#"{"type":"get_state","id":"a"}{"type":"get_state","id":"b"}"#,
            "\u{feff}{\"type\":\"shutdown\"}",
            r#"{"type":"bogus","id":"q","x":"\ud800"}"#,
            "{\"type\":\"bogus\",\"id\":\"q\",\"x\":\"\u{1}\"}",
        ] {
            assert_eq!(decode_error(line).id, None, "{line}");
            assert!(!decode_error(line).message.is_empty());
        }
    }

    #[test]
    fn blank_lines_and_unknown_members_are_ignored() {
        assert_eq!(command(b" \t\r"), Ok(None));
        let more = br#" {"extra":[1,{"b":2}],"id":"a","type":"get_state"} "#;
        assert_eq!(command(more), Ok(Some(RpcCommand::GetState { id: "a".to_owned() })));
    }

    #[test]
    fn a_repeated_member_is_an_error() {
        assert!(
            decode_error(r#"{"type":"get_state","id":"a","id":"a"}"#).message.contains("duplicate field")
        );
        assert!(
            decode_error(r#"{"type":"get_state","type":"get_state","id":"a"}"#).message.contains("duplicate")
        );
    }

    #[test]
    fn errors_of_deep_nesting_and_invalid_utf_8_have_no_id() {
        for kind in ["get_state", "bogus"] {
            let (open, close) = ("[".repeat(200), "]".repeat(200));
            let deep = decode_error(&format!(r#"{{"type":"{kind}","id":"a","x":{open}{close}}}"#));
            assert!(deep.message.contains("recursion limit") && deep.id.is_none(), "{deep:?}");
            let line = [br#"{"type":""#, kind.as_bytes(), b"\",\"id\":\"a\",\"x\":\"\xff\"}"].concat();
            assert_eq!(command(&line).unwrap_err().id, None);
        }
    }
}
