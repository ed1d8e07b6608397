//! The input of a tool: TOML in the script, JSON in the call.

use std::collections::BTreeMap;

use serde_json::Value;

use super::error::ScriptFault;
use super::template::{StepTooLarge, Template};

/// A value whose strings are templates. The names of members are literal.
#[derive(Debug, PartialEq)]
pub(super) enum Argument {
    Text(Template),
    List(Vec<Argument>),
    Object(BTreeMap<String, Argument>),
    Plain(Value),
}

impl Argument {
    /// Reads the `args` of a tool. A date becomes its text; `nan` and `inf` are errors.
    pub(super) fn object(table: toml::Table, max_capture: usize) -> Result<Self, ScriptFault> {
        let members = table.into_iter().map(|(name, value)| Ok((name, Self::parse(value, max_capture)?)));
        members.collect::<Result<_, ScriptFault>>().map(Self::Object)
    }

    fn parse(value: toml::Value, max_capture: usize) -> Result<Self, ScriptFault> {
        Ok(match value {
            toml::Value::String(text) => Self::Text(Template::parse(&text, max_capture)?),
            toml::Value::Array(values) => Self::List(
                values.into_iter().map(|value| Self::parse(value, max_capture)).collect::<Result<_, _>>()?,
            ),
            toml::Value::Table(table) => Self::object(table, max_capture)?,
            toml::Value::Integer(number) => Self::Plain(number.into()),
            toml::Value::Boolean(truth) => Self::Plain(truth.into()),
            toml::Value::Float(number) => {
                let number = serde_json::Number::from_f64(number).ok_or(ScriptFault::NotJson)?;
                Self::Plain(Value::Number(number))
            }
            toml::Value::Datetime(time) => Self::Plain(time.to_string().into()),
        })
    }

    /// The value with `captures` inserted; see [`Template::fill`].
    pub(super) fn fill(&self, captures: &[&str], bytes_left: &mut usize) -> Result<Value, StepTooLarge> {
        Ok(match self {
            Self::Text(template) => Value::String(template.fill(captures, bytes_left)?),
            Self::List(values) => Value::Array(
                values.iter().map(|value| value.fill(captures, bytes_left)).collect::<Result<_, _>>()?,
            ),
            Self::Object(members) => {
                let members =
                    members.iter().map(|(name, value)| Ok((name.clone(), value.fill(captures, bytes_left)?)));
                Value::Object(members.collect::<Result<_, _>>()?)
            }
            Self::Plain(value) => value.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parse(args: &str) -> Result<Argument, String> {
        Argument::object(toml::from_str(args).unwrap(), 1).map_err(|fault| fault.to_string())
    }

    #[test]
    fn captures_are_inserted_into_every_string_and_stay_escaped() {
        let argument = parse("a = '$1'\nb = ['x', {c = '<$1>', '$1' = 2}]\nd = 1.5\ne = 2024-01-01").unwrap();
        let hostile = "\", \"f\": \"";
        let filled = argument.fill(&["", hostile], &mut 1000).unwrap();
        let expected = json!({"a": hostile, "b": ["x", {"c": format!("<{hostile}>"), "$1": 2}], "d": 1.5, "e": "2024-01-01"});
        assert_eq!(filled, expected);
        assert_eq!(serde_json::from_str::<Value>(&filled.to_string()).unwrap(), expected);
    }

    #[test]
    fn the_strings_of_one_call_share_its_limit() {
        let argument = parse("a = 'four'\nb = 'four'").unwrap();
        assert!(argument.fill(&[""], &mut 8).is_ok());
        assert_eq!(argument.fill(&[""], &mut 7), Err(StepTooLarge));
    }

    #[test]
    fn numbers_that_json_lacks_are_errors() {
        assert!(parse("a = [nan]").unwrap_err().starts_with("nan and inf "));
        assert!(parse("a = {b = '$2'}").unwrap_err().starts_with("`$2` does not exist"));
    }
}
