//! Shortens long texts and removes secrets from what clients show.

use serde_json::Value;

/// The longest preview of a tool's input, in characters, like all limits here.
pub(super) const ARGUMENT_CHARS: usize = 200;
/// The longest preview of a tool's result.
pub(super) const RESULT_CHARS: usize = 140;
/// The longest title, goal and summary of a run, all made of its input.
pub(super) const TITLE_CHARS: usize = 100;
pub(super) const GOAL_CHARS: usize = 200;
pub(super) const SUMMARY_CHARS: usize = 180;

/// Stands for a secret.
const REDACTED: &str = "[REDACTED]";

/// A member is secret if its name contains one of these.
const SECRET_NAMES: &[&str] = &["token", "password", "secret", "api_key", "apikey", "authorization"];

/// `text` without surrounding white space, truncated to `max` characters.
pub(super) fn truncated(text: &str, max: usize) -> String {
    let text = text.trim();
    if text.chars().nth(max).is_none() {
        return text.to_owned();
    }
    text.chars().take(max - 3).chain("...".chars()).collect()
}

/// The preview of a tool's input: sorted keys, and no secrets.
pub(super) fn arguments_preview(input: &str) -> String {
    match serde_json::from_str::<Value>(input) {
        Ok(value) => {
            let mut text = String::new();
            write(&mut text, &value);
            truncated(&text, ARGUMENT_CHARS)
        }
        Err(_) if input.trim().is_empty() => "{}".to_owned(),
        // Input that is not JSON cannot be redacted, so nothing of it is shown.
        Err(_) => REDACTED.to_owned(),
    }
}

/// Writes JSON with sorted keys. `serde_json` does not promise an order: a feature that any other crate may enable
/// changes it.
fn write(to: &mut String, value: &Value) {
    match value {
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_by_key(|(name, _)| *name);
            to.push('{');
            for (index, (name, value)) in members.into_iter().enumerate() {
                if index > 0 {
                    to.push(',');
                }
                to.push_str(&Value::from(name.as_str()).to_string());
                to.push(':');
                if is_secret(name) { write(to, &Value::from(REDACTED)) } else { write(to, value) }
            }
            to.push('}');
        }
        Value::Array(items) => {
            to.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    to.push(',');
                }
                write(to, item);
            }
            to.push(']');
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => to.push_str(&value.to_string()),
    }
}

fn is_secret(name: &str) -> bool {
    let name = name.to_lowercase();
    SECRET_NAMES.iter().any(|secret| name.contains(secret))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_truncated_by_characters_after_trimming() {
        assert_eq!(truncated("  ab ", 2), "ab");
        assert_eq!(truncated("\u{e4}\u{e4}\u{e4}\u{e4}", 4), "\u{e4}\u{e4}\u{e4}\u{e4}");
        assert_eq!(truncated("\u{e4}bcde", 4), "\u{e4}...");
    }

    #[test]
    fn arguments_are_sorted_and_redacted() {
        let input = r#"{"b":[{"API_Key":"s3"},null],"a":{"x-authorization":{"deep":1}},"n":1.5}"#;
        assert_eq!(
            arguments_preview(input),
            r#"{"a":{"x-authorization":"[REDACTED]"},"b":[{"API_Key":"[REDACTED]"},null],"n":1.5}"#
        );
        assert_eq!(arguments_preview(" "), "{}");
        assert_eq!(arguments_preview("token=s3"), "[REDACTED]");
        assert_eq!(
            arguments_preview(&format!("{{\"a\":\"{}\"}}", "x".repeat(300))).chars().count(),
            ARGUMENT_CHARS
        );
    }
}
