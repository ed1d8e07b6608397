//! Writes requests: <https://docs.ollama.com/api/chat>.

use parlor_vocab::Reasoning;
use serde_json::{Value, json};

use crate::provider::formats::shared::{input_object, result_pictures, schema, set, tools};
use crate::provider::{Document, ModelCall, ModelMessage, Picture, Request, ToolSpec};

pub(in super::super) fn body(request: &Request) -> Value {
    let mut messages = Vec::with_capacity(request.messages.len() + 1);
    if !request.system.is_empty() {
        messages.push(json!({"role": "system", "content": request.system}));
    }
    for message in &request.messages {
        match message {
            ModelMessage::User { text, pictures, documents } => {
                messages.push(user(&with_names(text, documents), pictures));
            }
            ModelMessage::Model { text, calls, .. } => messages.push(assistant(text, calls)),
            ModelMessage::Results(results) => {
                messages.extend(
                    results.iter().map(
                        |result| json!({"role": "tool", "content": result.text, "tool_name": result.tool}),
                    ),
                );
                messages.extend(result_pictures(results).map(|(text, pictures)| user(&text, &pictures)));
            }
        }
    }
    let mut body = json!({"model": request.model, "stream": true});
    set(&mut body, "options", request.max_output.map(|most| json!({"num_predict": most})));
    set(&mut body, "tools", tools(request, tool));
    body["messages"] = messages.into();
    set(&mut body, "think", request.reasoning.and_then(think));
    body
}

/// The text with the names of the documents, for which this API has no form.
fn with_names(text: &str, documents: &[Document]) -> String {
    let names = documents.iter().map(|document| {
        format!("\n(The document {} is left out: the API of Ollama has no form for it.)", document.name)
    });
    std::iter::once(text.to_owned()).chain(names).collect()
}

fn user(text: &str, pictures: &[Picture]) -> Value {
    let mut message = json!({"role": "user", "content": text});
    let images = || pictures.iter().map(|picture| json!(&*picture.base64)).collect::<Value>();
    set(&mut message, "images", (!pictures.is_empty()).then(images));
    message
}

fn assistant(text: &str, calls: &[ModelCall]) -> Value {
    let mut message = json!({"role": "assistant", "content": text});
    let call =
        |call: &ModelCall| json!({"function": {"name": call.tool, "arguments": input_object(&call.input)}});
    set(&mut message, "tool_calls", (!calls.is_empty()).then(|| calls.iter().map(call).collect::<Value>()));
    message
}

fn think(reasoning: Reasoning) -> Option<Value> {
    match reasoning {
        Reasoning::Off => Some(json!(false)),
        Reasoning::Low => Some(json!("low")),
        Reasoning::Medium => Some(json!("medium")),
        Reasoning::High => Some(json!("high")),
        Reasoning::Xhigh => Some(json!("max")),
        Reasoning::Adaptive => None,
    }
}

fn tool(tool: &ToolSpec) -> Value {
    let function = json!({"name": tool.name, "description": tool.description, "parameters": schema(tool)});
    json!({"type": "function", "function": function})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::ProviderState;
    use crate::provider::formats::shared::sample::{conversation, request_with_document};

    #[test]
    fn a_conversation_is_serialized() {
        let mut request = conversation(ProviderState::default());
        // Each result is a message of its own.
        if let Some(ModelMessage::Results(results)) = request.messages.last_mut() {
            let mut second = results[0].clone();
            (second.text, second.pictures) = ("more".to_owned(), Vec::new());
            results.push(second);
        }
        let function =
            json!({"name": "shell", "description": "Runs a command.", "parameters": {"type": "object"}});
        let call = json!({"function": {"name": "shell", "arguments": {"a": 1}}});
        let wanted = json!({
            "model": "m", "stream": true, "options": {"num_predict": 7},
            "tools": [{"type": "function", "function": function}],
            "messages": [
                {"role": "system", "content": "be kind"},
                {"role": "user", "content": "hi"},
                {"role": "assistant", "content": "I look.", "tool_calls": [call]},
                {"role": "tool", "content": "out", "tool_name": "shell"},
                {"role": "tool", "content": "more", "tool_name": "shell"},
                {"role": "user", "content": "(The images above are what shell gave back.)", "images": ["cG5n"]},
            ],
            "think": "low",
        });
        assert_eq!(body(&request), wanted);
    }

    #[test]
    fn a_document_is_named() {
        let body = body(&request_with_document());
        let text = "read\n(The document a.pdf is left out: the API of Ollama has no form for it.)";
        assert_eq!(body["messages"][0], json!({"role": "user", "content": text, "images": ["cG5n"]}));
    }
}
