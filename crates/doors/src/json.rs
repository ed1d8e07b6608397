//! Readers of JSON that build no tree, so the memory for a frame stays in proportion to its bytes.
//!
//! A tree of many tiny values takes a hundred times the bytes of their text. So a door names the members that it uses;
//! these readers validate every other value and drop it.

use std::fmt;

use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use serde_json::value::RawValue;

/// Any JSON value, validated as strictly as if it were built (numbers in range, no lone surrogates, at most 128 levels
/// of nesting) and then dropped. [`IgnoredAny`] does not check any of that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ValidAny;

impl<'de> Deserialize<'de> for ValidAny {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(HandlerVisitor(ValidAny))
    }
}

impl ValueHandler<'_> for ValidAny {
    type Value = Self;

    fn other(self) -> Self {
        self
    }
}

/// What to do with a value of each JSON type. By default a value is validated, dropped, and handed to `other`; no
/// type is an error.
pub(crate) trait ValueHandler<'de>: Sized {
    /// What a JSON value becomes.
    type Value;

    /// Handles a value whose type has no method of its own here.
    fn other(self) -> Self::Value;

    fn null(self) -> Self::Value {
        self.other()
    }

    /// Handles an integer that fits into an `i64`.
    fn integer(self) -> Self::Value {
        self.other()
    }

    fn text(self, _: &str) -> Self::Value {
        self.other()
    }

    fn array<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        while items.next_element::<ValidAny>()?.is_some() {}
        Ok(self.other())
    }

    fn object<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        while members.next_entry::<ValidAny, ValidAny>()?.is_some() {}
        Ok(self.other())
    }
}

/// The serde visitor that calls a [`ValueHandler`].
pub(crate) struct HandlerVisitor<L>(pub(crate) L);

impl<'de, L: ValueHandler<'de>> Visitor<'de> for HandlerVisitor<L> {
    type Value = L::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }
    fn visit_bool<E>(self, _: bool) -> Result<L::Value, E> {
        Ok(self.0.other())
    }
    fn visit_i64<E>(self, _: i64) -> Result<L::Value, E> {
        Ok(self.0.integer())
    }
    fn visit_u64<E>(self, number: u64) -> Result<L::Value, E> {
        Ok(if i64::try_from(number).is_ok() { self.0.integer() } else { self.0.other() })
    }
    fn visit_f64<E>(self, _: f64) -> Result<L::Value, E> {
        Ok(self.0.other())
    }
    fn visit_str<E>(self, text: &str) -> Result<L::Value, E> {
        Ok(self.0.text(text))
    }
    fn visit_unit<E>(self) -> Result<L::Value, E> {
        Ok(self.0.null())
    }
    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<L::Value, A::Error> {
        self.0.array(items)
    }
    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<L::Value, A::Error> {
        self.0.object(members)
    }
}

/// A member that is expected to be a string: its text, or the type that it has instead.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Member {
    #[default]
    Missing,
    Null,
    Text(String),
    Integer,
    Other,
}

impl Member {
    /// The text of a string, by value.
    pub(crate) fn into_text(self) -> Option<String> {
        match self {
            Self::Text(text) => Some(text),
            Self::Missing | Self::Null | Self::Integer | Self::Other => None,
        }
    }

    /// The text of a string, borrowed.
    pub(crate) fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Missing | Self::Null | Self::Integer | Self::Other => None,
        }
    }
}

impl<'de> Deserialize<'de> for Member {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MemberHandler;
        impl ValueHandler<'_> for MemberHandler {
            type Value = Member;

            fn other(self) -> Member {
                Member::Other
            }
            fn null(self) -> Member {
                Member::Null
            }
            fn integer(self) -> Member {
                Member::Integer
            }
            fn text(self, text: &str) -> Member {
                Member::Text(text.to_owned())
            }
        }
        deserializer.deserialize_any(HandlerVisitor(MemberHandler))
    }
}

/// The requested members of an object, still raw. If a member stands twice, the last one counts.
#[derive(Debug, Default)]
pub(crate) struct Members<'a>(Vec<(&'static str, &'a RawValue)>);

impl<'a> Members<'a> {
    /// Reads the members of `object` that have one of these names. Fails if `object` is not a JSON object.
    pub(crate) fn read(object: &'a str, names: &[&'static str]) -> serde_json::Result<Self> {
        let mut deserializer = serde_json::Deserializer::from_str(object);
        let members = MembersSeed(names).deserialize(&mut deserializer)?;
        deserializer.end()?;
        Ok(members)
    }

    /// The raw value of a member; `None` if the object lacks it.
    pub(crate) fn get(&self, name: &str) -> Option<&'a RawValue> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
    }
}

/// Reads an object and keeps the members with these names.
struct MembersSeed<'n>(&'n [&'static str]);

impl<'de> DeserializeSeed<'de> for MembersSeed<'_> {
    type Value = Members<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Members<'de>, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for MembersSeed<'_> {
    type Value = Members<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
        let mut members: Vec<(&'static str, &'de RawValue)> = Vec::new();
        while let Some(name) = map.next_key_seed(KnownName(self.0))? {
            let Some(name) = name else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            let value = map.next_value()?;
            match members.iter_mut().find(|(known, _)| *known == name) {
                Some(member) => member.1 = value,
                None => members.push((name, value)),
            }
        }
        Ok(Members(members))
    }
}

/// Reads a string and returns the one of these names that it equals, if any.
pub(crate) struct KnownName<'n>(pub(crate) &'n [&'static str]);

impl<'de> DeserializeSeed<'de> for KnownName<'_> {
    type Value = Option<&'static str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for KnownName<'_> {
    type Value = Option<&'static str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string key")
    }
    fn visit_str<E: Error>(self, key: &str) -> Result<Self::Value, E> {
        Ok(self.0.iter().find(|name| **name == key).copied())
    }
}

/// Calls `take` with each item of an array until it returns `false`. Returns whether it took all items; `false` if
/// `array` is not a JSON array.
pub(crate) fn for_each_item<'a>(array: &'a str, take: impl FnMut(&'a RawValue) -> bool) -> bool {
    struct Items<F>(F);
    impl<'de, F: FnMut(&'de RawValue) -> bool> Visitor<'de> for Items<F> {
        type Value = ();

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an array")
        }
        fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<(), A::Error> {
            while let Some(item) = items.next_element()? {
                if !(self.0)(item) {
                    return Err(A::Error::custom("the caller wants no more items"));
                }
            }
            Ok(())
        }
    }
    serde_json::Deserializer::from_str(array).deserialize_seq(Items(take)).is_ok()
}

/// Which of `texts` are items of `array`. None are, unless `array` is a JSON array of strings only.
pub(crate) fn strings_in<const N: usize>(array: &str, texts: [&'static str; N]) -> [bool; N] {
    let mut found = [false; N];
    let are_texts = for_each_item(array, |item| {
        let text = KnownName(&texts).deserialize(&mut serde_json::Deserializer::from_str(item.get()));
        for (is_found, known) in found.iter_mut().zip(texts) {
            *is_found |= matches!(text, Ok(Some(text)) if text == known);
        }
        text.is_ok()
    });
    if are_texts { found } else { [false; N] }
}

/// The longest error text of a parser that is passed on. Such a text may quote a string that fills the whole frame.
const MAX_ERROR_TEXT_BYTES: usize = 2048;

/// The text of a parser's error, truncated to [`MAX_ERROR_TEXT_BYTES`].
pub(crate) fn error_text(error: &serde_json::Error) -> String {
    struct TruncatedText(String);
    impl fmt::Write for TruncatedText {
        fn write_str(&mut self, piece: &str) -> fmt::Result {
            let room = MAX_ERROR_TEXT_BYTES - self.0.len();
            let end = if piece.len() <= room { piece.len() } else { piece.floor_char_boundary(room) };
            self.0.push_str(piece.get(..end).unwrap_or_default());
            if end < piece.len() { Err(fmt::Error) } else { Ok(()) }
        }
    }
    let mut text = TruncatedText(String::new());
    // An error means that the text was truncated.
    let _ = fmt::Write::write_fmt(&mut text, format_args!("{error}"));
    text.0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    #[test]
    fn validation_is_as_strict_as_building_a_tree() {
        let deep = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        let texts = [
            "1e999",
            "-1e999",
            "1e99",
            "18446744073709551616",
            "-0",
            "01",
            "nul",
            "null ",
            "{} {}",
            "[1,]",
            r#""\ud800""#,
            r#""\ud83d\ude00""#,
            r#"{"\ud800":1}"#,
            "\"\u{1}\"",
            "{\"a\":1,\"a\":[]}",
            "",
        ];
        for text in texts.into_iter().map(str::to_owned).chain([deep(127), deep(128), deep(100_000)]) {
            let built = serde_json::from_str::<Value>(&text).map(|_| ()).map_err(|error| error.to_string());
            let checked =
                serde_json::from_str::<ValidAny>(&text).map(|_| ()).map_err(|error| error.to_string());
            let member = serde_json::from_str::<Member>(&text).map(|_| ()).map_err(|error| error.to_string());
            assert_eq!(checked, built, "{text:.40}");
            assert_eq!(member, built, "{text:.40}");
        }
        assert!(serde_json::from_slice::<ValidAny>(b"[\"\xff\"]").is_err());
    }

    #[test]
    fn a_member_keeps_a_text_and_names_other_types() {
        for (text, member) in [
            ("null", Member::Null),
            (r#""\u00e4""#, Member::Text("\u{e4}".to_owned())),
            ("-5", Member::Integer),
            ("9223372036854775807", Member::Integer),
            ("9223372036854775808", Member::Other),
            ("1.0", Member::Other),
            ("true", Member::Other),
            ("[\"x\"]", Member::Other),
            ("{\"x\":1}", Member::Other),
        ] {
            assert_eq!(serde_json::from_str::<Member>(text).unwrap(), member, "{text}");
        }
    }

    #[test]
    fn requested_members_are_found_and_the_last_one_counts() {
        let members = Members::read(r#"{"a":1,"x":[[]],"\u0061":2,"b":null}"#, &["a", "b", "c"]).unwrap();
        assert_eq!(members.get("a").unwrap().get(), "2");
        assert_eq!(members.get("b").unwrap().get(), "null");
        assert!(members.get("c").is_none() && members.get("x").is_none());
        for wrong in ["[]", "5", "{} x", r#"{"\ud800":1}"#] {
            assert!(Members::read(wrong, &["a"]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn items_are_taken_until_the_caller_stops() {
        let mut seen = Vec::new();
        assert!(for_each_item(r#"[1, [2] ,"x"]"#, |item| {
            seen.push(item.get().to_owned());
            true
        }));
        assert_eq!(seen, ["1", "[2]", "\"x\""]);
        assert!(!for_each_item("[1,2]", |item| item.get() == "1"));
        assert!(for_each_item("[]", |_| false) && !for_each_item("{}", |_| true));
    }

    #[test]
    fn strings_are_found_in_arrays_of_strings_only() {
        assert_eq!(strings_in(r#"["x","b","\u0061"]"#, ["a", "b", "c"]), [true, true, false]);
        for array in ["[]", "\"a\"", "null", r#"["a",1]"#, r#"["a",null]"#, ""] {
            assert_eq!(strings_in(array, ["a"]), [false], "{array}");
        }
    }

    #[test]
    fn a_long_parser_error_is_truncated() {
        let long = format!("\"{}\"", "\u{e4}".repeat(MAX_ERROR_TEXT_BYTES));
        let error = serde_json::from_str::<u8>(&long).unwrap_err();
        let text = error_text(&error);
        assert!(text.starts_with("invalid type: string") && text.len() <= MAX_ERROR_TEXT_BYTES, "{text}");
        let error = serde_json::from_str::<u8>("[]").unwrap_err();
        assert_eq!(error_text(&error), error.to_string());
    }

    proptest! {
        #[test]
        fn any_text_is_validated_as_it_is_built(text in r#"[\[\]{}",:0-9eE.+\-a-z\\ ]{0,40}"#) {
            let built = serde_json::from_str::<Value>(&text).is_ok();
            prop_assert_eq!(serde_json::from_str::<ValidAny>(&text).is_ok(), built);
        }
    }
}
