//! Writes requests: <https://ai.google.dev/api/generate-content>.

use std::collections::HashSet;

use parlor_vocab::Reasoning;
use serde_json::{Value, json};

use crate::provider::formats::shared::{
    LOCAL_CALL_ID_PREFIX, input_object, result_pictures, schema, set, tools,
};
use crate::provider::piece::ProviderStatePart;
use crate::provider::{
    CallResult, Document, ModelCall, ModelMessage, Picture, ProviderState, Request, ToolSpec,
};

/// The placeholder for a missing signature. The newest models require a signature with the first call.
const NO_SIGNATURE: &str = "skip_thought_signature_validator";

/// Thinking budgets in tokens, for models without thinking levels.
const LOW_BUDGET: u32 = 1000;
const MEDIUM_BUDGET: u32 = 8000;
const HIGH_BUDGET: u32 = 24_000;

pub(in super::super) fn body(request: &Request) -> Value {
    let mut contents = Vec::with_capacity(request.messages.len());
    let mut called = HashSet::new();
    for message in &request.messages {
        match message {
            ModelMessage::User { text, pictures, documents } => {
                contents.push(user(text, pictures, documents));
            }
            ModelMessage::Model { text, calls, provider_state } => {
                called.extend(calls.iter().map(|call| call.id.as_str()));
                let wants_signature = request.model.contains("gemini-3");
                contents.push(model(text, calls, provider_state, wants_signature));
            }
            ModelMessage::Results(results) => {
                let parts: Value = results.iter().map(|result| response(result, &called)).collect();
                contents.push(json!({"role": "user", "parts": parts}));
                contents.extend(result_pictures(results).map(|(text, pictures)| user(&text, &pictures, &[])));
            }
        }
    }
    let mut thinking = json!({"includeThoughts": true});
    if let Some(reasoning) = request.reasoning {
        set_reasoning(&mut thinking, reasoning, &request.model);
    }
    let mut body = json!({"generationConfig": {"thinkingConfig": thinking}});
    set(&mut body["generationConfig"], "maxOutputTokens", request.max_output);
    let system = (!request.system.is_empty()).then(|| json!({"parts": [{"text": request.system}]}));
    set(&mut body, "systemInstruction", system);
    set(&mut body, "tools", tools(request, tool).map(|tools| json!([{"functionDeclarations": tools}])));
    body["contents"] = contents.into();
    body
}

fn user(text: &str, pictures: &[Picture], documents: &[Document]) -> Value {
    let inline = |mime: &str, base64: &str| json!({"inline_data": {"mime_type": mime, "data": base64}});
    let files = documents.iter().map(|document| inline(&document.mime, &document.base64));
    let images = pictures.iter().map(|picture| inline(&picture.mime, &picture.base64));
    let parts: Value = files.chain(images).chain([json!({"text": text})]).collect();
    json!({"role": "user", "parts": parts})
}

fn model(text: &str, calls: &[ModelCall], provider_state: &ProviderState, wants_signature: bool) -> Value {
    let signature = |index: Option<usize>| {
        provider_state.0.iter().rev().find_map(|part| match part {
            ProviderStatePart::ThoughtSignature { call, signature } if *call == index => {
                Some(signature.as_str())
            }
            ProviderStatePart::ThoughtSignature { .. }
            | ProviderStatePart::ReasoningContent(_)
            | ProviderStatePart::EncryptedReasoning(_)
            | ProviderStatePart::SignedReasoning { .. }
            | ProviderStatePart::RedactedReasoning(_) => None,
        })
    };
    let mut parts = Vec::with_capacity(calls.len() + 1);
    if !text.is_empty() {
        let mut part = json!({"text": text});
        set(&mut part, "thoughtSignature", signature(None));
        parts.push(part);
    }
    for (index, call) in calls.iter().enumerate() {
        let mut function = json!({"name": call.tool, "args": input_object(&call.input)});
        set(&mut function, "id", provider_id(&call.id));
        let mut part = json!({"functionCall": function});
        let none = (wants_signature && index == 0).then_some(NO_SIGNATURE);
        set(&mut part, "thoughtSignature", signature(Some(index)).or(none));
        parts.push(part);
    }
    json!({"role": "model", "parts": parts})
}

fn response(result: &CallResult, called: &HashSet<&str>) -> Value {
    let mut response =
        json!({"name": result.tool, "response": {"name": result.tool, "content": result.text}});
    let is_known = called.contains(result.id.as_str());
    set(&mut response, "id", provider_id(&result.id).filter(|_| is_known));
    json!({"functionResponse": response})
}

/// The id of a call, if it is the provider's and not one that parlor generated.
fn provider_id(id: &str) -> Option<&str> {
    Some(id).filter(|id| !id.is_empty() && !id.starts_with(LOCAL_CALL_ID_PREFIX))
}

fn set_reasoning(thinking: &mut Value, reasoning: Reasoning, model: &str) {
    let (level, budget) = match reasoning {
        // Not every model can switch reasoning off. Without a level, each model uses its default.
        Reasoning::Off | Reasoning::Adaptive => return,
        Reasoning::Low => ("LOW", LOW_BUDGET),
        Reasoning::Medium => ("MEDIUM", MEDIUM_BUDGET),
        Reasoning::High | Reasoning::Xhigh => ("HIGH", HIGH_BUDGET),
    };
    if model.contains("gemini-3") || model.contains("gemma-4") {
        thinking["thinkingLevel"] = json!(level);
    } else {
        thinking["thinkingBudget"] = json!(budget);
    }
}

fn tool(tool: &ToolSpec) -> Value {
    json!({"name": tool.name, "description": tool.description, "parametersJsonSchema": schema(tool)})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::formats::shared::sample::{conversation, request_with_document};

    #[test]
    fn a_conversation_is_serialized() {
        let signed = |call, signature: &str| ProviderStatePart::ThoughtSignature {
            call,
            signature: signature.to_owned(),
        };
        let provider_state = ProviderState(vec![signed(None, "s0"), signed(Some(0), "s1")]);
        let declared = json!({"name": "shell", "description": "Runs a command.", "parametersJsonSchema": {"type": "object"}});
        let call = json!({"name": "shell", "args": {"a": 1}, "id": "1"});
        let response = json!({"name": "shell", "response": {"name": "shell", "content": "out"}, "id": "1"});
        let image = json!({"inline_data": {"mime_type": "image/png", "data": "cG5n"}});
        let wanted = json!({
            "generationConfig": {
                "thinkingConfig": {"includeThoughts": true, "thinkingBudget": 1000}, "maxOutputTokens": 7,
            },
            "systemInstruction": {"parts": [{"text": "be kind"}]},
            "tools": [{"functionDeclarations": [declared]}],
            "contents": [
                {"role": "user", "parts": [{"text": "hi"}]},
                {"role": "model", "parts": [
                    {"text": "I look.", "thoughtSignature": "s0"},
                    {"functionCall": call, "thoughtSignature": "s1"},
                ]},
                {"role": "user", "parts": [{"functionResponse": response}]},
                {"role": "user", "parts": [image, {"text": "(The images above are what shell gave back.)"}]},
            ],
        });
        assert_eq!(body(&conversation(provider_state)), wanted);
    }

    #[test]
    fn the_newest_models_get_a_thinking_level_and_a_signature() {
        let mut request = conversation(ProviderState::default());
        request.model = "gemini-3-pro".to_owned();
        request.reasoning = Some(Reasoning::Xhigh);
        let body = body(&request);
        assert_eq!(body["generationConfig"]["thinkingConfig"]["thinkingLevel"], "HIGH");
        assert_eq!(body["contents"][1]["parts"][1]["thoughtSignature"], NO_SIGNATURE);
    }

    #[test]
    fn a_document_comes_before_images_and_text() {
        let body = body(&request_with_document());
        let parts = &body["contents"][0]["parts"];
        assert_eq!(parts[0], json!({"inline_data": {"mime_type": "application/pdf", "data": "cGRm"}}));
        let image = json!("image/png");
        assert_eq!((&parts[1]["inline_data"]["mime_type"], &parts[2]["text"]), (&image, &json!("read")));
    }

    #[test]
    fn a_generated_id_is_not_sent() {
        assert_eq!((provider_id("call#0"), provider_id("call#x#0"), provider_id("")), (None, None, None));
        assert_eq!(provider_id("call_1"), Some("call_1"));
    }
}
