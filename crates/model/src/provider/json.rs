//! Lenient decoding of providers' JSON: a member of an unexpected type counts as absent.
//!
//! Frames are decoded into structs instead of `serde_json::Value`, because a value takes up to forty times the memory of its
//! text. Unknown members are skipped without a copy, at any depth.

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::ProviderError;

/// For `deserialize_with`: the default value if the member has another type.
pub(super) fn lenient<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    let raw = <&'de RawValue>::deserialize(deserializer)?;
    Ok(serde_json::from_str(raw.get()).unwrap_or_default())
}

/// Like [`lenient`], for a member that must be an object. Without this, serde would also accept a list for a struct.
pub(super) fn lenient_object<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(object(<&'de RawValue>::deserialize(deserializer)?).unwrap_or_default())
}

/// For `deserialize_with`: a number of tokens, at most `u32::MAX`, so that sums cannot overflow.
pub(super) fn tokens<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let count: Option<u64> = lenient(deserializer)?;
    Ok(count.map(|tokens| tokens.min(u64::from(u32::MAX))))
}

/// Decodes a frame. Fails only if it is not valid JSON.
pub(super) fn frame<'de, T: Deserialize<'de> + Default>(data: &'de str) -> Result<T, ProviderError> {
    let raw: &RawValue =
        serde_json::from_str(data).map_err(|error| ProviderError::broken(error.to_string()))?;
    Ok(object(raw).unwrap_or_default())
}

/// Decodes an object. `None` if it is not an object or does not fit.
pub(super) fn object<'de, T: Deserialize<'de>>(raw: &'de RawValue) -> Option<T> {
    Some(raw).filter(|raw| raw.get().starts_with('{')).and_then(value)
}

/// Decodes a string or a list. `None` if it does not fit.
pub(super) fn value<'de, T: Deserialize<'de>>(raw: &'de RawValue) -> Option<T> {
    serde_json::from_str(raw.get()).ok()
}

/// The input of a call: JSON text, or the object that some servers send instead.
pub(super) fn call_input(arguments: Option<&RawValue>) -> String {
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
    fn members_of_another_type_count_as_absent() {
        let sample: Sample<'_> = frame(r#"{"text":5,"count":-1,"list":[1,"a"],"more":[{}]}"#).unwrap();
        assert_eq!((sample.text.as_str(), sample.count, sample.list.len()), ("", None, 2));
        let sample: Sample<'_> = frame(r#"{"text":"a","count":99999999999,"list":null}"#).unwrap();
        assert_eq!((sample.text.as_str(), sample.count), ("a", Some(u64::from(u32::MAX))));
        assert!(frame::<Sample<'_>>(r#"["a"]"#).unwrap().text.is_empty(), "a list is not an object");
        assert!(frame::<Sample<'_>>("{").is_err());
    }

    #[test]
    fn deep_nesting_does_not_use_the_stack() {
        let deep = format!("{{\"more\":{}{}}}", "[".repeat(1 << 20), "]".repeat(1 << 20));
        assert!(frame::<Sample<'_>>(&deep).is_ok());
    }
}
