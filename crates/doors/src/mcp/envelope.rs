//! The JSON-RPC envelope of a frame from the client.

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::MAX_FRAME_VALUES;
use super::code::{self, Error};
use crate::jsonrpc::RequestId;

/// A decoded envelope. Parameters are not decoded yet.
#[derive(Debug)]
pub(super) enum Envelope<'a> {
    /// A call that must be answered.
    Request { id: RequestId, method: String, params: Option<&'a RawValue> },
    /// A message that must not be answered.
    Notification { method: String, params: Option<&'a RawValue> },
    /// An answer. This door sends no requests, so it belongs to nothing.
    Response,
}

/// A frame that is not a message: the error to send, and the request that it answers if that could be read.
pub(super) type Malformed = Box<(Option<RequestId>, Error)>;

impl<'a> Envelope<'a> {
    /// Decodes one frame. `None` for a blank line.
    pub(super) fn decode(frame: &'a [u8]) -> Result<Option<Self>, Malformed> {
        let frame = frame.trim_ascii();
        if frame.is_empty() {
            return Ok(None);
        }
        let text = std::str::from_utf8(frame)
            .map_err(|error| malformed(None, code::parse_error(&format!("not valid UTF-8: {error}"))))?;
        if count_values(frame) > MAX_FRAME_VALUES {
            return Err(malformed(None, code::too_many_values()));
        }
        if !text.starts_with('{') {
            // An array would be a batch, which only one old version of MCP had.
            let checked = serde_json::from_str::<serde::de::IgnoredAny>(text);
            let no_object = || code::invalid_request("a frame is one JSON object; there are no batches");
            return Err(malformed(None, checked.map_or_else(|error| syntax_error(&error), |_| no_object())));
        }
        let members: Members<'a> =
            serde_json::from_str(text).map_err(|error| malformed(None, syntax_error(&error)))?;
        members.classify().map(Some)
    }
}

fn malformed(id: Option<RequestId>, error: Error) -> Malformed {
    Box::new((id, error))
}

fn syntax_error(error: &serde_json::Error) -> Error {
    if error.is_data() {
        code::invalid_request(&error.to_string())
    } else {
        code::parse_error(&error.to_string())
    }
}

/// The number of commas and colons outside of strings, which is at most twice the number of values.
fn count_values(text: &[u8]) -> usize {
    let (mut count, mut is_in_string, mut is_escaped) = (0, false, false);
    for byte in text {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_in_string => is_escaped = true,
            b'"' => is_in_string = !is_in_string,
            b',' | b':' if !is_in_string => count += 1,
            _ => {}
        }
    }
    count
}

/// The members of an envelope. A member that is `null` is present.
#[derive(Deserialize)]
struct Members<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    jsonrpc: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    id: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    method: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    params: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    result: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    error: Option<&'a RawValue>,
}

fn present<'de: 'a, 'a, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

impl<'a> Members<'a> {
    fn classify(self) -> Result<Envelope<'a>, Malformed> {
        let id: Option<RequestId> = match self.id {
            None => None,
            Some(raw) => Some(serde_json::from_str(raw.get()).map_err(|_| {
                malformed(None, code::invalid_request("`id` must be a string or a 64-bit integer"))
            })?),
        };
        let is_version =
            |raw: &RawValue| matches!(serde_json::from_str::<String>(raw.get()), Ok(text) if text == "2.0");
        if !self.jsonrpc.is_some_and(is_version) {
            return Err(malformed(id, code::invalid_request("`jsonrpc` must be \"2.0\"")));
        }
        let Some(method) = self.method else {
            return match id.is_some() && (self.result.is_some() || self.error.is_some()) {
                true => Ok(Envelope::Response),
                false => Err(malformed(id, code::invalid_request("`method` is missing"))),
            };
        };
        let Ok(method) = serde_json::from_str::<String>(method.get()) else {
            return Err(malformed(id, code::invalid_request("`method` must be a string")));
        };
        Ok(match id {
            Some(id) => Envelope::Request { id, method, params: self.params },
            None => Envelope::Notification { method, params: self.params },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error_code(frame: &[u8]) -> i64 {
        Envelope::decode(frame).unwrap_err().1.code
    }

    #[test]
    fn what_is_no_json_is_a_parse_error_and_what_is_no_message_an_invalid_request() {
        for frame in [&b"not json"[..], b"{", b"{\"method\":\"\xff\"}", b"[1", b"{\"id\":1,}"] {
            assert_eq!(error_code(frame), -32700, "{frame:?}");
        }
        for frame in [
            "[]",
            "5",
            "{}",
            r#"{"jsonrpc":"2.0","id":1}"#,
            r#"{"jsonrpc":"2.0","id":null,"method":"m"}"#,
            r#"{"jsonrpc":"2.0","id":1.5,"method":"m"}"#,
            r#"{"id":1,"method":"m"}"#,
            r#"{"jsonrpc":"1.0","id":1,"method":"m"}"#,
            r#"{"jsonrpc":"2.0","method":5}"#,
            r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"m"}"#,
        ] {
            assert_eq!(error_code(frame.as_bytes()), -32600, "{frame}");
        }
    }

    #[test]
    fn a_frame_with_too_many_values_is_refused_and_long_strings_are_not() {
        let many =
            format!(r#"{{"jsonrpc":"2.0","method":"m","params":[{}0]}}"#, "0,".repeat(MAX_FRAME_VALUES));
        assert_eq!(error_code(many.as_bytes()), -32600);
        let long =
            format!(r#"{{"jsonrpc":"2.0","method":"m","params":["\"{}"]}}"#, "0,:".repeat(MAX_FRAME_VALUES));
        assert!(Envelope::decode(long.as_bytes()).is_ok());
    }
}
