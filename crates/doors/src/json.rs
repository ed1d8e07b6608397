//! Reading JSON without building it: what a frame takes stays in proportion to its bytes.
//!
//! A tree of many tiny values takes a hundred times the bytes of their text. So doors name the members that they use,
//! and everything else is checked and dropped as it is read.

use std::fmt;

use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use serde_json::value::RawValue;

/// Any value, checked as strictly as if it were built (numbers in range, whole letters, no more than 128 levels), and
/// dropped. [`IgnoredAny`] lets all of that pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Checked;

impl<'de> Deserialize<'de> for Checked {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(LenientVisitor(Checked))
    }
}

impl Lenient<'_> for Checked {
    type Value = Self;

    fn other(self) -> Self {
        self
    }
}

/// Takes values of some kinds; those of all others are checked and dropped, and are no error.
pub(crate) trait Lenient<'de>: Sized {
    /// What a value becomes.
    type Value;

    /// For a value of any other kind.
    fn other(self) -> Self::Value;

    fn null(self) -> Self::Value {
        self.other()
    }

    /// For an integer that fits 64 bits with a sign.
    fn integer(self) -> Self::Value {
        self.other()
    }

    fn text(self, _: &str) -> Self::Value {
        self.other()
    }

    fn array<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        while items.next_element::<Checked>()?.is_some() {}
        Ok(self.other())
    }

    fn object<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        while members.next_entry::<Checked, Checked>()?.is_some() {}
        Ok(self.other())
    }
}

/// What reads a value for a [`Lenient`].
pub(crate) struct LenientVisitor<L>(pub(crate) L);

impl<'de, L: Lenient<'de>> Visitor<'de> for LenientVisitor<L> {
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

/// A member of which nothing but a text is of use.
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
    /// The text, if it is one.
    pub(crate) fn into_text(self) -> Option<String> {
        match self {
            Self::Text(text) => Some(text),
            Self::Missing | Self::Null | Self::Integer | Self::Other => None,
        }
    }

    /// The same, left where it is.
    pub(crate) fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Missing | Self::Null | Self::Integer | Self::Other => None,
        }
    }
}

impl<'de> Deserialize<'de> for Member {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AnyMember;
        impl Lenient<'_> for AnyMember {
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
        deserializer.deserialize_any(LenientVisitor(AnyMember))
    }
}

/// The members of an object that somebody asked for, still raw. Of those that come twice the last one counts.
#[derive(Debug, Default)]
pub(crate) struct Members<'a>(Vec<(&'static str, &'a RawValue)>);

impl<'a> Members<'a> {
    /// Those of `object` with one of these names.
    pub(crate) fn read(object: &'a str, names: &[&'static str]) -> serde_json::Result<Self> {
        let mut deserializer = serde_json::Deserializer::from_str(object);
        let members = Named(names).deserialize(&mut deserializer)?;
        deserializer.end()?;
        Ok(members)
    }

    /// What the member holds, if it is there.
    pub(crate) fn get(&self, name: &str) -> Option<&'a RawValue> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
    }
}

struct Named<'n>(&'n [&'static str]);

impl<'de> DeserializeSeed<'de> for Named<'_> {
    type Value = Members<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Members<'de>, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Named<'_> {
    type Value = Members<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
        let mut members: Vec<(&'static str, &'de RawValue)> = Vec::new();
        while let Some(name) = map.next_key_seed(NameOf(self.0))? {
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

/// Which of these names a key is, if any.
struct NameOf<'n>(&'n [&'static str]);

impl<'de> DeserializeSeed<'de> for NameOf<'_> {
    type Value = Option<&'static str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for NameOf<'_> {
    type Value = Option<&'static str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string key")
    }
    fn visit_str<E: Error>(self, key: &str) -> Result<Self::Value, E> {
        Ok(self.0.iter().find(|name| **name == key).copied())
    }
}

/// Hands the items of an array to `take`, one after another, while it says yes. Tells whether it took all of them; what is
/// no array has none, and gives `false`.
pub(crate) fn take_items<'a>(array: &'a str, take: impl FnMut(&'a RawValue) -> bool) -> bool {
    struct Items<F>(F);
    impl<'de, F: FnMut(&'de RawValue) -> bool> Visitor<'de> for Items<F> {
        type Value = ();

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an array")
        }
        fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<(), A::Error> {
            while let Some(item) = items.next_element()? {
                if !(self.0)(item) {
                    return Err(A::Error::custom("no more is wanted"));
                }
            }
            Ok(())
        }
    }
    serde_json::Deserializer::from_str(array).deserialize_seq(Items(take)).is_ok()
}

/// Which of `texts` are items of `array`: none of them, unless it is an array of texts.
pub(crate) fn texts_in<const N: usize>(array: &str, texts: [&'static str; N]) -> [bool; N] {
    let mut found = [false; N];
    let are_texts = take_items(array, |item| {
        let text = NameOf(&texts).deserialize(&mut serde_json::Deserializer::from_str(item.get()));
        for (is_found, known) in found.iter_mut().zip(texts) {
            *is_found |= matches!(text, Ok(Some(text)) if text == known);
        }
        text.is_ok()
    });
    if are_texts { found } else { [false; N] }
}

/// How much of what a parser says is passed on. It may quote a string of the frame, and that may be all of it.
const MAX_SAID_BYTES: usize = 2048;

/// What the parser says of a flaw, cut if it is long.
pub(crate) fn words_of(error: &serde_json::Error) -> String {
    struct Cut(String);
    impl fmt::Write for Cut {
        fn write_str(&mut self, piece: &str) -> fmt::Result {
            let room = MAX_SAID_BYTES - self.0.len();
            let end = if piece.len() <= room { piece.len() } else { piece.floor_char_boundary(room) };
            self.0.push_str(piece.get(..end).unwrap_or_default());
            if end < piece.len() { Err(fmt::Error) } else { Ok(()) }
        }
    }
    let mut said = Cut(String::new());
    // An error means that it was cut.
    let _ = fmt::Write::write_fmt(&mut said, format_args!("{error}"));
    said.0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    #[test]
    fn what_is_checked_is_what_can_be_built() {
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
                serde_json::from_str::<Checked>(&text).map(|_| ()).map_err(|error| error.to_string());
            let member = serde_json::from_str::<Member>(&text).map(|_| ()).map_err(|error| error.to_string());
            assert_eq!(checked, built, "{text:.40}");
            assert_eq!(member, built, "{text:.40}");
        }
        assert!(serde_json::from_slice::<Checked>(b"[\"\xff\"]").is_err());
    }

    #[test]
    fn a_member_is_told_apart_as_far_as_it_matters() {
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
    fn named_members_are_found_and_the_last_counts() {
        let members = Members::read(r#"{"a":1,"x":[[]],"\u0061":2,"b":null}"#, &["a", "b", "c"]).unwrap();
        assert_eq!(members.get("a").unwrap().get(), "2");
        assert_eq!(members.get("b").unwrap().get(), "null");
        assert!(members.get("c").is_none() && members.get("x").is_none());
        for wrong in ["[]", "5", "{} x", r#"{"\ud800":1}"#] {
            assert!(Members::read(wrong, &["a"]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn items_are_taken_until_one_is_not() {
        let mut seen = Vec::new();
        assert!(take_items(r#"[1, [2] ,"x"]"#, |item| {
            seen.push(item.get().to_owned());
            true
        }));
        assert_eq!(seen, ["1", "[2]", "\"x\""]);
        assert!(!take_items("[1,2]", |item| item.get() == "1"));
        assert!(take_items("[]", |_| false) && !take_items("{}", |_| true));
    }

    #[test]
    fn texts_are_found_among_texts_alone() {
        assert_eq!(texts_in(r#"["x","b","\u0061"]"#, ["a", "b", "c"]), [true, true, false]);
        for array in ["[]", "\"a\"", "null", r#"["a",1]"#, r#"["a",null]"#, ""] {
            assert_eq!(texts_in(array, ["a"]), [false], "{array}");
        }
    }

    #[test]
    fn what_a_parser_quotes_is_cut() {
        let long = format!("\"{}\"", "\u{e4}".repeat(MAX_SAID_BYTES));
        let error = serde_json::from_str::<u8>(&long).unwrap_err();
        let said = words_of(&error);
        assert!(said.starts_with("invalid type: string") && said.len() <= MAX_SAID_BYTES, "{said}");
        let error = serde_json::from_str::<u8>("[]").unwrap_err();
        assert_eq!(words_of(&error), error.to_string());
    }

    proptest! {
        #[test]
        fn any_text_is_checked_as_it_is_built(text in r#"[\[\]{}",:0-9eE.+\-a-z\\ ]{0,40}"#) {
            let built = serde_json::from_str::<Value>(&text).is_ok();
            prop_assert_eq!(serde_json::from_str::<Checked>(&text).is_ok(), built);
        }
    }
}
