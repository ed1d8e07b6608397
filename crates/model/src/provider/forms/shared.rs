//! What the requests of several forms have in common.

use parlor_vocab::Reasoning;
use serde_json::{Map, Value, json};

use crate::provider::{CallResult, Picture, Request, ToolSpec};

/// How the ids of calls begin that came without one. Nobody else knows them.
pub(in super::super) const MADE_UP_ID: &str = "call#";

/// The input of a call as the object that providers insist on. What a model wrote that is none is
/// shown to it as it was.
pub(super) fn object(input: &str) -> Value {
    match serde_json::from_str(input) {
        Ok(Value::Object(object)) => Value::Object(object),
        _ if input.trim().is_empty() => Value::Object(Map::new()),
        _ => json!({ "unreadable_input": input }),
    }
}

/// The schema of a tool. Our own tools have proper ones; a tool that does not would still be offered.
pub(super) fn schema(tool: &ToolSpec) -> Value {
    serde_json::from_str(&tool.schema).unwrap_or_else(|_| json!({"type": "object"}))
}

/// All tools, each as `as_json` writes it; none if there are none.
pub(super) fn tools(request: &Request, as_json: impl Fn(&ToolSpec) -> Value) -> Option<Value> {
    (!request.tools.is_empty()).then(|| request.tools.iter().map(as_json).collect())
}

/// The images that calls brought, as the user's: most forms have no place for them in a result. What is said beside
/// them, and the images.
pub(super) fn pictures_of(results: &[CallResult]) -> Option<(String, Vec<Picture>)> {
    let with_pictures = || results.iter().filter(|result| !result.pictures.is_empty());
    let tools: Vec<&str> = with_pictures().map(|result| result.tool.as_str()).collect();
    let pictures = with_pictures().flat_map(|result| result.pictures.iter().cloned()).collect();
    let text = format!("(The images above are what {} gave back.)", tools.join(", "));
    (!tools.is_empty()).then_some((text, pictures))
}

/// An image as an address that holds it (RFC 2397).
pub(super) fn data_url(picture: &Picture) -> String {
    format!("data:{};base64,{}", picture.mime, picture.base64)
}

/// How hard to think, in OpenAI's words; none if nothing is to be said.
pub(super) fn effort(reasoning: Option<Reasoning>) -> Option<&'static str> {
    match reasoning? {
        Reasoning::Off => Some("none"),
        Reasoning::Low => Some("low"),
        Reasoning::Medium => Some("medium"),
        Reasoning::High => Some("high"),
        Reasoning::Xhigh => Some("xhigh"),
        Reasoning::Adaptive => None,
    }
}

/// Adds a member if it has a value.
pub(super) fn set(body: &mut Value, name: &str, value: Option<impl Into<Value>>) {
    if let Some(value) = value {
        body[name] = value.into();
    }
}

#[cfg(test)]
pub(super) mod sample {
    use super::*;
    use crate::provider::{ModelCall, ModelMessage, ProviderState};

    /// A conversation with a call that failed and brought an image.
    pub(in super::super) fn conversation(thread: ProviderState) -> Request {
        let call = ModelCall { id: "1".to_owned(), tool: "shell".to_owned(), input: "{\"a\":1}".to_owned() };
        let pictures = vec![Picture::new("image/png", b"png")];
        let result = CallResult {
            id: "1".to_owned(),
            tool: "shell".to_owned(),
            text: "out".to_owned(),
            failed: true,
            pictures,
        };
        let tool = ToolSpec {
            name: "shell".to_owned(),
            description: "Runs a command.".to_owned(),
            schema: r#"{"type":"object"}"#.to_owned(),
        };
        let messages = vec![
            ModelMessage::User { text: "hi".to_owned(), pictures: Vec::new() },
            ModelMessage::Model { text: "I look.".to_owned(), calls: vec![call], thread },
            ModelMessage::Results(vec![result]),
        ];
        Request {
            model: "m".to_owned(),
            system: "be kind".to_owned(),
            messages,
            tools: [tool].into(),
            reasoning: Some(Reasoning::Low),
            max_output: Some(7),
        }
    }

    /// The user's words with an image.
    pub(in super::super) fn seen() -> ModelMessage {
        ModelMessage::User { text: "look".to_owned(), pictures: vec![Picture::new("image/png", b"png")] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_is_always_an_object() {
        assert_eq!(object(r#"{"a":1}"#), json!({"a": 1}));
        assert_eq!(object(" "), json!({}));
        assert_eq!(object("{\"a\":"), json!({"unreadable_input": "{\"a\":"}));
        assert_eq!(object("[1]"), json!({"unreadable_input": "[1]"}));
    }

    #[test]
    fn each_level_of_reasoning_means_something() {
        assert_eq!(effort(Some(Reasoning::Off)), Some("none"));
        assert_eq!(effort(Some(Reasoning::Xhigh)), Some("xhigh"));
        assert_eq!((effort(Some(Reasoning::Adaptive)), effort(None)), (None, None));
    }
}
