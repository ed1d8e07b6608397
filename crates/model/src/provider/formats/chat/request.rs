//! Writes requests: <https://platform.openai.com/docs/api-reference/chat/create>.

use serde_json::{Value, json};

use crate::provider::formats::shared::{
    data_url, document_url, effort, input_object, result_pictures, schema, set, tools,
};
use crate::provider::piece::ProviderStatePart;
use crate::provider::{
    Document, ModelCall, ModelMessage, Picture, ProviderState, Request, Routing, ToolSpec,
};

/// The prefixes of OpenAI's models that expect `max_completion_tokens` instead of `max_tokens`.
const MAX_COMPLETION_TOKENS_MODELS: [&str; 5] = ["gpt-5", "gpt-6", "o1", "o3", "o4"];

pub(in super::super) fn body(request: &Request, routing: &Routing) -> Value {
    let mut messages = Vec::with_capacity(request.messages.len() + 1);
    if !request.system.is_empty() {
        messages.push(json!({"role": "system", "content": request.system}));
    }
    for message in &request.messages {
        match message {
            ModelMessage::User { text, pictures, documents } => {
                messages.push(user(text, pictures, documents));
            }
            ModelMessage::Model { text, calls, provider_state } => {
                messages.push(assistant(text, calls, provider_state))
            }
            ModelMessage::Results(results) => {
                messages.extend(results.iter().map(
                    |result| json!({"role": "tool", "content": result.text, "tool_call_id": result.id}),
                ));
                messages.extend(result_pictures(results).map(|(text, pictures)| user(&text, &pictures, &[])));
            }
        }
    }
    let mut body = json!({"model": request.model, "stream": true});
    set(&mut body, "reasoning_effort", effort(request.reasoning));
    set(&mut body, "tools", tools(request, tool));
    body["messages"] = messages.into();
    body["stream_options"] = json!({"include_usage": true});
    let is_newer = MAX_COMPLETION_TOKENS_MODELS.iter().any(|prefix| request.model.starts_with(prefix));
    let member = if is_newer { "max_completion_tokens" } else { "max_tokens" };
    set(&mut body, member, request.max_output);
    set(&mut body, "provider", (!routing.0.is_empty()).then(|| json!({"order": routing.0})));
    body
}

fn user(text: &str, pictures: &[Picture], documents: &[Document]) -> Value {
    if pictures.is_empty() && documents.is_empty() {
        return json!({"role": "user", "content": text});
    }
    let images =
        pictures.iter().map(|picture| json!({"type": "image_url", "image_url": {"url": data_url(picture)}}));
    let files = documents.iter().map(|document| {
        let file = json!({"filename": document.name, "file_data": document_url(document)});
        json!({"type": "file", "file": file})
    });
    let content: Value = files.chain(images).chain([json!({"type": "text", "text": text})]).collect();
    json!({"role": "user", "content": content})
}

fn assistant(text: &str, calls: &[ModelCall], provider_state: &ProviderState) -> Value {
    let mut message = json!({"role": "assistant", "content": text});
    let call = |call: &ModelCall| {
        let function = json!({"name": call.tool, "arguments": input_object(&call.input).to_string()});
        json!({"type": "function", "id": call.id, "function": function})
    };
    set(&mut message, "tool_calls", (!calls.is_empty()).then(|| calls.iter().map(call).collect::<Value>()));
    for part in &provider_state.0 {
        if let ProviderStatePart::ReasoningContent(reasoning) = part {
            message["reasoning_content"] = json!(reasoning);
        }
    }
    message
}

fn tool(tool: &ToolSpec) -> Value {
    let function = json!({"name": tool.name, "description": tool.description, "parameters": schema(tool), "strict": false});
    json!({"type": "function", "function": function})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::formats::shared::sample::{conversation, message_with_image, request_with_document};

    #[test]
    fn a_conversation_is_serialized() {
        let provider_state = ProviderState(vec![ProviderStatePart::ReasoningContent("hm".to_owned())]);
        let call =
            json!({"type": "function", "id": "1", "function": {"name": "shell", "arguments": "{\"a\":1}"}});
        let image = json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,cG5n"}});
        let note = json!({"type": "text", "text": "(The images above are what shell gave back.)"});
        let function = json!({
            "name": "shell", "description": "Runs a command.", "parameters": {"type": "object"}, "strict": false,
        });
        let wanted = json!({
            "model": "m", "stream": true, "reasoning_effort": "low",
            "tools": [{"type": "function", "function": function}],
            "messages": [
                {"role": "system", "content": "be kind"},
                {"role": "user", "content": "hi"},
                {"role": "assistant", "content": "I look.", "tool_calls": [call], "reasoning_content": "hm"},
                {"role": "tool", "content": "out", "tool_call_id": "1"},
                {"role": "user", "content": [image, note]},
            ],
            "stream_options": {"include_usage": true}, "max_tokens": 7,
        });
        assert_eq!(body(&conversation(provider_state), &Routing::default()), wanted);
    }

    #[test]
    fn a_document_comes_before_images_and_text() {
        let body = body(&request_with_document(), &Routing::default());
        let file = json!({"filename": "a.pdf", "file_data": "data:application/pdf;base64,cGRm"});
        let content = &body["messages"][0]["content"];
        assert_eq!(content[0], json!({"type": "file", "file": file}));
        assert_eq!((&content[1]["type"], &content[2]["text"]), (&json!("image_url"), &json!("read")));
    }

    #[test]
    fn unset_members_are_left_out() {
        let request = Request {
            model: "o3-mini".to_owned(),
            messages: vec![message_with_image()],
            ..Request::default()
        };
        let body = body(&Request { max_output: Some(9), ..request }, &Routing::default());
        assert_eq!((&body["max_completion_tokens"], body.get("max_tokens")), (&json!(9), None));
        assert!(body.get("tools").is_none() && body.get("reasoning_effort").is_none(), "{body}");
        assert_eq!(body["messages"][0]["content"][1]["text"], "look");
    }

    #[test]
    fn requests_with_a_common_beginning_have_the_same_first_messages() {
        let bytes = |request: &Request| {
            let body = body(request, &Routing::default());
            body["messages"].as_array().unwrap()[..4].iter().map(Value::to_string).collect::<Vec<_>>()
        };
        let short = conversation(ProviderState::default());
        let mut longer = short.clone();
        longer.messages.push(message_with_image());
        assert_eq!(bytes(&short), bytes(&longer));
    }
}
