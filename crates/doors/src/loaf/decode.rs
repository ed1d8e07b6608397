//! Decodes the envelope of a line.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::code::{self, FrameError};
use super::text::{string, trim};

/// A decoded line.
#[derive(Debug)]
pub(super) enum Line<'a> {
    /// A request, which must be answered.
    Request(Request<'a>),
    /// A blank line or a notification. The server ignores notifications.
    Ignored,
}

/// A request.
#[derive(Debug)]
pub(super) struct Request<'a> {
    /// Raw JSON; the answer repeats it byte for byte.
    pub(super) id: &'a str,
    pub(super) method: Cow<'a, str>,
    pub(super) params: Option<&'a RawValue>,
}

/// Decodes a line.
pub(super) fn decode(line: &str) -> Result<Line<'_>, FrameError> {
    let line = trim(line);
    match line.bytes().next() {
        None => Ok(Line::Ignored),
        Some(b'{') => {
            let members: Members<'_> =
                serde_json::from_str(line).map_err(|error| code::not_json(&error.to_string()))?;
            members.classify()
        }
        Some(first) => {
            // An invalid line is a parse error, even if it begins like an array or a number.
            let whole: Result<IgnoredAny, _> = serde_json::from_str(line);
            whole.map_err(|error| code::not_json(&error.to_string()))?;
            Err(if first == b'[' { code::batch() } else { code::invalid_request() })
        }
    }
}

/// The members of an envelope. If a member stands twice, the last one counts.
#[derive(Default)]
struct Members<'a> {
    jsonrpc: Option<&'a RawValue>,
    id: Option<&'a RawValue>,
    method: Option<&'a RawValue>,
    params: Option<&'a RawValue>,
}

impl<'a> Members<'a> {
    fn classify(self) -> Result<Line<'a>, FrameError> {
        let is_current = self.jsonrpc.is_some_and(|version| string(version).as_deref() == Some("2.0"));
        let method = self.method.and_then(method).filter(|method| !trim(method).is_empty());
        let (true, Some(method)) = (is_current, method) else { return Err(code::invalid_request()) };
        let Some(id) = self.id else { return Ok(Line::Ignored) };
        let id = id.get();
        match id.bytes().next() {
            Some(b'"' | b'-' | b'0'..=b'9' | b'n') => {
                Ok(Line::Request(Request { id, method, params: self.params }))
            }
            _ => Err(code::invalid_request()),
        }
    }
}

fn method(raw: &RawValue) -> Option<Cow<'_, str>> {
    let plain = raw.get().strip_prefix('"').and_then(|text| text.strip_suffix('"'));
    match plain {
        Some(text) if !text.contains('\\') => Some(Cow::Borrowed(text)),
        _ => string(raw).map(Cow::Owned),
    }
}

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
                while let Some(name) = map.next_key::<Cow<'de, str>>()? {
                    let value: &'de RawValue = map.next_value()?;
                    match &*name {
                        "jsonrpc" => members.jsonrpc = Some(value),
                        "id" => members.id = Some(value),
                        "method" => members.method = Some(value),
                        "params" => members.params = Some(value),
                        _ => {}
                    }
                }
                Ok(members)
            }
        }
        deserializer.deserialize_map(MembersVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn classify_line(line: &str) -> String {
        match decode(line) {
            Ok(Line::Ignored) => "ignored".to_owned(),
            Ok(Line::Request(request)) => format!("{} {}", request.id, request.method),
            Err(error) => error.reason().to_owned(),
        }
    }

    #[test]
    fn a_request_has_a_version_a_method_and_an_id() {
        for (line, expected) in [
            (r#"{"jsonrpc":"2.0","id":1e2,"method":"m"}"#, "1e2 m"),
            (r#" {"id":null,"method":" m ","jsonrpc":"2.0","more":[]} "#, "null  m "),
            (r#"{"jsonrpc":"\u0032.0","id":"\u00e9\n","method":"\u006d","params":[1]}"#, r#""\u00e9\n" m"#),
            (r#"{"jsonrpc":"1.0","jsonrpc":"2.0","id":1,"id":2,"method":"m"}"#, "2 m"),
            ("\u{feff}{\"jsonrpc\":\"2.0\",\"id\":\"\",\"method\":\"m\"}", "\"\" m"),
        ] {
            assert_eq!(classify_line(line), expected, "{line}");
        }
    }

    #[test]
    fn other_lines_are_ignored_or_refused() {
        for (line, expected) in [
            ("", "ignored"),
            (" \u{a0}\u{feff}\t", "ignored"),
            (r#"{"jsonrpc":"2.0","method":"system.shutdown"}"#, "ignored"),
            ("nope", "parse_error"),
            ("[1", "parse_error"),
            ("{}\0", "parse_error"),
            (r#"{"jsonrpc":"2.0","id":1,"method":"m"}{"jsonrpc":"2.0","id":1,"method":"m"}"#, "parse_error"),
            ("[]", "batch_not_supported"),
            (r#"[{"jsonrpc":"2.0","id":1,"method":"m"}]"#, "batch_not_supported"),
            ("42", "invalid_request"),
            ("\"hi\"", "invalid_request"),
            ("null", "invalid_request"),
            ("{}", "invalid_request"),
            (r#"{"jsonrpc":2.0,"id":1,"method":"m"}"#, "invalid_request"),
            (r#"{"jsonrpc":"2.0","id":true,"method":"m"}"#, "invalid_request"),
            (r#"{"jsonrpc":"2.0","id":{},"method":"m"}"#, "invalid_request"),
            (r#"{"jsonrpc":"2.0","id":[],"method":"m"}"#, "invalid_request"),
            (r#"{"jsonrpc":"2.0","id":1,"method":"  "}"#, "invalid_request"),
            (r#"{"jsonrpc":"2.0","id":1,"method":5}"#, "invalid_request"),
            (r#"{"jsonrpc":"2.0","method":" "}"#, "invalid_request"),
            (r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, "invalid_request"),
        ] {
            assert_eq!(classify_line(line), expected, "{line}");
        }
    }

    #[test]
    fn a_hundred_thousand_brackets_are_accepted() {
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(
            classify_line(&format!(r#"{{"jsonrpc":"2.0","id":1,"method":"m","params":{deep}}}"#)),
            "1 m"
        );
        assert_eq!(classify_line(&deep), "batch_not_supported");
    }
}
