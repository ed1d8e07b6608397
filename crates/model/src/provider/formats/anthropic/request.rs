//! Writes requests: <https://platform.claude.com/docs/en/api/messages>.

use parlor_vocab::Reasoning;
use serde_json::{Value, json};

use super::claude::Claude;
use crate::provider::formats::shared::{input_object, schema, set, tools};
use crate::provider::piece::ProviderStatePart;
use crate::provider::{
    CallResult, Document, ModelCall, ModelMessage, Picture, ProviderState, Request, ToolSpec,
};

/// How many of the last user messages get a cache marker: the newest one, and the one that was the newest in the
/// previous request.
const CACHE_MARKERS: usize = 2;

/// Thinking budgets in tokens, for models without effort levels.
const LOW_BUDGET: u32 = 1024;
const MEDIUM_BUDGET: u32 = 8000;
const HIGH_BUDGET: u32 = 24_000;

pub(in super::super) fn body(request: &Request) -> Value {
    let model = Claude::parse(&request.model);
    let mut messages: Vec<Value> = request.messages.iter().map(message).collect();
    let is_user = |index: &usize| messages[*index]["role"] != "assistant";
    let mut marked: Vec<usize> = (0..messages.len()).rev().filter(is_user).take(CACHE_MARKERS).collect();
    let mut body = json!({"model": request.model, "stream": true});
    if request.system.is_empty() {
        marked.push(0);
    } else {
        let system =
            json!([{"type": "text", "text": request.system, "cache_control": {"type": "ephemeral"}}]);
        body["system"] = system;
    }
    for index in marked {
        messages.get_mut(index).into_iter().for_each(mark_for_cache);
    }
    set(&mut body, "tools", tools(request, tool));
    body["messages"] = messages.into();
    if let Some(reasoning) = request.reasoning {
        set_reasoning(&mut body, reasoning, model);
    }
    body["max_tokens"] = request.max_output.unwrap_or_else(|| model.max_tokens()).into();
    body
}

fn message(message: &ModelMessage) -> Value {
    match message {
        ModelMessage::User { text, pictures, documents } if pictures.is_empty() && documents.is_empty() => {
            json!({"role": "user", "content": text})
        }
        ModelMessage::User { text, pictures, documents } => {
            let files = documents.iter().map(document).chain(pictures.iter().map(image));
            let text = json!({"type": "text", "text": text});
            json!({"role": "user", "content": files.chain([text]).collect::<Value>()})
        }
        ModelMessage::Model { text, calls, provider_state } => {
            json!({"role": "assistant", "content": blocks(text, calls, provider_state)})
        }
        ModelMessage::Results(results) => {
            json!({"role": "user", "content": results.iter().map(tool_result).collect::<Value>()})
        }
    }
}

/// The blocks of an answer. Thinking blocks must come first.
fn blocks(text: &str, calls: &[ModelCall], provider_state: &ProviderState) -> Value {
    let mut blocks: Vec<Value> = provider_state.0.iter().filter_map(thinking_block).collect();
    if blocks.is_empty() && calls.is_empty() {
        return json!(text);
    }
    if !text.is_empty() {
        blocks.push(json!({"type": "text", "text": text}));
    }
    blocks.extend(calls.iter().map(
        |call| json!({"type": "tool_use", "id": call.id, "name": call.tool, "input": input_object(&call.input)}),
    ));
    blocks.into()
}

fn thinking_block(part: &ProviderStatePart) -> Option<Value> {
    match part {
        ProviderStatePart::SignedReasoning { text, signature } => {
            Some(json!({"type": "thinking", "thinking": text, "signature": signature}))
        }
        ProviderStatePart::RedactedReasoning(data) => {
            Some(json!({"type": "redacted_thinking", "data": data}))
        }
        ProviderStatePart::ReasoningContent(_)
        | ProviderStatePart::EncryptedReasoning(_)
        | ProviderStatePart::ThoughtSignature { .. } => None,
    }
}

fn image(picture: &Picture) -> Value {
    let source = json!({"type": "base64", "media_type": picture.mime, "data": &*picture.base64});
    json!({"type": "image", "source": source})
}

fn document(document: &Document) -> Value {
    let source = json!({"type": "base64", "media_type": document.mime, "data": &*document.base64});
    json!({"type": "document", "source": source, "title": document.name})
}

/// The result of a call. In this format it can contain images and an error flag.
fn tool_result(result: &CallResult) -> Value {
    let text = json!({"type": "text", "text": result.text});
    let content: Value = [text].into_iter().chain(result.pictures.iter().map(image)).collect();
    let mut value = json!({"type": "tool_result", "tool_use_id": result.id, "content": content});
    set(&mut value, "is_error", result.failed.then_some(true));
    value
}

/// Adds a cache marker to the last block of a message. A plain text becomes a block first.
fn mark_for_cache(message: &mut Value) {
    if let Value::String(text) = &mut message["content"] {
        let text = std::mem::take(text);
        message["content"] = json!([{"type": "text", "text": text}]);
    }
    if let Some(last) = message["content"].as_array_mut().and_then(|blocks| blocks.last_mut()) {
        last["cache_control"] = json!({"type": "ephemeral"});
    }
}

fn set_reasoning(body: &mut Value, reasoning: Reasoning, model: Claude) {
    let (effort, budget) = match reasoning {
        Reasoning::Off => {
            set(body, "thinking", model.thinks_by_default().then(|| json!({"type": "disabled"})));
            return;
        }
        Reasoning::Low => ("low", LOW_BUDGET),
        Reasoning::Medium => ("medium", MEDIUM_BUDGET),
        // Adaptive thinking needs an effort.
        Reasoning::High | Reasoning::Adaptive => ("high", HIGH_BUDGET),
        Reasoning::Xhigh => (if model.supports_xhigh() { "xhigh" } else { "high" }, HIGH_BUDGET),
    };
    if model.is_adaptive() {
        body["thinking"] = json!({"type": "adaptive", "display": "summarized"});
    }
    if model.supports_effort() {
        body["output_config"] = json!({"effort": effort});
    } else {
        body["thinking"] = json!({"type": "enabled", "budget_tokens": budget});
    }
}

fn tool(tool: &ToolSpec) -> Value {
    json!({"name": tool.name, "input_schema": schema(tool), "description": tool.description})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::formats::shared::sample::{conversation, message_with_image, request_with_document};

    #[test]
    fn a_conversation_is_serialized() {
        let signed =
            ProviderStatePart::SignedReasoning { text: "hm".to_owned(), signature: "signed".to_owned() };
        let provider_state =
            ProviderState(vec![signed, ProviderStatePart::RedactedReasoning("sealed".to_owned())]);
        let mark = json!({"type": "ephemeral"});
        let image = json!({"type": "base64", "media_type": "image/png", "data": "cG5n"});
        let result = json!([{"type": "text", "text": "out"}, {"type": "image", "source": image}]);
        let wanted = json!({
            "model": "m", "stream": true,
            "system": [{"type": "text", "text": "be kind", "cache_control": mark}],
            "tools": [{"name": "shell", "input_schema": {"type": "object"}, "description": "Runs a command."}],
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "hi", "cache_control": mark}]},
                {"role": "assistant", "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "signed"},
                    {"type": "redacted_thinking", "data": "sealed"},
                    {"type": "text", "text": "I look."},
                    {"type": "tool_use", "id": "1", "name": "shell", "input": {"a": 1}},
                ]},
                {"role": "user", "content": [{
                    "type": "tool_result", "tool_use_id": "1", "content": result, "is_error": true,
                    "cache_control": mark,
                }]},
            ],
            "thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 7,
        });
        assert_eq!(body(&conversation(provider_state)), wanted);
    }

    #[test]
    fn a_document_comes_before_images_and_text() {
        let body = body(&request_with_document());
        let pdf = json!({"type": "base64", "media_type": "application/pdf", "data": "cGRm"});
        let content = &body["messages"][0]["content"];
        assert_eq!(content[0], json!({"type": "document", "source": pdf, "title": "a.pdf"}));
        assert_eq!((&content[1]["type"], &content[2]["text"]), (&json!("image"), &json!("read")));
    }

    #[test]
    fn the_last_two_user_messages_are_marked_and_the_first_without_a_system_prompt() {
        let mut request = conversation(ProviderState::default());
        request.messages.extend([message_with_image(), message_with_image()]);
        let marks = |request: &Request| {
            let body = body(request);
            let messages = body["messages"].as_array().unwrap().clone();
            messages.iter().map(|message| message.to_string().contains("cache_control")).collect::<Vec<_>>()
        };
        assert_eq!(marks(&request), [false, false, false, true, true]);
        request.system.clear();
        assert_eq!(marks(&request), [true, false, false, true, true]);
    }

    #[test]
    fn reasoning_is_requested_as_the_model_supports_it() {
        let requested = |model: &str, reasoning| {
            let body =
                body(&Request { model: model.to_owned(), reasoning: Some(reasoning), ..Request::default() });
            (body["thinking"]["type"].clone(), body["output_config"]["effort"].clone())
        };
        let none = Value::Null;
        assert_eq!(requested("claude-sonnet-5", Reasoning::Adaptive), (json!("adaptive"), json!("high")));
        assert_eq!(requested("claude-sonnet-5", Reasoning::Xhigh), (json!("adaptive"), json!("xhigh")));
        assert_eq!(requested("claude-sonnet-4-6", Reasoning::Xhigh), (json!("adaptive"), json!("high")));
        assert_eq!(requested("claude-opus-4-5", Reasoning::Low), (none.clone(), json!("low")));
        assert_eq!(requested("claude-haiku-4-5", Reasoning::High), (json!("enabled"), none.clone()));
        assert_eq!(requested("claude-sonnet-5", Reasoning::Off), (json!("disabled"), none.clone()));
        assert_eq!(requested("claude-haiku-4-5", Reasoning::Off), (none.clone(), none));
    }
}
