//! Decodes the envelope of a request; the members stay raw.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::code::FrameError;
use super::scan;

/// The members of a request that the servers use. If a member stands twice, the last one counts.
#[derive(Debug, Default)]
pub(crate) struct Request<'a> {
    id: Option<&'a RawValue>,
    pub(super) method: Option<&'a RawValue>,
    pub(super) params: Option<&'a RawValue>,
    /// A tool's name in the older form of a call.
    pub(super) command: Option<&'a RawValue>,
    /// A tool's arguments in the older form of a call.
    pub(super) parameters: Option<&'a RawValue>,
}

impl<'a> Request<'a> {
    /// Decodes a line. Fails with [`FrameError::NotJson`] or [`FrameError::NotAnObject`].
    pub(crate) fn decode(line: &'a [u8]) -> Result<Self, FrameError> {
        let text = scan::text(line).map_err(|invalid| FrameError::NotJson(invalid.to_string()))?;
        let not_json = |error: serde_json::Error| FrameError::NotJson(error.to_string());
        if text.trim_ascii_start().starts_with('{') {
            return serde_json::from_str(text).map_err(not_json);
        }
        serde_json::from_str::<IgnoredAny>(text).map_err(not_json)?;
        Err(FrameError::NotAnObject)
    }

    /// The id as the client wrote it; `null` if there is none.
    pub(super) fn id(&self) -> &'a str {
        self.id.map_or(NULL_ID, RawValue::get)
    }

    /// The method, if it is a string.
    pub(super) fn method(&self) -> Option<String> {
        self.method.and_then(string)
    }
}

/// The id in a reply to a request without an id.
pub(super) const NULL_ID: &str = "null";

/// The text of `raw`, if it is a string.
pub(super) fn string(raw: &RawValue) -> Option<String> {
    serde_json::from_str(raw.get()).ok()
}

/// Whether Ruby takes the value for true: every value except null and false.
pub(super) fn is_truthy(raw: &RawValue) -> bool {
    !matches!(raw.get(), "null" | "false")
}

impl<'de: 'a, 'a> Deserialize<'de> for Request<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct RequestVisitor;
        impl<'de> Visitor<'de> for RequestVisitor {
            type Value = Request<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Request<'de>, A::Error> {
                let mut request = Request::default();
                while let Some(name) = map.next_key::<Cow<'de, str>>()? {
                    let value: &'de RawValue = map.next_value()?;
                    match &*name {
                        "id" => request.id = Some(value),
                        "method" => request.method = Some(value),
                        "params" => request.params = Some(value),
                        "command" => request.command = Some(value),
                        "parameters" => request.parameters = Some(value),
                        _ => {}
                    }
                }
                Ok(request)
            }
        }
        deserializer.deserialize_map(RequestVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_stay_as_they_were_written() {
        for id in ["1.0", "1e3", "123456789012345678901234567890", r#"{"a": [1 ]}"#, r#""\u00e4""#, "null"] {
            let line = format!(r#"{{"id": {id} ,"method":"ping"}}"#);
            assert_eq!(Request::decode(line.as_bytes()).unwrap().id(), id);
        }
        assert_eq!(Request::decode(b"{}").unwrap().id(), "null");
    }

    #[test]
    fn the_last_of_repeated_members_counts() {
        let request = Request::decode(br#"{"id":1,"method":"a","id":2,"m\u0065thod":"b"}"#).unwrap();
        assert_eq!((request.id(), request.method().as_deref()), ("2", Some("b")));
    }

    #[test]
    fn a_non_object_is_another_error_than_invalid_json() {
        for json in ["[]", "5", "true", "null", "\"abc\"", " [1] "] {
            assert_eq!(Request::decode(json.as_bytes()).unwrap_err(), FrameError::NotAnObject, "{json}");
        }
        for other in ["", "  ", "{bad", "NaN", "\u{feff}{}", "[1", "{} {}", "{\"a\":1,}", "\"\\ud800\""] {
            let decoded = Request::decode(other.as_bytes());
            assert!(matches!(decoded, Err(FrameError::NotJson(_))), "{other:?}");
        }
    }
}
