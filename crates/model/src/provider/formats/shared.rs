//! Parts of requests that several formats share.

use parlor_vocab::Reasoning;
use serde_json::{Map, Value, json};

use crate::provider::{CallResult, Document, Picture, Request, ToolSpec};

/// The prefix of ids that parlor generated for calls without one. Providers do not know these ids.
pub(in super::super) const LOCAL_CALL_ID_PREFIX: &str = "call#";

/// The input of a call as an object, which providers require. Other input is wrapped, so that the model sees what it
/// wrote.
pub(super) fn input_object(input: &str) -> Value {
    match serde_json::from_str(input) {
        Ok(Value::Object(object)) => Value::Object(object),
        _ if input.trim().is_empty() => Value::Object(Map::new()),
        _ => json!({ "unreadable_input": input }),
    }
}

/// The schema of a tool. An invalid schema becomes that of any object.
pub(super) fn schema(tool: &ToolSpec) -> Value {
    serde_json::from_str(&tool.schema).unwrap_or_else(|_| json!({"type": "object"}))
}

/// The tools, each converted by `as_json`; `None` if there are no tools.
pub(super) fn tools(request: &Request, as_json: impl Fn(&ToolSpec) -> Value) -> Option<Value> {
    (!request.tools.is_empty()).then(|| request.tools.iter().map(as_json).collect())
}

/// The text and the images of a user message with the images of results. Most formats do not allow images in results.
pub(super) fn result_pictures(results: &[CallResult]) -> Option<(String, Vec<Picture>)> {
    let with_pictures = || results.iter().filter(|result| !result.pictures.is_empty());
    let tools: Vec<&str> = with_pictures().map(|result| result.tool.as_str()).collect();
    let pictures = with_pictures().flat_map(|result| result.pictures.iter().cloned()).collect();
    let text = format!("(The images above are what {} gave back.)", tools.join(", "));
    (!tools.is_empty()).then_some((text, pictures))
}

/// An image as data URL (RFC 2397).
pub(super) fn data_url(picture: &Picture) -> String {
    format!("data:{};base64,{}", picture.mime, picture.base64)
}

/// A document as data URL.
pub(super) fn document_url(document: &Document) -> String {
    format!("data:{};base64,{}", document.mime, document.base64)
}

/// OpenAI's name of a reasoning effort; `None` for the provider's default.
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

/// Sets a member if there is a value.
pub(super) fn set(body: &mut Value, name: &str, value: Option<impl Into<Value>>) {
    if let Some(value) = value {
        body[name] = value.into();
    }
}

#[cfg(test)]
pub(super) mod sample {
    use super::*;
    use crate::provider::{ModelCall, ModelMessage, ProviderState};

    /// A conversation with a failed call whose result has an image.
    pub(in super::super) fn conversation(provider_state: ProviderState) -> Request {
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
            ModelMessage::user("hi"),
            ModelMessage::Model { text: "I look.".to_owned(), calls: vec![call], provider_state },
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

    /// A user message with an image.
    pub(in super::super) fn message_with_image() -> ModelMessage {
        let pictures = vec![Picture::new("image/png", b"png")];
        ModelMessage::User { text: "look".to_owned(), pictures, documents: Vec::new() }
    }

    /// A request with a document, an image and a text.
    pub(in super::super) fn request_with_document() -> Request {
        let document = Document::new("a.pdf", "application/pdf", b"pdf");
        let pictures = vec![Picture::new("image/png", b"png")];
        let message = ModelMessage::User { text: "read".to_owned(), pictures, documents: vec![document] };
        Request { model: "m".to_owned(), messages: vec![message], ..Request::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_is_always_an_object() {
        assert_eq!(input_object(r#"{"a":1}"#), json!({"a": 1}));
        assert_eq!(input_object(" "), json!({}));
        assert_eq!(input_object("{\"a\":"), json!({"unreadable_input": "{\"a\":"}));
        assert_eq!(input_object("[1]"), json!({"unreadable_input": "[1]"}));
    }

    #[test]
    fn each_reasoning_effort_has_a_name() {
        assert_eq!(effort(Some(Reasoning::Off)), Some("none"));
        assert_eq!(effort(Some(Reasoning::Xhigh)), Some("xhigh"));
        assert_eq!((effort(Some(Reasoning::Adaptive)), effort(None)), (None, None));
    }
}
