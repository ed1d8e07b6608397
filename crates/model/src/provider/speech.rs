//! From a [`Request`] to what genai sends.

use genai::chat::{
    Binary, BinarySource, CacheControl, ChatMessage, ChatRequest, ContentPart, MessageContent, Tool,
    ToolCall, ToolResponse,
};
use serde_json::{Map, Value, json};

use super::{CallResult, ModelCall, Picture, ProviderKind, Request, Said, ToolSpec};

/// How many of the last messages of a conversation are marked as places up to which the provider may
/// keep what it has read: the newest, and the one that was the newest before.
const CACHED_TAILS: usize = 2;

/// The whole request.
pub(super) fn spoken(request: &Request, kind: ProviderKind) -> ChatRequest {
    let mut messages: Vec<ChatMessage> = Vec::with_capacity(request.messages.len() + 1);
    if !request.system.is_empty() {
        messages.push(ChatMessage::system(request.system.as_str()));
    }
    for said in &request.messages {
        match said {
            Said::User { text, pictures } => messages.push(ChatMessage::user(seen(text, pictures))),
            Said::Model { text, calls, thread } => {
                let mut parts = thread.0.clone();
                if !text.is_empty() {
                    parts.push(ContentPart::from_text(text));
                }
                parts.extend(calls.iter().map(|call| ContentPart::ToolCall(tool_call(call))));
                messages.push(ChatMessage::assistant(MessageContent::from_parts(parts)));
            }
            Said::Results(results) if kind == ProviderKind::Anthropic => {
                let parts: Vec<ContentPart> = results
                    .iter()
                    .map(|result| ContentPart::from_custom(tool_result(result), None))
                    .collect();
                messages.push(ChatMessage::tool(MessageContent::from_parts(parts)));
            }
            Said::Results(results) => messages.extend(plain_results(results)),
        }
    }
    if kind == ProviderKind::Anthropic {
        mark_for_cache(&mut messages);
    }
    let mut spoken = ChatRequest::new(messages);
    if !request.tools.is_empty() {
        spoken = spoken.with_tools(request.tools.iter().map(tool));
    }
    spoken
}

/// Text and images of a user.
fn seen(text: &str, pictures: &[Picture]) -> MessageContent {
    let mut parts: Vec<ContentPart> =
        pictures.iter().map(|picture| ContentPart::Binary(binary(picture))).collect();
    parts.push(ContentPart::from_text(text));
    MessageContent::from_parts(parts)
}

fn binary(picture: &Picture) -> Binary {
    Binary::new(picture.mime.as_str(), BinarySource::Base64(picture.base64.clone()), None)
}

fn tool_call(call: &ModelCall) -> ToolCall {
    ToolCall {
        call_id: call.id.clone(),
        fn_name: call.tool.clone(),
        fn_arguments: object(&call.input),
        thought_signatures: None,
    }
}

/// The input of a call as the object that providers insist on. What a model wrote that is none is
/// shown to it as it was.
fn object(input: &str) -> Value {
    match serde_json::from_str(input) {
        Ok(Value::Object(object)) => Value::Object(object),
        _ if input.trim().is_empty() => Value::Object(Map::new()),
        _ => json!({ "unreadable_input": input }),
    }
}

/// Anthropic's results can hold images and say that they are errors; genai's cannot, but let raw
/// parts through.
fn tool_result(result: &CallResult) -> Value {
    let mut content = vec![json!({"type": "text", "text": result.text})];
    content.extend(result.pictures.iter().map(|picture| {
        json!({
            "type": "image",
            "source": {"type": "base64", "media_type": picture.mime, "data": &*picture.base64},
        })
    }));
    let mut value = json!({"type": "tool_result", "tool_use_id": result.id, "content": content});
    if result.failed {
        value["is_error"] = json!(true);
    }
    value
}

/// Results as text, and their images as the user's: elsewhere a result cannot hold any.
fn plain_results(results: &[CallResult]) -> Vec<ChatMessage> {
    let responses: Vec<ToolResponse> = results
        .iter()
        .map(|result| {
            ToolResponse::new(result.id.as_str(), result.text.as_str()).with_fn_name(result.tool.as_str())
        })
        .collect();
    let pictures: Vec<Picture> = results.iter().flat_map(|result| result.pictures.iter().cloned()).collect();
    let mut messages = vec![ChatMessage::from(responses)];
    if !pictures.is_empty() {
        let tools: Vec<&str> = results
            .iter()
            .filter(|result| !result.pictures.is_empty())
            .map(|result| result.tool.as_str())
            .collect();
        let text = format!("(The images above are what {} gave back.)", tools.join(", "));
        messages.push(ChatMessage::user(seen(&text, &pictures)));
    }
    messages
}

fn mark_for_cache(messages: &mut [ChatMessage]) {
    let last = messages.len().saturating_sub(1);
    let places: Vec<usize> = (0..messages.len())
        .rev()
        .filter(|place| !matches!(messages[*place].role, genai::chat::ChatRole::Assistant))
        .take(CACHED_TAILS)
        .chain([0])
        .collect();
    for (place, message) in messages.iter_mut().enumerate() {
        if places.contains(&place) && place <= last {
            message.options = Some(CacheControl::Ephemeral.into());
        }
    }
}

fn tool(spec: &ToolSpec) -> Tool {
    // Our own tools have proper schemas; one that does not would still be offered.
    let schema = serde_json::from_str(&spec.schema).unwrap_or_else(|_| json!({"type": "object"}));
    Tool::new(spec.name.as_str()).with_description(spec.description.as_str()).with_schema(schema)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::Thread;

    fn user(text: &str) -> Said {
        Said::User { text: text.to_owned(), pictures: Vec::new() }
    }

    fn call(input: &str) -> ModelCall {
        ModelCall { id: "1".to_owned(), tool: "shell".to_owned(), input: input.to_owned() }
    }

    fn result(failed: bool) -> CallResult {
        let pictures = vec![Picture::new("image/png", b"png")];
        CallResult { id: "1".to_owned(), tool: "shell".to_owned(), text: "out".to_owned(), failed, pictures }
    }

    fn conversation() -> Request {
        let model = Said::Model { text: String::new(), calls: vec![call("{}")], thread: Thread::default() };
        let messages = vec![user("hi"), model, Said::Results(vec![result(true)])];
        Request { system: "be kind".to_owned(), messages, ..Request::default() }
    }

    #[test]
    fn an_input_is_always_an_object() {
        assert_eq!(object(r#"{"a":1}"#), json!({"a": 1}));
        assert_eq!(object(" "), json!({}));
        assert_eq!(object("{\"a\":"), json!({"unreadable_input": "{\"a\":"}));
        assert_eq!(object("[1]"), json!({"unreadable_input": "[1]"}));
    }

    #[test]
    fn images_of_tools_go_where_the_provider_takes_them() {
        let anthropic = serde_json::to_value(spoken(&conversation(), ProviderKind::Anthropic)).unwrap();
        let text = anthropic.to_string();
        assert!(
            text.contains(r#""is_error":true"#) && text.contains(r#""media_type":"image/png""#),
            "{text}"
        );
        assert_eq!(anthropic["messages"].as_array().unwrap().len(), 4);
        let openai = serde_json::to_value(spoken(&conversation(), ProviderKind::OpenAi)).unwrap();
        let last = openai["messages"].as_array().unwrap().last().unwrap();
        assert_eq!(last["role"], "User");
        assert!(last.to_string().contains("what shell gave back"), "{last}");
    }

    #[test]
    fn only_anthropic_is_told_what_to_keep() {
        let marks = |kind| {
            let spoken = spoken(&conversation(), kind);
            spoken.messages.iter().map(|message| message.options.is_some()).collect::<Vec<_>>()
        };
        assert_eq!(marks(ProviderKind::Anthropic), [true, true, false, true]);
        assert!(marks(ProviderKind::OpenAi).iter().all(|marked| !marked));
    }

    #[test]
    fn the_same_beginning_is_the_same_bytes() {
        let bytes = |request: &Request| {
            let spoken = spoken(request, ProviderKind::OpenAi);
            serde_json::to_string(&spoken.messages[..3]).unwrap()
        };
        let mut longer = conversation();
        longer.messages.push(user("more"));
        assert_eq!(bytes(&conversation()), bytes(&longer));
    }
}
