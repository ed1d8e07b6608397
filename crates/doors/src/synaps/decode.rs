//! What a line says, or what is wrong with it.

use serde::Deserialize;
use serde_json::Value;

use super::protocol::RpcCommand;

/// What is wrong with a line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Flaw {
    /// The command's, if it can be read: the parent waits for an answer to it.
    pub(super) id: Option<String>,
    /// The parser's words.
    pub(super) message: String,
}

/// Reads a line. Blank ones say nothing.
pub(super) fn command(line: &[u8]) -> Result<Option<RpcCommand>, Flaw> {
    // What counts as blank in JSON; other blanks are a flaw.
    let is_blank = |byte: &&u8| matches!(**byte, b' ' | b'\t' | b'\r');
    let Some(first) = line.iter().find(|byte| !is_blank(byte)) else { return Ok(None) };
    // The wire types could be read from an array as well, by position, which nobody means.
    if *first == b'[' {
        return Err(Flaw { id: None, message: "invalid type: sequence, expected a JSON object".to_owned() });
    }
    serde_json::from_slice(line).map(Some).map_err(|error| flaw(line, &error))
}

/// What is wrong with a line that is no command for this reason.
fn flaw(line: &[u8], error: &serde_json::Error) -> Flaw {
    #[derive(Deserialize)]
    struct Id {
        id: String,
    }
    // What is skipped is not looked at closely, and a line that is no JSON has no id.
    if let Err(error) = serde_json::from_slice::<Value>(line) {
        return Flaw { id: None, message: error.to_string() };
    }
    let id = serde_json::from_slice(line).ok().map(|Id { id }| id).filter(|id| !id.is_empty());
    Flaw { id, message: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flaw(line: &str) -> Flaw {
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
