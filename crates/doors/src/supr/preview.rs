//! What is shown of long or secret texts.

use serde_json::Value;

/// How much of a tool's input is shown, in letters.
pub(super) const ARGUMENT_CHARS: usize = 200;
/// How much of a tool's result is shown.
pub(super) const RESULT_CHARS: usize = 140;
/// How much of an input is shown as a run's title, goal and summary.
pub(super) const TITLE_CHARS: usize = 100;
pub(super) const GOAL_CHARS: usize = 200;
pub(super) const SUMMARY_CHARS: usize = 180;

/// What stands in the place of a secret.
const REDACTED: &str = "[REDACTED]";

/// What the name of a secret contains.
const SECRET_NAMES: &[&str] = &["token", "password", "secret", "api_key", "apikey", "authorization"];

/// `text` without white space around it, cut to so many letters.
pub(super) fn cut(text: &str, max: usize) -> String {
    let text = text.trim();
    if text.chars().nth(max).is_none() {
        return text.to_owned();
    }
    text.chars().take(max - 3).chain("...".chars()).collect()
}

/// A tool's input, with its keys in order and its secrets left out.
pub(super) fn of_arguments(input: &str) -> String {
    match serde_json::from_str::<Value>(input) {
        Ok(value) => {
            let mut text = String::new();
            write(&mut text, &value);
            cut(&text, ARGUMENT_CHARS)
        }
        Err(_) if input.trim().is_empty() => "{}".to_owned(),
        // It may hold anything: what cannot be read cannot be redacted.
        Err(_) => REDACTED.to_owned(),
    }
}

/// Spelled by hand: whether maps keep their order is decided by whoever else uses the JSON library.
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
    fn texts_are_cut_by_letters_after_trimming() {
        assert_eq!(cut("  ab ", 2), "ab");
        assert_eq!(cut("\u{e4}\u{e4}\u{e4}\u{e4}", 4), "\u{e4}\u{e4}\u{e4}\u{e4}");
        assert_eq!(cut("\u{e4}bcde", 4), "\u{e4}...");
    }

    #[test]
    fn arguments_are_in_order_and_without_secrets() {
        let input = r#"{"b":[{"API_Key":"s3"},null],"a":{"x-authorization":{"deep":1}},"n":1.5}"#;
        assert_eq!(
            of_arguments(input),
            r#"{"a":{"x-authorization":"[REDACTED]"},"b":[{"API_Key":"[REDACTED]"},null],"n":1.5}"#
        );
        assert_eq!(of_arguments(" "), "{}");
        assert_eq!(of_arguments("token=s3"), "[REDACTED]");
        assert_eq!(
            of_arguments(&format!("{{\"a\":\"{}\"}}", "x".repeat(300))).chars().count(),
            ARGUMENT_CHARS
        );
    }
}
