//! Encodes frames as compact JSON in ASCII.
//!
//! Characters beyond ASCII are escaped, because the real parent decodes each chunk that it reads from the pipe by itself:
//! a character whose bytes are split between two chunks would be lost.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::ser::Formatter;
use serde_json::{Serializer, Value, json};

use super::wire::RpcEvent;
use crate::ToolDescription;

/// Encodes an event.
pub(super) fn frame(event: &RpcEvent) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(128);
    let mut serializer = Serializer::with_formatter(&mut bytes, Ascii);
    event.serialize(&mut serializer).expect("frames have string keys and memory does not fail");
    bytes
}

/// A tool in the answer to `tools_list`. Parents pass it on over MCP, where the schema has another name, so both names
/// are there.
pub fn tool_to_json(tool: &ToolDescription) -> Value {
    json!({"name": tool.name, "description": tool.description,
           "input_schema": tool.schema, "inputSchema": tool.schema})
}

/// A JSON formatter that escapes all characters beyond ASCII.
struct Ascii;

impl Formatter for Ascii {
    fn write_string_fragment<W: ?Sized + Write>(&mut self, to: &mut W, fragment: &str) -> io::Result<()> {
        let mut rest = fragment;
        while let Some(at) = rest.find(|c: char| !c.is_ascii()) {
            let (plain, tail) = rest.split_at(at);
            to.write_all(plain.as_bytes())?;
            let end = tail.find(|c: char| c.is_ascii()).unwrap_or(tail.len());
            let (escaped, tail) = tail.split_at(end);
            for unit in escaped.encode_utf16() {
                write!(to, "\\u{unit:04x}")?;
            }
            rest = tail;
        }
        to.write_all(rest.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn error(message: &str) -> RpcEvent {
        RpcEvent::Error { id: None, message: message.to_owned() }
    }

    #[test]
    fn only_characters_beyond_ascii_are_escaped() {
        let text = String::from_utf8(frame(&error("a\u{e4}\u{1f600}\"\n\u{7f}"))).unwrap();
        assert_eq!(text, "{\"type\":\"error\",\"message\":\"a\\u00e4\\ud83d\\ude00\\\"\\n\u{7f}\"}");
    }

    proptest! {
        #[test]
        fn any_text_is_ascii_on_the_wire_and_decodes_to_itself(text in any::<String>()) {
            let bytes = frame(&error(&text));
            prop_assert!(bytes.is_ascii() && !bytes.contains(&b'\n'));
            prop_assert_eq!(serde_json::from_slice::<RpcEvent>(&bytes).unwrap(), error(&text));
        }
    }
}
