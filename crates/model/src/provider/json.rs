//! Reading JSON of others: what is of another type than it should be counts as absent.
//!
//! Frames are read into types of our own, not into `serde_json::Value`: a value takes up to forty times the memory of
//! its text. What no type asks for is passed over without a copy, at any depth.

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::ProviderError;

/// A member of a frame, for `deserialize_with`.
pub(super) fn lenient<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    let raw = <&'de RawValue>::deserialize(deserializer)?;
    Ok(serde_json::from_str(raw.get()).unwrap_or_default())
}

/// The same of a member that is an object. serde would also fill a struct from a list, by place.
pub(super) fn lenient_object<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(object(<&'de RawValue>::deserialize(deserializer)?).unwrap_or_default())
}

/// A number of tokens. One that nobody could have read or written is cut, so that sums stay small.
pub(super) fn tokens<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let told: Option<u64> = lenient(deserializer)?;
    Ok(told.map(|tokens| tokens.min(u64::from(u32::MAX))))
}

/// A frame. An error if it is no JSON at all.
pub(super) fn frame<'de, T: Deserialize<'de> + Default>(data: &'de str) -> Result<T, ProviderError> {
    let raw: &RawValue =
        serde_json::from_str(data).map_err(|error| ProviderError::broken(error.to_string()))?;
    Ok(object(raw).unwrap_or_default())
}

/// An object, if it is one.
pub(super) fn object<'de, T: Deserialize<'de>>(raw: &'de RawValue) -> Option<T> {
    Some(raw).filter(|raw| raw.get().starts_with('{')).and_then(value)
}

/// A text or a list, if it is one.
pub(super) fn value<'de, T: Deserialize<'de>>(raw: &'de RawValue) -> Option<T> {
    serde_json::from_str(raw.get()).ok()
}

/// The input of a call: its text, or the object that some send in the place of the text.
pub(super) fn input(arguments: Option<&RawValue>) -> String {
    let Some(arguments) = arguments else { return String::new() };
    if arguments.get().starts_with('{') {
        arguments.get().to_owned()
    } else {
        value(arguments).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default, Deserialize)]
    #[serde(default)]
    struct Sample<'f> {
        #[serde(deserialize_with = "lenient")]
        text: String,
        #[serde(deserialize_with = "tokens")]
        count: Option<u64>,
        #[serde(borrow, deserialize_with = "lenient")]
        list: Vec<&'f RawValue>,
    }

    #[test]
    fn what_is_of_another_type_is_absent() {
        let sample: Sample<'_> = frame(r#"{"text":5,"count":-1,"list":[1,"a"],"more":[{}]}"#).unwrap();
        assert_eq!((sample.text.as_str(), sample.count, sample.list.len()), ("", None, 2));
        let sample: Sample<'_> = frame(r#"{"text":"a","count":99999999999,"list":null}"#).unwrap();
        assert_eq!((sample.text.as_str(), sample.count), ("a", Some(u64::from(u32::MAX))));
        assert!(frame::<Sample<'_>>(r#"["a"]"#).unwrap().text.is_empty(), "a list is no object");
        assert!(frame::<Sample<'_>>("{").is_err());
    }

    #[test]
    fn depth_costs_no_stack() {
        let deep = format!("{{\"more\":{}{}}}", "[".repeat(1 << 20), "]".repeat(1 << 20));
        assert!(frame::<Sample<'_>>(&deep).is_ok());
    }
}
