//! The answers of servers as types.

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

    /// The JSON text of the object.
    pub fn json(&self) -> &str {
        self.0.get()
    }

    /// Decodes the object as a type of the caller.
    pub fn decode<T: DeserializeOwned>(&self) -> serde_json::Result<T> {
        serde_json::from_str(self.json())
    }

    /// The error message of a tool that reports a failure as a result with `"success":false`; None if the call succeeded.
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

/// What a server says about itself in its answer to `hello`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct SupexServerInfo {
    /// The name of the server program.
    pub name: String,
    /// The version of the server program.
    pub version: String,
    /// Whether a repeated call, of the same caller and with the same id, attaches to the running call instead of running
    /// once more.
    pub attach: bool,
    /// An id that changes with each start of the server. A restarted server does not know the calls of its predecessor.
    pub instance: Option<String>,
    /// A secret by which the server recognizes this client on another connection. Older servers give none.
    pub nonce: Option<String>,
}

impl SupexServerInfo {
    /// Whether this is the same server process as `before`, and repeated calls attach to it.
    pub(super) fn is_same_process(&self, before: &Self) -> bool {
        self.attach && before.attach && self.instance == before.instance && self.nonce == before.nonce
    }
}

/// The answer of the tool `ping`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Pong {
    /// The version of the server program.
    #[serde(default)]
    pub version: Option<String>,
    /// The version of SketchUp, if the server runs in it.
    #[serde(default)]
    pub sketchup_version: Option<String>,
    /// The state of the SketchUp that the server forwards calls to: `running` or `busy`. `None` if the server runs in
    /// SketchUp itself, or evaluates Ruby by itself. A SketchUp that cannot be reached is an error instead.
    #[serde(default)]
    pub upstream: Option<String>,
}

/// The answer of `eval_ruby_file`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct FileEvaluation {
    /// The value of the file's last expression, by `to_s`.
    pub result: String,
    /// The path as the caller gave it.
    pub file_path: String,
    /// The last component of the path.
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
    fn only_success_false_is_a_failure() {
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
    fn only_an_attaching_server_with_the_same_instance_is_the_same_process() {
        let server = |attach, instance: Option<&str>| SupexServerInfo {
            attach,
            instance: instance.map(str::to_owned),
            ..SupexServerInfo::default()
        };
        assert!(server(true, None).is_same_process(&server(true, None)));
        assert!(server(true, Some("a")).is_same_process(&server(true, Some("a"))));
        assert!(!server(true, Some("b")).is_same_process(&server(true, Some("a"))));
        assert!(!server(true, None).is_same_process(&server(true, Some("a"))));
        let with_nonce = SupexServerInfo { nonce: Some("n".to_owned()), ..server(true, Some("a")) };
        assert!(with_nonce.is_same_process(&with_nonce));
        assert!(!server(true, Some("a")).is_same_process(&with_nonce), "it does not recognize this client");
        assert!(!server(false, None).is_same_process(&server(true, None)));
        assert!(!server(true, None).is_same_process(&server(false, None)));
    }
}
