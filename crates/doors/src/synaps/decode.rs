//! What a line says, or what is wrong with it.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, SeqAccess, Visitor};

use super::protocol::{RpcAttachment, RpcCommand};
use super::{MAX_ATTACHMENTS, attachment};
use crate::json::{Checked, words_of};

/// What is wrong with a line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FrameError {
    /// The command's, if it can be read: the parent waits for an answer to it.
    pub(super) id: Option<String>,
    /// The parser's words.
    pub(super) message: String,
}

/// Reads a line. Blank ones say nothing.
pub(super) fn command(line: &[u8]) -> Result<Option<RpcCommand>, FrameError> {
    // What counts as blank in JSON; other blanks are a flaw.
    let is_blank = |byte: &&u8| matches!(**byte, b' ' | b'\t' | b'\r');
    let Some(first) = line.iter().find(|byte| !is_blank(byte)) else { return Ok(None) };
    // The wire types could be read from an array as well, by position, which nobody means.
    if *first == b'[' {
        return Err(FrameError {
            id: None,
            message: "invalid type: sequence, expected a JSON object".to_owned(),
        });
    }
    // What is skipped below is not looked at closely, and a line that is no JSON has no id.
    if let Err(error) = serde_json::from_slice::<Checked>(line) {
        return Err(FrameError { id: None, message: words_of(&error) });
    }
    read(line).map(Some).map_err(|error| flaw(line, &error))
}

/// Reads each command into a type of its own. Reading the enum itself would build the whole line first, as a tree that
/// takes many times its bytes.
fn read(line: &[u8]) -> serde_json::Result<RpcCommand> {
    let Head { kind } = serde_json::from_slice(line)?;
    let id = || serde_json::from_slice(line).map(|Id { id }| id);
    Ok(match kind {
        Kind::Prompt => {
            let Prompt { id, message, attachments } = serde_json::from_slice(line)?;
            RpcCommand::Prompt { id, message, attachments }
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

/// Reads attachments, of which no more are kept than it takes to see that there are too many. Paths are told apart before
/// they are counted, so one of those left out that is not allowed goes in the place of the last.
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
                } else if attachment::is_refused(&item) && !kept.iter().any(attachment::is_refused) {
                    kept.pop();
                    kept.push(item);
                }
            }
            Ok(kept)
        }
    }
    deserializer.deserialize_seq(Attachments)
}

/// What is wrong with a line that is no command for this reason.
fn flaw(line: &[u8], error: &serde_json::Error) -> FrameError {
    let id = serde_json::from_slice(line).ok().map(|Id { id }| id).filter(|id| !id.is_empty());
    // Where it is says nothing: the line was read in parts.
    let place = format!(" at line {} column {}", error.line(), error.column());
    let message = words_of(error);
    FrameError { id, message: message.strip_suffix(&place).unwrap_or(&message).to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flaw(line: &str) -> FrameError {
        command(line.as_bytes()).unwrap_err()
    }

    #[test]
    fn what_is_wrong_is_said_under_the_id_where_there_is_one() {
        assert_eq!(flaw(r#"{"type":"bogus","id":"q"}"#).id.as_deref(), Some("q"));
        let missing = flaw(r#"{"type":"prompt","id":"q"}"#);
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
            assert_eq!(flaw(line).id, None, "{line}");
            assert!(!flaw(line).message.is_empty());
        }
    }

    #[test]
    fn blank_lines_say_nothing_and_what_is_more_is_ignored() {
        assert_eq!(command(b" \t\r"), Ok(None));
        let more = br#" {"extra":[1,{"b":2}],"id":"a","type":"get_state"} "#;
        assert_eq!(command(more), Ok(Some(RpcCommand::GetState { id: "a".to_owned() })));
    }

    #[test]
    fn a_member_twice_is_an_error() {
        assert!(flaw(r#"{"type":"get_state","id":"a","id":"a"}"#).message.contains("duplicate field"));
        assert!(flaw(r#"{"type":"get_state","type":"get_state","id":"a"}"#).message.contains("duplicate"));
    }

    #[test]
    fn deep_nesting_and_bad_utf_8_are_errors_of_nobody() {
        for kind in ["get_state", "bogus"] {
            let (open, close) = ("[".repeat(200), "]".repeat(200));
            let deep = flaw(&format!(r#"{{"type":"{kind}","id":"a","x":{open}{close}}}"#));
            assert!(deep.message.contains("recursion limit") && deep.id.is_none(), "{deep:?}");
            let line = [br#"{"type":""#, kind.as_bytes(), b"\",\"id\":\"a\",\"x\":\"\xff\"}"].concat();
            assert_eq!(command(&line).unwrap_err().id, None);
        }
    }
}
