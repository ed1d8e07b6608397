//! The JSON-RPC envelope of a frame from the client.

use agent_client_protocol_schema::v1::{Error, RequestId};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::{MAX_FRAME_VALUES, MAX_ID_BYTES, code};

/// A decoded envelope. Parameters and results are not decoded yet.
#[derive(Debug)]
pub(super) enum Envelope<'a> {
    /// A call that must be answered.
    Request { id: RequestId, method: String, params: Option<&'a RawValue> },
    /// A message that must not be answered.
    Notification { method: String, params: Option<&'a RawValue> },
    /// The client's answer to a request of this door. An error of the client has no result.
    Response { id: RequestId, result: Option<&'a RawValue> },
}

/// A frame that is not a message: the error to send, and the request that it answers.
pub(super) type Malformed = Box<(RequestId, Error)>;

fn malformed(id: Option<RequestId>, error: Error) -> Malformed {
    Box::new((id.unwrap_or(RequestId::Null), error))
}

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
            // An array would be a batch, which ACP does not have.
            let checked = serde_json::from_str::<serde::de::IgnoredAny>(text);
            let error = checked.map_or_else(|error| syntax_error(&error), |_| code::not_an_object());
            return Err(malformed(None, error));
        }
        let members: Members<'a> =
            serde_json::from_str(text).map_err(|error| malformed(None, syntax_error(&error)))?;
        members.classify().map(Some)
    }
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
        let id = match self.id {
            None => None,
            Some(raw) if raw.get().len() > MAX_ID_BYTES => return Err(malformed(None, code::id_too_long())),
            Some(raw) => Some(serde_json::from_str(raw.get()).map_err(|_| {
                malformed(None, code::invalid_request("`id` must be a string, a 64-bit integer or null"))
            })?),
        };
        let Some(method) = self.method else {
            let has_outcome = self.result.is_some() || self.error.is_some();
            let Some(id) = id.clone().filter(|_| has_outcome) else {
                let error = code::invalid_request("`method` is missing");
                return Err(malformed(id, error));
            };
            return Ok(Envelope::Response { id, result: self.result.filter(|_| self.error.is_none()) });
        };
        let Ok(method) = serde_json::from_str::<String>(method.get()) else {
            let error = code::invalid_request("`method` must be a string");
            return Err(malformed(id, error));
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

    fn error_code(frame: &[u8]) -> i32 {
        i32::from(Envelope::decode(frame).unwrap_err().1.code)
    }

    #[test]
    fn the_kinds_of_message_are_recognized_by_their_members() {
        let kind = |frame: &str| match Envelope::decode(frame.as_bytes()).unwrap() {
            None => "blank",
            Some(Envelope::Request { .. }) => "request",
            Some(Envelope::Notification { .. }) => "notification",
            Some(Envelope::Response { result: Some(_), .. }) => "result",
            Some(Envelope::Response { result: None, .. }) => "error",
        };
        assert_eq!(kind(" \t\r"), "blank");
        assert_eq!(kind(r#"{"jsonrpc":"2.0","id":null,"method":"m"}"#), "request");
        assert_eq!(kind(r#"{"method":"m","params":null}"#), "notification");
        assert_eq!(kind(r#"{"id":1,"result":null}"#), "result");
        assert_eq!(kind(r#"{"id":1,"result":null,"error":{"code":1,"message":""}}"#), "error");
    }

    #[test]
    fn what_is_no_json_is_a_parse_error_and_what_is_no_message_an_invalid_request() {
        for frame in [&b"not json"[..], b"{", b"{\"method\":\"\xff\"}", b"[1", b"{\"id\":1,}"] {
            assert_eq!(error_code(frame), -32700, "{frame:?}");
        }
        for frame in ["[]", "[{}]", "5", "{}", r#"{"id":1}"#, r#"{"id":1.5,"method":"m"}"#, r#"{"method":5}"#]
        {
            assert_eq!(error_code(frame.as_bytes()), -32600, "{frame}");
        }
        assert_eq!(error_code(br#"{"id":1,"id":2,"method":"m"}"#), -32600);
    }

    #[test]
    fn ids_keep_their_type_and_value() {
        for id in ["1", "\"1\"", "null", "0", "9007199254740993", "\"\"", "-1"] {
            let frame = format!(r#"{{"id":{id},"method":"m"}}"#);
            let Ok(Some(Envelope::Request { id: decoded, .. })) = Envelope::decode(frame.as_bytes()) else {
                panic!("{frame}")
            };
            assert_eq!(serde_json::to_string(&decoded).unwrap(), id);
        }
    }

    #[test]
    fn an_id_above_the_limit_is_refused() {
        let frame = |letters| format!(r#"{{"id":"{}","method":"m"}}"#, "i".repeat(letters));
        assert!(Envelope::decode(frame(MAX_ID_BYTES - 2).as_bytes()).is_ok());
        let (id, error) = *Envelope::decode(frame(MAX_ID_BYTES - 1).as_bytes()).unwrap_err();
        assert_eq!((id, i32::from(error.code)), (RequestId::Null, -32600));
    }

    #[test]
    fn a_frame_with_too_many_values_is_refused_and_long_strings_are_not() {
        let many = format!(r#"{{"method":"m","params":[{}0]}}"#, "0,".repeat(MAX_FRAME_VALUES));
        assert_eq!(error_code(many.as_bytes()), -32600);
        let long = format!(r#"{{"method":"m","params":["\"{}"]}}"#, "0,:".repeat(MAX_FRAME_VALUES));
        assert!(Envelope::decode(long.as_bytes()).is_ok());
    }
}
