//! What servers answer, as types.

use std::fmt;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

/// The result of a call: a JSON object, exactly as the server wrote it.
#[derive(Clone, Debug)]
pub struct SupexAnswer(Box<RawValue>);

impl SupexAnswer {
    pub(super) fn new(object: Box<RawValue>) -> Self {
        Self(object)
    }

    /// The text of the object.
    pub fn json(&self) -> &str {
        self.0.get()
    }

    /// The object as a type of the caller's.
    pub fn decode<T: DeserializeOwned>(&self) -> serde_json::Result<T> {
        serde_json::from_str(self.json())
    }

    /// What went wrong, if the tool is one of those that answer with `"success":false`.
    pub fn failure(&self) -> Option<String> {
        let outcome: Outcome = self.decode().ok()?;
        if outcome.success != Some(false) {
            return None;
        }
        Some(outcome.error.or(outcome.message).unwrap_or_else(|| "it does not say why".to_owned()))
    }
}

impl fmt::Display for SupexAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.json())
    }
}

#[derive(Deserialize)]
struct Outcome {
    success: Option<bool>,
    error: Option<String>,
    message: Option<String>,
}

/// What a server says of itself in its answer to `hello`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct SupexServerInfo {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Whether a call that is repeated, by the same caller under the same id, attaches to the one that
    /// is running instead of running once more.
    pub attach: bool,
    /// Which one of its kind it is: another after each start. A server that has forgotten what was
    /// running cannot attach to it.
    pub instance: Option<String>,
}

impl SupexServerInfo {
    /// Whether this is the server that `before` was, and still knows the calls it was given then.
    pub(super) fn continues(&self, before: &Self) -> bool {
        self.attach && before.attach && self.instance == before.instance
    }
}

/// The answer of the tool `ping`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Pong {
    /// The version of the server.
    #[serde(default)]
    pub version: Option<String>,
    /// The version of SketchUp, if there is one behind the server.
    #[serde(default)]
    pub sketchup_version: Option<String>,
}

/// The answer of `eval_ruby_file`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct FileEvaluation {
    /// The value of the file's last expression, by `to_s`.
    pub result: String,
    /// The path, as it was given.
    pub file_path: String,
    /// The last part of it.
    pub file_name: String,
}

/// The answer of a console.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ReplOutput {
    /// What was printed, followed by `=> ` and the value, or by the exception.
    pub output: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(text: &str) -> SupexAnswer {
        SupexAnswer::new(RawValue::from_string(text.to_owned()).unwrap())
    }

    #[test]
    fn a_soft_failure_is_found_and_nothing_else_is() {
        for (text, failure) in [
            (r#"{"success":false,"error":"No active model"}"#, Some("No active model")),
            (r#"{"success":false,"message":"Extension reload failed"}"#, Some("Extension reload failed")),
            (r#"{"success":false}"#, Some("it does not say why")),
            (r#"{"success":true,"error":"x"}"#, None),
            (r#"{"success":"no"}"#, None),
            (r#"{}"#, None),
        ] {
            assert_eq!(answer(text).failure().as_deref(), failure, "{text}");
        }
    }

    #[test]
    fn only_a_server_that_remembers_continues() {
        let server = |attach, instance: Option<&str>| SupexServerInfo {
            attach,
            instance: instance.map(str::to_owned),
            ..SupexServerInfo::default()
        };
        assert!(server(true, None).continues(&server(true, None)));
        assert!(server(true, Some("a")).continues(&server(true, Some("a"))));
        assert!(!server(true, Some("b")).continues(&server(true, Some("a"))));
        assert!(!server(true, None).continues(&server(true, Some("a"))));
        assert!(!server(false, None).continues(&server(true, None)));
        assert!(!server(true, None).continues(&server(false, None)));
    }
}
