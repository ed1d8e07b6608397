//! Patterns that frames are compared with: JSON with words such as `_` for values that may differ.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::notation::{MARK, pattern_to_json, text_to_bytes};

/// A member of this name in an object allows it to have more members; at the end of an array, it
/// allows more items like the one before.
const MORE: &str = "...";

/// The strings that a play has named with `as`.
pub(crate) type NamedStrings = BTreeMap<String, String>;

/// One value of a pattern.
#[derive(Debug)]
pub(crate) enum Pattern {
    /// `_`
    Any,
    /// `has"…"`
    Has(String),
    /// `b64"…"`
    Bytes(Vec<u8>),
    /// `size"…"`
    Size(usize),
    /// `as"…"`
    As(String),
    /// `not"…"`
    Not(String),
    /// Null, a boolean, a number or a string.
    Exactly(Value),
    Array {
        items: Vec<Pattern>,
        /// Whether more items may follow that match the last pattern.
        more: bool,
    },
    Object {
        members: BTreeMap<String, Pattern>,
        more: bool,
    },
}

impl Pattern {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let json = serde_json::from_str(&pattern_to_json(text))
            .map_err(|error| format!("the pattern is not JSON: {error}"))?;
        Self::from_value(json)
    }

    fn from_value(value: Value) -> Result<Self, String> {
        Ok(match value {
            Value::Array(mut items) => {
                let more = items.len() > 1 && items.pop_if(|last| last == MORE).is_some();
                Self::Array {
                    items: items.into_iter().map(Self::from_value).collect::<Result<_, _>>()?,
                    more,
                }
            }
            Value::Object(members) => {
                let mut members: BTreeMap<String, Value> = members.into_iter().collect();
                if let Some((name, text)) = members.first_key_value()
                    && let Some(word) = name.strip_prefix(MARK)
                {
                    return Self::from_word(word, text.as_str().unwrap_or_default());
                }
                let more = members.remove(MORE).is_some();
                let members = members
                    .into_iter()
                    .map(|(name, value)| Ok((name, Self::from_value(value)?)))
                    .collect::<Result<_, String>>()?;
                Self::Object { members, more }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Self::Exactly(value),
        })
    }

    fn from_word(word: &str, text: &str) -> Result<Self, String> {
        match word {
            "_" => Ok(Self::Any),
            "has" => Ok(Self::Has(text.to_owned())),
            "b64" => text_to_bytes(text).map(Self::Bytes),
            "as" => Ok(Self::As(text.to_owned())),
            "not" => Ok(Self::Not(text.to_owned())),
            "size" => text.parse().map(Self::Size).map_err(|error| format!("size{text:?}: {error}")),
            _ => Err(format!("no such word: {word}")),
        }
    }

    /// Whether `value` matches. If it does, adds the strings that the pattern names to `names`.
    pub(crate) fn matches(&self, value: &Value, names: &mut NamedStrings) -> bool {
        let mut new_names = names.clone();
        let is_match = self.matches_value(value, &mut new_names);
        if is_match {
            *names = new_names;
        }
        is_match
    }

    fn matches_value(&self, value: &Value, names: &mut NamedStrings) -> bool {
        match self {
            Self::Any => true,
            Self::Has(part) => value.as_str().is_some_and(|text| text.contains(part.as_str())),
            Self::Bytes(bytes) => decoded(value).is_some_and(|decoded| decoded == *bytes),
            Self::Size(size) => decoded(value).is_some_and(|decoded| decoded.len() == *size),
            Self::As(name) => value.as_str().is_some_and(|text| {
                names.entry(name.clone()).or_insert_with(|| text.to_owned()).as_str() == text
            }),
            Self::Not(name) => {
                let named = names.get(name);
                value.as_str().is_some_and(|text| named.is_some_and(|named| named != text))
            }
            Self::Exactly(expected) => value == expected,
            Self::Array { items, more } => value.as_array().is_some_and(|values| {
                let last = items.last().filter(|_| *more);
                let patterns = items.iter().chain(last.into_iter().cycle());
                (values.len() == items.len() || (*more && values.len() > items.len()))
                    && patterns.zip(values).all(|(pattern, value)| pattern.matches_value(value, names))
            }),
            Self::Object { members, more } => value.as_object().is_some_and(|object| {
                (*more || object.len() == members.len())
                    && members.iter().all(|(name, pattern)| {
                        object.get(name).is_some_and(|value| pattern.matches_value(value, names))
                    })
            }),
        }
    }
}

fn decoded(value: &Value) -> Option<Vec<u8>> {
    base64_simd::STANDARD.decode_to_vec(value.as_str()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, value: &str) -> bool {
        matches_under(&mut NamedStrings::new(), pattern, value)
    }

    fn matches_under(names: &mut NamedStrings, pattern: &str, value: &str) -> bool {
        Pattern::parse(pattern).unwrap().matches(&serde_json::from_str(value).unwrap(), names)
    }

    #[test]
    fn plain_json_matches_itself_with_members_in_any_order() {
        let text = r#"{"a":[1,"x",null,true],"b":{"c":1.5}}"#;
        assert!(matches(text, text));
        assert!(matches(text, r#"{"b":{"c":1.5},"a":[1,"x",null,true]}"#));
        for other in ["1.0", "\"1\"", "2", "null", "[1]"] {
            assert!(!matches("1", other), "{other}");
        }
        assert!(!matches("[1,2]", "[1]"));
        assert!(!matches("[1]", "[1,2]"));
    }

    #[test]
    fn an_additional_or_missing_member_is_a_mismatch_unless_more_are_allowed() {
        assert!(!matches(r#"{"id":1}"#, r#"{"id":1,"jsonrpc":"2.0"}"#));
        assert!(!matches(r#"{"id":1,"x":2}"#, r#"{"id":1}"#));
        assert!(matches(r#"{"id":1,"...":_}"#, r#"{"id":1,"jsonrpc":"2.0"}"#));
        assert!(matches(r#"{"id":1,"...":_}"#, r#"{"id":1}"#));
        assert!(!matches(r#"{"id":1,"...":_}"#, r#"{"id":2,"x":1}"#));
        assert!(!matches(r#"{"id":1,"...":_}"#, r#"{"x":1}"#));
    }

    #[test]
    fn any_matches_every_value_and_no_missing_member() {
        for value in ["null", "1", "\"x\"", "[]", "{}"] {
            assert!(matches("_", value), "{value}");
        }
        assert!(matches(r#"{"a":_}"#, r#"{"a":null}"#));
        assert!(!matches(r#"{"a":_}"#, "{}"));
        assert!(!matches(r#""_""#, r#""x""#), "inside a string it is a character");
    }

    #[test]
    fn a_part_of_a_string_is_enough_for_has() {
        assert!(matches(r#"has"b\"c""#, r#""ab\"cd""#));
        assert!(!matches(r#"has"b""#, r#""ac""#));
        assert!(!matches(r#"has"1""#, "1"));
    }

    #[test]
    fn base64_is_compared_as_bytes() {
        assert!(matches(r#"b64"hello\n""#, r#""aGVsbG8K""#));
        assert!(matches(r#"b64"\u0000\u00ff""#, r#""AP8=""#));
        assert!(!matches(r#"b64"hello""#, r#""aGVsbG8K""#));
        assert!(!matches(r#"b64"""#, r#""a""#), "invalid base64 matches nothing");
        assert!(matches(r#"size"6""#, r#""aGVsbG8K""#));
        assert!(!matches(r#"size"7""#, r#""aGVsbG8K""#));
    }

    #[test]
    fn a_named_string_is_the_same_everywhere() {
        let mut names = NamedStrings::new();
        assert!(!matches_under(&mut names, r#"[as"s",2]"#, r#"["a",1]"#));
        assert!(names.is_empty(), "a mismatch names no string");
        assert!(!matches_under(&mut names, r#"not"s""#, r#""b""#), "no string has this name yet");
        assert!(matches_under(&mut names, r#"[as"s",as"s"]"#, r#"["a","a"]"#));
        assert!(!matches_under(&mut names, r#"as"s""#, r#""b""#));
        assert!(matches_under(&mut names, r#"not"s""#, r#""b""#));
        assert!(!matches_under(&mut names, r#"not"s""#, r#""a""#));
        assert!(!matches_under(&mut names, r#"as"n""#, "1"), "only strings can be named");
    }

    #[test]
    fn an_array_may_continue_with_similar_items() {
        assert!(matches(r#"[1,{"a":_},"..."]"#, r#"[1,{"a":2}]"#));
        assert!(matches(r#"[1,{"a":_},"..."]"#, r#"[1,{"a":2},{"a":3},{"a":4}]"#));
        for other in [r#"[1,{"a":2},{"b":3}]"#, "[1]", "[]"] {
            assert!(!matches(r#"[1,{"a":_},"..."]"#, other), "{other}");
        }
        assert!(matches(r#"["..."]"#, r#"["..."]"#), "alone it is an ordinary string");
    }

    #[test]
    fn invalid_patterns_are_refused() {
        for text in ["{", "", "nope\"x\"", "has", "size\"many\"", "b64\"\\u0100\"", "{\"a\":__}"] {
            assert!(Pattern::parse(text).is_err(), "{text}");
        }
    }
}
