//! Decodes the JSON input of a tool, with failures that tell the agent how to correct it.

use parlor_vocab::{Failure, FailureCode};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::failure::{self, invalid};
use crate::tool::Tool;

/// The longest input of a call, in bytes. A long input is mostly the content of a file to write.
pub const INPUT_BYTES: usize = 16 << 20;

/// Decodes the input of `tool`.
pub(crate) fn decode<T: DeserializeOwned>(tool: &dyn Tool, input: &str) -> Result<T, Failure> {
    if input.len() > INPUT_BYTES {
        let message = format!("an input of {} bytes is longer than the limit of {INPUT_BYTES}", input.len());
        return Err(failure::failure(FailureCode::TooLarge, message));
    }
    let input = if input.trim().is_empty() { "{}" } else { input };
    serde_json::from_str(input)
        .map_err(|error| invalid(format!("{error}; {} takes {}", tool.name(), usage(&tool.schema()))))
}

/// An optional number of the input: `default` if it is absent, else it must be from 1 to `max`.
pub(crate) fn within(name: &str, value: Option<u64>, default: usize, max: usize) -> Result<usize, Failure> {
    let Some(value) = value else { return Ok(default) };
    usize::try_from(value)
        .ok()
        .filter(|value| (1..=max).contains(value))
        .ok_or_else(|| invalid(format!("`{name}` must be from 1 to {max}, not {value}")))
}

/// A short form of a schema: `{"path": string, "limit"?: integer}`.
pub(crate) fn usage(schema: &Value) -> String {
    let required: Vec<&str> =
        schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let members: Vec<String> = schema["properties"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, property)| {
            let optional = if required.contains(&name.as_str()) { "" } else { "?" };
            format!("\"{name}\"{optional}: {}", property["type"].as_str().unwrap_or("any"))
        })
        .collect();
    format!("{{{}}}", members.join(", "))
}

/// Tests that a hand-written schema matches the struct `T`: the same members, the same required members, no other
/// members allowed, and the types that the schema names.
#[cfg(test)]
pub(crate) fn assert_schema_fits<T: DeserializeOwned>(tool: &dyn Tool) {
    let schema = tool.schema();
    assert_eq!(schema["type"], "object");
    assert_eq!(schema["additionalProperties"], false);
    let properties = schema["properties"].as_object().expect("properties");
    let required: Vec<&str> =
        schema["required"].as_array().expect("required").iter().map(|name| name.as_str().unwrap()).collect();
    let sample = |name: &str| {
        let property = &properties[name];
        assert!(property["description"].is_string(), "{name} has no description");
        match property["type"].as_str().expect("one type") {
            "string" => property["enum"].get(0).cloned().unwrap_or_else(|| "x".into()),
            "integer" => 1.into(),
            "boolean" => true.into(),
            "object" => serde_json::json!({"NAME": "value"}),
            other => panic!("{name} has the type {other}"),
        }
    };
    let object = |names: &[&str]| -> Value {
        Value::Object(names.iter().map(|name| ((*name).to_owned(), sample(name))).collect())
    };
    let fails = |value: Value| serde_json::from_value::<T>(value).err().map(|error| error.to_string());

    let all: Vec<&str> = properties.keys().map(String::as_str).collect();
    assert_eq!(fails(object(&all)), None, "all members");
    assert_eq!(fails(object(&required)), None, "required members alone");
    for missing in &required {
        let others: Vec<&str> = required.iter().copied().filter(|name| name != missing).collect();
        let error = fails(object(&others)).expect("a required member is missing");
        assert!(error.contains(&format!("missing field `{missing}`")), "{error}");
    }
    // Serde's error for an unknown member lists all known members.
    let mut unknown = object(&required);
    unknown["no such member"] = Value::Null;
    let error = fails(unknown).expect("unknown members are refused");
    let known: Vec<&str> =
        error.split("expected").nth(1).unwrap().split('`').skip(1).step_by(2).collect::<Vec<_>>();
    let (mut known, mut listed) = (known, all.clone());
    known.sort_unstable();
    listed.sort_unstable();
    assert_eq!(known, listed, "the struct and the schema have different members");
    for name in all {
        let mut wrong = object(&required);
        wrong[name] = serde_json::json!([[]]);
        assert!(fails(wrong).is_some(), "{name} takes anything");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_has_a_short_form() {
        let schema = serde_json::json!({
            "properties": {"path": {"type": "string"}, "limit": {"type": "integer"}},
            "required": ["path"],
        });
        assert_eq!(usage(&schema), r#"{"path": string, "limit"?: integer}"#);
    }

    #[test]
    fn numbers_have_a_default_and_a_range() {
        assert_eq!(within("n", None, 5, 10), Ok(5));
        assert_eq!(within("n", Some(10), 5, 10), Ok(10));
        assert_eq!(within("n", Some(11), 5, 10).unwrap_err().message, "`n` must be from 1 to 10, not 11");
        assert!(within("n", Some(0), 5, 10).is_err());
    }
}
