//! What a frame is compared with: JSON in which some values are left open.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::notation::{MARK, bytes_of, pattern_to_json};

/// A member of this name in an object allows it to have more members; at the end of an array, it
/// allows more items like the one before.
const MORE: &str = "...";

/// The strings that a play has given a name, by `as`.
pub(crate) type Names = BTreeMap<String, String>;

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
        /// Whether more may follow that match the last.
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
            .map_err(|error| format!("the pattern is no JSON: {error}"))?;
        Self::of(json)
    }

    fn of(value: Value) -> Result<Self, String> {
        Ok(match value {
            Value::Array(mut items) => {
                let more = items.len() > 1 && items.pop_if(|last| last == MORE).is_some();
                Self::Array { items: items.into_iter().map(Self::of).collect::<Result<_, _>>()?, more }
            }
            Value::Object(members) => {
                let mut members: BTreeMap<String, Value> = members.into_iter().collect();
                if let Some((name, text)) = members.first_key_value()
                    && let Some(word) = name.strip_prefix(MARK)
                {
                    return Self::of_word(word, text.as_str().unwrap_or_default());
                }
                let more = members.remove(MORE).is_some();
                let members = members
                    .into_iter()
                    .map(|(name, value)| Ok((name, Self::of(value)?)))
                    .collect::<Result<_, String>>()?;
                Self::Object { members, more }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Self::Exactly(value),
        })
    }

    fn of_word(word: &str, text: &str) -> Result<Self, String> {
        match word {
            "_" => Ok(Self::Any),
            "has" => Ok(Self::Has(text.to_owned())),
            "b64" => bytes_of(text).map(Self::Bytes),
            "as" => Ok(Self::As(text.to_owned())),
            "not" => Ok(Self::Not(text.to_owned())),
            "size" => text.parse().map(Self::Size).map_err(|error| format!("size{text:?}: {error}")),
            _ => Err(format!("no such word: {word}")),
        }
    }

    /// Whether `value` is such a one. If so, `names` has the strings that this gives a name.
    pub(crate) fn matches(&self, value: &Value, names: &mut Names) -> bool {
        let mut given = names.clone();
        let does = self.fits(value, &mut given);
        if does {
            *names = given;
        }
        does
    }

    fn fits(&self, value: &Value, names: &mut Names) -> bool {
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
                    && patterns.zip(values).all(|(pattern, value)| pattern.fits(value, names))
            }),
            Self::Object { members, more } => value.as_object().is_some_and(|object| {
                (*more || object.len() == members.len())
                    && members.iter().all(|(name, pattern)| {
                        object.get(name).is_some_and(|value| pattern.fits(value, names))
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
        matches_under(&mut Names::new(), pattern, value)
    }

    fn matches_under(names: &mut Names, pattern: &str, value: &str) -> bool {
        Pattern::parse(pattern).unwrap().matches(&serde_json::from_str(value).unwrap(), names)
    }

    #[test]
    fn plain_json_matches_itself_in_any_order_of_members() {
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
    fn a_member_too_many_or_too_few_is_seen_unless_more_are_allowed() {
        assert!(!matches(r#"{"id":1}"#, r#"{"id":1,"jsonrpc":"2.0"}"#));
        assert!(!matches(r#"{"id":1,"x":2}"#, r#"{"id":1}"#));
        assert!(matches(r#"{"id":1,"...":_}"#, r#"{"id":1,"jsonrpc":"2.0"}"#));
        assert!(matches(r#"{"id":1,"...":_}"#, r#"{"id":1}"#));
        assert!(!matches(r#"{"id":1,"...":_}"#, r#"{"id":2,"x":1}"#));
        assert!(!matches(r#"{"id":1,"...":_}"#, r#"{"x":1}"#));
    }

    #[test]
    fn anything_matches_what_is_there_even_null_and_nothing_else() {
        for value in ["null", "1", "\"x\"", "[]", "{}"] {
            assert!(matches("_", value), "{value}");
        }
        assert!(matches(r#"{"a":_}"#, r#"{"a":null}"#));
        assert!(!matches(r#"{"a":_}"#, "{}"));
        assert!(!matches(r#""_""#, r#""x""#), "inside a string it is a letter");
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
        assert!(!matches(r#"b64"""#, r#""a""#), "what is no base64 matches nothing");
        assert!(matches(r#"size"6""#, r#""aGVsbG8K""#));
        assert!(!matches(r#"size"7""#, r#""aGVsbG8K""#));
    }

    #[test]
    fn a_named_string_is_the_same_everywhere() {
        let mut names = Names::new();
        assert!(!matches_under(&mut names, r#"[as"s",2]"#, r#"["a",1]"#));
        assert!(names.is_empty(), "what does not match gives no name");
        assert!(!matches_under(&mut names, r#"not"s""#, r#""b""#), "nothing is named so yet");
        assert!(matches_under(&mut names, r#"[as"s",as"s"]"#, r#"["a","a"]"#));
        assert!(!matches_under(&mut names, r#"as"s""#, r#""b""#));
        assert!(matches_under(&mut names, r#"not"s""#, r#""b""#));
        assert!(!matches_under(&mut names, r#"not"s""#, r#""a""#));
        assert!(!matches_under(&mut names, r#"as"n""#, "1"), "a name is for strings");
    }

    #[test]
    fn an_array_may_go_on_in_the_same_way() {
        assert!(matches(r#"[1,{"a":_},"..."]"#, r#"[1,{"a":2}]"#));
        assert!(matches(r#"[1,{"a":_},"..."]"#, r#"[1,{"a":2},{"a":3},{"a":4}]"#));
        for other in [r#"[1,{"a":2},{"b":3}]"#, "[1]", "[]"] {
            assert!(!matches(r#"[1,{"a":_},"..."]"#, other), "{other}");
        }
        assert!(matches(r#"["..."]"#, r#"["..."]"#), "alone it is a string");
    }

    #[test]
    fn what_is_no_pattern_is_refused() {
        for text in ["{", "", "nope\"x\"", "has", "size\"many\"", "b64\"\\u0100\"", "{\"a\":__}"] {
            assert!(Pattern::parse(text).is_err(), "{text}");
        }
    }
}
