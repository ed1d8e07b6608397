//! JSON-RPC envelopes without the `jsonrpc` member, as in the exec protocol.
//!
//! Decoding looks at the envelope only and leaves `params` raw. So a request for an unknown method costs no more
//! memory than its length, and each method decodes its own params.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use crate::json::error_text;

/// A request's id. Replies echo it with its type, so `1` and `"1"` are two ids.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RequestId {
    /// A signed 64-bit integer.
    Integer(i64),
    /// A string.
    Text(String),
}

impl RequestId {
    /// The id of an error that answers no request, such as a line that is not JSON.
    pub const NONE: Self = Self::Integer(-1);
}

impl Serialize for RequestId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Integer(number) => serializer.serialize_i64(*number),
            Self::Text(text) => serializer.serialize_str(text),
        }
    }
}

impl<'de> Deserialize<'de> for RequestId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct IdVisitor;
        impl Visitor<'_> for IdVisitor {
            type Value = RequestId;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or a signed 64-bit integer as `id`")
            }
            fn visit_i64<E>(self, number: i64) -> Result<RequestId, E> {
                Ok(RequestId::Integer(number))
            }
            fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<RequestId, E> {
                let unexpected = serde::de::Unexpected::Unsigned(number);
                let number = i64::try_from(number).map_err(|_| E::invalid_value(unexpected, &self))?;
                Ok(RequestId::Integer(number))
            }
            fn visit_str<E>(self, text: &str) -> Result<RequestId, E> {
                Ok(RequestId::Text(text.to_owned()))
            }
        }
        deserializer.deserialize_any(IdVisitor)
    }
}

/// A decoded envelope.
#[derive(Debug)]
pub enum Envelope<'a> {
    /// A call that must be answered.
    Request {
        /// The answer echoes it.
        id: RequestId,
        /// Any name: the caller checks whether it is known.
        method: String,
        /// Not decoded yet.
        params: Option<&'a RawValue>,
    },
    /// A message that must not be answered.
    Notification {
        /// Any name: the caller checks whether it is known.
        method: String,
        /// Not decoded yet.
        params: Option<&'a RawValue>,
    },
    /// The answer to a request that the reader of this message sent.
    Response {
        /// The id of that request.
        id: RequestId,
        /// The result, not decoded yet, or the error.
        outcome: Result<&'a RawValue, ErrorObject>,
    },
}

/// Why a frame is not a JSON-RPC message. The text names the member and the fault.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(String);

impl<'a> Envelope<'a> {
    /// Decodes the envelope of one frame.
    pub fn decode(frame: &'a [u8]) -> Result<Self, Malformed> {
        let text =
            std::str::from_utf8(frame).map_err(|error| Malformed(format!("not valid UTF-8: {error}")))?;
        let members: Members<'a> =
            serde_json::from_str(text).map_err(|error| Malformed(error_text(&error)))?;
        members.classify()
    }
}

/// The members of an envelope, still raw. A member that stands twice is an error.
#[derive(Default)]
struct Members<'a> {
    id: Option<&'a RawValue>,
    method: Option<&'a RawValue>,
    params: Option<&'a RawValue>,
    trace: Option<&'a RawValue>,
    result: Option<&'a RawValue>,
    error: Option<&'a RawValue>,
}

impl<'a> Members<'a> {
    fn classify(self) -> Result<Envelope<'a>, Malformed> {
        let Some(method) = self.method else { return self.into_response() };
        let method = part(method, "method")?;
        let Some(id) = self.id else {
            return Ok(Envelope::Notification { method, params: self.params });
        };
        let id = part(id, "id")?;
        if let Some(trace) = self.trace {
            part::<Option<Trace>>(trace, "trace")?;
        }
        Ok(Envelope::Request { id, method, params: self.params })
    }

    fn into_response(self) -> Result<Envelope<'a>, Malformed> {
        let missing = |what: &str| Malformed(format!("missing member {what}"));
        let outcome = match (self.result, self.error) {
            (Some(result), None) => Ok(result),
            (None, Some(error)) => Err(part(error, "error")?),
            (Some(_), Some(_)) => return Err(Malformed("both `result` and `error`".to_owned())),
            (None, None) => return Err(missing("`method`")),
        };
        let id = part(self.id.ok_or_else(|| missing("`id`"))?, "id")?;
        Ok(Envelope::Response { id, outcome })
    }
}

fn part<'a, T: Deserialize<'a>>(raw: &'a RawValue, name: &str) -> Result<T, Malformed> {
    serde_json::from_str(raw.get())
        .map_err(|error| Malformed(format!("member `{name}`: {}", error_text(&error))))
}

/// A W3C trace context. Its types are checked, so a client learns of a broken one; nothing uses it yet.
#[derive(serde::Deserialize)]
#[serde(expecting = "an object with a trace context")]
struct Trace {
    #[serde(rename = "traceparent")]
    _traceparent: Option<String>,
    #[serde(rename = "tracestate")]
    _tracestate: Option<String>,
}

/// Written by hand because a derived struct would also accept an array, which is not an envelope.
impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MembersVisitor;
        impl<'de> Visitor<'de> for MembersVisitor {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
                let mut members = Members::default();
                while let Some(name) = map.next_key::<std::borrow::Cow<'de, str>>()? {
                    let value: &'de RawValue = map.next_value()?;
                    let (slot, name) = match &*name {
                        "id" => (&mut members.id, "id"),
                        "method" => (&mut members.method, "method"),
                        "params" => (&mut members.params, "params"),
                        "trace" => (&mut members.trace, "trace"),
                        "result" => (&mut members.result, "result"),
                        "error" => (&mut members.error, "error"),
                        _ => continue,
                    };
                    if slot.replace(value).is_some() {
                        return Err(serde::de::Error::duplicate_field(name));
                    }
                }
                Ok(members)
            }
        }
        deserializer.deserialize_map(MembersVisitor)
    }
}

/// The error member of an answer.
#[derive(Clone, Debug, PartialEq, Serialize, serde::Deserialize)]
pub struct ErrorObject {
    /// A JSON-RPC error code, such as -32600.
    pub code: i64,
    /// A text for people.
    pub message: String,
}

/// Encodes the request `method`.
pub fn request(id: &RequestId, method: &str, params: &impl Serialize) -> Vec<u8> {
    #[derive(Serialize)]
    struct Request<'a, P> {
        id: &'a RequestId,
        method: &'a str,
        params: &'a P,
    }
    encode(&Request { id, method, params })
}

/// Encodes the notification `method`.
pub fn notification(method: &str, params: &impl Serialize) -> Vec<u8> {
    #[derive(Serialize)]
    struct Notification<'a, P> {
        method: &'a str,
        params: &'a P,
    }
    encode(&Notification { method, params })
}

/// Encodes the successful answer to request `id`.
pub fn result(id: &RequestId, result: &impl Serialize) -> Vec<u8> {
    #[derive(Serialize)]
    struct Success<'a, R> {
        id: &'a RequestId,
        result: &'a R,
    }
    encode(&Success { id, result })
}

/// Encodes the error that answers request `id`.
pub fn error(id: &RequestId, error: &ErrorObject) -> Vec<u8> {
    #[derive(Serialize)]
    struct Failure<'a> {
        id: &'a RequestId,
        error: &'a ErrorObject,
    }
    encode(&Failure { id, error })
}

fn encode(message: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(message).expect("wire types have string keys and no failing serializer")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode_error(frame: &str) -> String {
        Envelope::decode(frame.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn the_four_kinds_of_message_are_recognised_by_their_members() {
        let kind = |frame: &str| match Envelope::decode(frame.as_bytes()).unwrap() {
            Envelope::Request { .. } => "request",
            Envelope::Notification { .. } => "notification",
            Envelope::Response { outcome: Ok(_), .. } => "result",
            Envelope::Response { outcome: Err(_), .. } => "error",
        };
        assert_eq!(kind(r#"{"id":1,"method":"m"}"#), "request");
        assert_eq!(kind(r#"{"method":"m","params":[1]}"#), "notification");
        assert_eq!(kind(r#"{"id":"x","result":null}"#), "result");
        assert_eq!(kind(r#"{"id":1,"error":{"code":-1,"message":"no"}}"#), "error");
    }

    #[test]
    fn the_jsonrpc_member_and_unknown_members_are_ignored() {
        assert!(Envelope::decode(br#"{"jsonrpc":"2.0","id":1,"method":"m","more":[{}]}"#).is_ok());
    }

    #[test]
    fn an_escaped_member_name_is_the_same_name() {
        assert!(matches!(
            Envelope::decode(br#"{"\u0069d":7,"method":"m"}"#),
            Ok(Envelope::Request { id: RequestId::Integer(7), .. })
        ));
    }

    #[test]
    fn ids_of_other_types_are_refused() {
        for id in ["null", "1.5", "1.0", "true", "9223372036854775808", "[]", "{}"] {
            let error = decode_error(&format!(r#"{{"id":{id},"method":"m"}}"#));
            assert!(error.contains("`id`"), "{id}: {error}");
        }
        assert!(Envelope::decode(br#"{"id":-9223372036854775808,"method":"m"}"#).is_ok());
    }

    #[test]
    fn a_repeated_member_is_refused() {
        assert!(decode_error(r#"{"id":1,"id":1,"method":"m"}"#).contains("duplicate field `id`"));
    }

    #[test]
    fn a_broken_trace_is_refused_and_a_good_one_is_not() {
        assert!(decode_error(r#"{"id":1,"method":"m","trace":{"traceparent":5}}"#).contains("`trace`"));
        assert!(Envelope::decode(br#"{"id":1,"method":"m","trace":null}"#).is_ok());
        assert!(Envelope::decode(br#"{"id":1,"method":"m","trace":{"traceparent":"00-x"}}"#).is_ok());
    }

    #[test]
    fn a_frame_that_is_not_an_object_or_not_a_message_is_refused() {
        for frame in ["{bad", "[]", "5", "{}", "\"m\"", r#"{"id":1}"#, r#"{"method":5}"#, r#"{"result":1}"#] {
            decode_error(frame);
        }
        assert!(Envelope::decode(b"{\"method\":\"\xff\"}").unwrap_err().to_string().contains("UTF-8"));
    }

    #[test]
    fn ten_thousand_brackets_do_not_overflow_the_stack() {
        let deep = format!(r#"{{"method":"m","params":{}{}}}"#, "[".repeat(10_000), "]".repeat(10_000));
        assert!(Envelope::decode(deep.as_bytes()).is_ok());
    }
}
