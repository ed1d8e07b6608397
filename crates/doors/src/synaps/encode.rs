//! Frames as bytes: compact JSON in ASCII.
//!
//! Everything beyond ASCII is escaped, because the real parent decodes each piece that it reads from
//! the pipe on its own: a letter of several bytes that is cut between two pieces would be lost.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::Serializer;
use serde_json::ser::Formatter;

use super::protocol::RpcEvent;

/// The frame of `event`.
pub(super) fn frame(event: &RpcEvent) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(128);
    let mut serializer = Serializer::with_formatter(&mut bytes, Ascii);
    event.serialize(&mut serializer).expect("frames have string keys and memory does not fail");
    bytes
}

struct Ascii;

impl Formatter for Ascii {
    fn write_string_fragment<W: ?Sized + Write>(&mut self, to: &mut W, fragment: &str) -> io::Result<()> {
        let mut rest = fragment;
        while let Some(at) = rest.find(|letter: char| !letter.is_ascii()) {
            let (plain, tail) = rest.split_at(at);
            to.write_all(plain.as_bytes())?;
            let end = tail.find(|letter: char| letter.is_ascii()).unwrap_or(tail.len());
            let (foreign, tail) = tail.split_at(end);
            for unit in foreign.encode_utf16() {
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
    fn letters_beyond_ascii_are_escaped_and_the_rest_is_not() {
        let text = String::from_utf8(frame(&error("a\u{e4}\u{1f600}\"\n\u{7f}"))).unwrap();
        assert_eq!(text, "{\"type\":\"error\",\"message\":\"a\\u00e4\\ud83d\\ude00\\\"\\n\u{7f}\"}");
    }

    proptest! {
        #[test]
        fn any_text_is_ascii_on_the_wire_and_comes_back(text in any::<String>()) {
            let bytes = frame(&error(&text));
            prop_assert!(bytes.is_ascii() && !bytes.contains(&b'\n'));
            prop_assert_eq!(serde_json::from_slice::<RpcEvent>(&bytes).unwrap(), error(&text));
        }
    }
}
