//! Replaces values in frames that differ from run to run and from machine to machine by placeholders.

use std::path::Path;

use serde_json::{Map, Value, json};

/// The values that are replaced by placeholders.
pub(crate) struct Normalizer {
    /// Session ids in the order in which they were seen.
    sessions: Vec<String>,
    /// The message that makes a turn fail.
    failing: String,
    folder: String,
    /// The default model.
    model: Option<String>,
}

impl Normalizer {
    pub(crate) fn new(failing: &str, folder: &Path) -> Self {
        let folder = folder.display().to_string();
        Self { sessions: Vec::new(), failing: failing.to_owned(), folder, model: None }
    }

    /// The id of the first session, or an empty string.
    pub(crate) fn first_session(&self) -> &str {
        self.sessions.first().map_or("", String::as_str)
    }

    /// `frame` as one line, with placeholders and with its keys in alphabetical order.
    pub(crate) fn frame(&mut self, mut frame: Value) -> String {
        if frame["type"] == "ready" && self.model.is_none() {
            self.model = frame["model"].as_str().map(str::to_owned);
        }
        self.value("", &mut frame);
        frame.to_string()
    }

    fn value(&mut self, name: &str, value: &mut Value) {
        match value {
            Value::Object(members) => {
                members.iter_mut().for_each(|(name, value)| self.value(name, value));
                members.sort_keys();
                // The peer generates these two values for each failed turn.
                if name == "outcome" && members.contains_key("correlation_id") {
                    members.insert("correlation_id".to_owned(), json!("CORRELATION"));
                    members.insert("code".to_owned(), json!("CODE"));
                }
            }
            Value::Array(items) if ["models", "tools"].contains(&name) => *value = shape(items),
            Value::Array(items) => items.iter_mut().for_each(|item| self.value(name, item)),
            Value::String(text) => *value = Value::String(self.text(name, text)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn text(&mut self, name: &str, text: &str) -> String {
        if name == "session_id" {
            let index = self.sessions.iter().position(|known| known == text).unwrap_or_else(|| {
                self.sessions.push(text.to_owned());
                self.sessions.len() - 1
            });
            return format!("SESSION {}", index + 1);
        }
        if name == "model" && self.model.as_deref() == Some(text) {
            return "MODEL".to_owned();
        }
        if name == "delta" {
            return "DELTA".to_owned();
        }
        if text == self.failing {
            return "PROMPT".to_owned();
        }
        if text == "no luck" || text.starts_with("Auth error") || text.starts_with("the model \"") {
            return "FAILURE".to_owned();
        }
        without_position(text).replace(&self.folder, "DIR")
    }
}

/// An error text without the position in the line, which differs with the number of passes of a decoder.
fn without_position(text: &str) -> &str {
    match text.split_once(" at line ") {
        Some((error, position)) if position.contains(" column ") => error,
        Some(_) | None => text,
    }
}

/// The keys of a list's entries, for lists whose entries differ between the programs.
fn shape(items: &[Value]) -> Value {
    let mut names: Vec<&String> = items.iter().filter_map(Value::as_object).flat_map(Map::keys).collect();
    names.sort();
    names.dedup();
    json!(names)
}

#[test]
fn values_that_differ_between_runs_become_placeholders() {
    let mut normalizer = Normalizer::new("/fail no luck", Path::new("/tmp/x"));
    let ready = json!({"type": "ready", "session_id": "a", "model": "m", "protocol_version": 1});
    let line = r#"{"model":"MODEL","protocol_version":1,"session_id":"SESSION 1","type":"ready"}"#;
    assert_eq!(normalizer.frame(ready), line);
    let other = json!({"session_id": "b", "model": "other", "messages": [{"content": "/fail no luck"}],
        "message": "in /tmp/x/y", "error": "no luck"});
    let line = r#"{"error":"FAILURE","message":"in DIR/y","messages":[{"content":"PROMPT"}],"model":"other","session_id":"SESSION 2"}"#;
    assert_eq!(normalizer.frame(other), line);
    assert_eq!(
        normalizer.frame(json!({"tools": [{"b": 1, "a": 2}, {"c": 3}]})),
        r#"{"tools":["a","b","c"]}"#
    );
    assert_eq!(normalizer.frame(json!({"delta": "anything"})), r#"{"delta":"DELTA"}"#);
    assert_eq!(normalizer.first_session(), "a");
}
