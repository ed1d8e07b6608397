//! The envelope of a request, with everything in it still raw.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::scan;

/// The members of a request that mean something. Of those that come twice the last one counts.
#[derive(Debug, Default)]
pub(crate) struct Request<'a> {
    id: Option<&'a RawValue>,
    pub(super) method: Option<&'a RawValue>,
    pub(super) params: Option<&'a RawValue>,
    /// The older form of a tool's name.
    pub(super) command: Option<&'a RawValue>,
    /// The older form of its arguments.
    pub(super) parameters: Option<&'a RawValue>,
}

/// Why a line is no request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unreadable {
    /// It is no JSON, for this reason.
    NoJson(String),
    /// It is JSON and no object.
    NoObject,
}

impl<'a> Request<'a> {
    /// Reads a line.
    pub(crate) fn read(line: &'a [u8]) -> Result<Self, Unreadable> {
        let text = scan::text(line).map_err(|unfit| Unreadable::NoJson(unfit.to_string()))?;
        let no_json = |error: serde_json::Error| Unreadable::NoJson(error.to_string());
        if text.trim_ascii_start().starts_with('{') {
            return serde_json::from_str(text).map_err(no_json);
        }
        serde_json::from_str::<IgnoredAny>(text).map_err(no_json)?;
        Err(Unreadable::NoObject)
    }

    /// The id as the peer wrote it. Without one it is null.
    pub(super) fn id(&self) -> &'a str {
        self.id.map_or(NULL, RawValue::get)
    }

    /// The method, if it is a text.
    pub(super) fn method(&self) -> Option<String> {
        self.method.and_then(string)
    }
}

/// What stands for an id that nobody gave.
pub(super) const NULL: &str = "null";

/// What `raw` says, if it is a string.
pub(super) fn string(raw: &RawValue) -> Option<String> {
    serde_json::from_str(raw.get()).ok()
}

/// Whether Ruby would take it for true: all but null and false.
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
            assert_eq!(Request::read(line.as_bytes()).unwrap().id(), id);
        }
        assert_eq!(Request::read(b"{}").unwrap().id(), "null");
    }

    #[test]
    fn of_members_that_come_twice_the_last_counts() {
        let request = Request::read(br#"{"id":1,"method":"a","id":2,"m\u0065thod":"b"}"#).unwrap();
        assert_eq!((request.id(), request.method().as_deref()), ("2", Some("b")));
    }

    #[test]
    fn what_is_no_object_is_told_from_what_is_no_json() {
        for json in ["[]", "5", "true", "null", "\"abc\"", " [1] "] {
            assert_eq!(Request::read(json.as_bytes()).unwrap_err(), Unreadable::NoObject, "{json}");
        }
        for other in ["", "  ", "{bad", "NaN", "\u{feff}{}", "[1", "{} {}", "{\"a\":1,}", "\"\\ud800\""] {
            let read = Request::read(other.as_bytes());
            assert!(matches!(read, Err(Unreadable::NoJson(_))), "{other:?}");
        }
    }
}
