//! Writes requests: <https://platform.openai.com/docs/api-reference/responses/create>.

use parlor_vocab::Reasoning;
use serde_json::{Value, json};

use crate::provider::formats::shared::{
    data_url, document_url, effort, input_object, result_pictures, schema, set, tools,
};
use crate::provider::piece::ProviderStatePart;
use crate::provider::{Document, ModelCall, ModelMessage, Picture, ProviderState, Request, ToolSpec};

pub(in super::super) fn body(request: &Request) -> Value {
    let mut items = Vec::with_capacity(request.messages.len() + 1);
    if !request.system.is_empty() {
        items.push(json!({"role": "system", "content": request.system}));
    }
    for message in &request.messages {
        match message {
            ModelMessage::User { text, pictures, documents } => items.push(user(text, pictures, documents)),
            ModelMessage::Model { text, calls, provider_state } => {
                add_answer(&mut items, text, calls, provider_state)
            }
            ModelMessage::Results(results) => {
                items.extend(results.iter().map(
                    |result| json!({"type": "function_call_output", "call_id": result.id, "output": result.text}),
                ));
                items.extend(result_pictures(results).map(|(text, pictures)| user(&text, &pictures, &[])));
            }
        }
    }
    let mut body = json!({"store": false, "model": request.model, "stream": true});
    if let Some(effort) = effort(request.reasoning) {
        body["reasoning"] = json!({"effort": effort});
        // Models without reasoning refuse a request with these members.
        if request.reasoning != Some(Reasoning::Off) {
            body["reasoning"]["summary"] = json!("detailed");
            body["include"] = json!(["reasoning.encrypted_content"]);
        }
    }
    set(&mut body, "tools", tools(request, tool));
    body["input"] = items.into();
    set(&mut body, "max_output_tokens", request.max_output);
    body
}

fn user(text: &str, pictures: &[Picture], documents: &[Document]) -> Value {
    if pictures.is_empty() && documents.is_empty() {
        return json!({"role": "user", "content": text});
    }
    let images = pictures
        .iter()
        .map(|picture| json!({"type": "input_image", "detail": "auto", "image_url": data_url(picture)}));
    let files = documents.iter().map(|document| {
        json!({"type": "input_file", "filename": document.name, "file_data": document_url(document)})
    });
    let content: Value = files.chain(images).chain([json!({"type": "input_text", "text": text})]).collect();
    json!({"role": "user", "content": content})
}

/// Adds the items of an answer. Reasoning items must come first.
fn add_answer(items: &mut Vec<Value>, text: &str, calls: &[ModelCall], provider_state: &ProviderState) {
    for part in &provider_state.0 {
        if let ProviderStatePart::EncryptedReasoning(content) = part {
            items.push(json!({"type": "reasoning", "encrypted_content": content, "summary": []}));
        }
    }
    if !text.is_empty() {
        let content = json!([{"type": "output_text", "text": text}]);
        items.push(json!({"type": "message", "role": "assistant", "content": content}));
    }
    items.extend(calls.iter().map(|call| {
        let arguments = input_object(&call.input).to_string();
        json!({"type": "function_call", "call_id": call.id, "name": call.tool, "arguments": arguments})
    }));
}

fn tool(tool: &ToolSpec) -> Value {
    json!({"type": "function", "name": tool.name, "parameters": schema(tool), "description": tool.description})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::formats::shared::sample::{conversation, request_with_document};

    #[test]
    fn a_conversation_is_serialized() {
        let provider_state = ProviderState(vec![ProviderStatePart::EncryptedReasoning("sealed".to_owned())]);
        let image =
            json!({"type": "input_image", "detail": "auto", "image_url": "data:image/png;base64,cG5n"});
        let note = json!({"type": "input_text", "text": "(The images above are what shell gave back.)"});
        let wanted = json!({
            "store": false, "model": "m", "stream": true,
            "reasoning": {"effort": "low", "summary": "detailed"}, "include": ["reasoning.encrypted_content"],
            "tools": [{
                "type": "function", "name": "shell", "parameters": {"type": "object"},
                "description": "Runs a command.",
            }],
            "input": [
                {"role": "system", "content": "be kind"},
                {"role": "user", "content": "hi"},
                {"type": "reasoning", "encrypted_content": "sealed", "summary": []},
                {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}]},
                {"type": "function_call", "call_id": "1", "name": "shell", "arguments": "{\"a\":1}"},
                {"type": "function_call_output", "call_id": "1", "output": "out"},
                {"role": "user", "content": [image, note]},
            ],
            "max_output_tokens": 7,
        });
        assert_eq!(body(&conversation(provider_state)), wanted);
    }

    #[test]
    fn a_document_comes_before_images_and_text() {
        let body = body(&request_with_document());
        let url = "data:application/pdf;base64,cGRm";
        let content = &body["input"][0]["content"];
        assert_eq!(content[0], json!({"type": "input_file", "filename": "a.pdf", "file_data": url}));
        assert_eq!((&content[1]["type"], &content[2]["text"]), (&json!("input_image"), &json!("read")));
    }

    #[test]
    fn reasoning_is_requested_only_with_an_effort() {
        let body = |reasoning| body(&Request { reasoning, ..Request::default() });
        let off = body(Some(Reasoning::Off));
        assert_eq!((&off["reasoning"], off.get("include")), (&json!({"effort": "none"}), None));
        for reasoning in [None, Some(Reasoning::Adaptive)] {
            assert!(body(reasoning).get("reasoning").is_none());
        }
    }
}
