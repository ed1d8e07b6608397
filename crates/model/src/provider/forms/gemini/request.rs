//! What is sent: <https://ai.google.dev/api/generate-content>.

use std::collections::HashSet;

use parlor_vocab::Reasoning;
use serde_json::{Value, json};

use crate::provider::forms::shared::{MADE_UP_ID, object, pictures_of, schema, set, tools};
use crate::provider::piece::ProviderStatePart;
use crate::provider::{CallResult, ModelCall, ModelMessage, Picture, ProviderState, Request, ToolSpec};

/// What stands in the place of a signature that is not there: the newest models want one with the first call.
const NO_SIGNATURE: &str = "skip_thought_signature_validator";

/// Tokens for the thoughts of models that know no level.
const LOW_BUDGET: u32 = 1000;
const MEDIUM_BUDGET: u32 = 8000;
const HIGH_BUDGET: u32 = 24_000;

pub(in super::super) fn body(request: &Request) -> Value {
    let mut contents = Vec::with_capacity(request.messages.len());
    let mut called = HashSet::new();
    for said in &request.messages {
        match said {
            ModelMessage::User { text, pictures } => contents.push(user(text, pictures)),
            ModelMessage::Model { text, calls, thread } => {
                called.extend(calls.iter().map(|call| call.id.as_str()));
                let wants_signature = request.model.contains("gemini-3");
                contents.push(model(text, calls, thread, wants_signature));
            }
            ModelMessage::Results(results) => {
                let parts: Value = results.iter().map(|result| response(result, &called)).collect();
                contents.push(json!({"role": "user", "parts": parts}));
                contents.extend(pictures_of(results).map(|(text, pictures)| user(&text, &pictures)));
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

fn user(text: &str, pictures: &[Picture]) -> Value {
    let image =
        |picture: &Picture| json!({"inline_data": {"mime_type": picture.mime, "data": &*picture.base64}});
    let parts: Value = pictures.iter().map(image).chain([json!({"text": text})]).collect();
    json!({"role": "user", "parts": parts})
}

fn model(text: &str, calls: &[ModelCall], thread: &ProviderState, wants_signature: bool) -> Value {
    let signature = |of: Option<usize>| {
        thread.0.iter().rev().find_map(|part| match part {
            ProviderStatePart::ThoughtSignature { call, signature } if *call == of => {
                Some(signature.as_str())
            }
            ProviderStatePart::ThoughtSignature { .. }
            | ProviderStatePart::ReasoningContent(_)
            | ProviderStatePart::EncryptedReasoning(_)
            | ProviderStatePart::SignedThought { .. }
            | ProviderStatePart::RedactedThought(_) => None,
        })
    };
    let mut parts = Vec::with_capacity(calls.len() + 1);
    if !text.is_empty() {
        let mut part = json!({"text": text});
        set(&mut part, "thoughtSignature", signature(None));
        parts.push(part);
    }
    for (place, call) in calls.iter().enumerate() {
        let mut function = json!({"name": call.tool, "args": object(&call.input)});
        set(&mut function, "id", own_id(&call.id));
        let mut part = json!({"functionCall": function});
        let none = (wants_signature && place == 0).then_some(NO_SIGNATURE);
        set(&mut part, "thoughtSignature", signature(Some(place)).or(none));
        parts.push(part);
    }
    json!({"role": "model", "parts": parts})
}

fn response(result: &CallResult, called: &HashSet<&str>) -> Value {
    let mut response =
        json!({"name": result.tool, "response": {"name": result.tool, "content": result.text}});
    let is_known = called.contains(result.id.as_str());
    set(&mut response, "id", own_id(&result.id).filter(|_| is_known));
    json!({"functionResponse": response})
}

/// The id of a call, unless it was made up here.
fn own_id(id: &str) -> Option<&str> {
    Some(id).filter(|id| !id.is_empty() && !id.starts_with(MADE_UP_ID))
}

fn set_reasoning(thinking: &mut Value, reasoning: Reasoning, model: &str) {
    let (level, budget) = match reasoning {
        // Not every model can be told so: without a level, each thinks as little as it does of itself.
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
    use crate::provider::forms::shared::sample::conversation;

    #[test]
    fn a_conversation_as_this_form_writes_it() {
        let signed = |call, signature: &str| ProviderStatePart::ThoughtSignature {
            call,
            signature: signature.to_owned(),
        };
        let thread = ProviderState(vec![signed(None, "s0"), signed(Some(0), "s1")]);
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
        assert_eq!(body(&conversation(thread)), wanted);
    }

    #[test]
    fn the_newest_models_get_a_level_and_a_signature() {
        let mut request = conversation(ProviderState::default());
        request.model = "gemini-3-pro".to_owned();
        request.reasoning = Some(Reasoning::Xhigh);
        let body = body(&request);
        assert_eq!(body["generationConfig"]["thinkingConfig"]["thinkingLevel"], "HIGH");
        assert_eq!(body["contents"][1]["parts"][1]["thoughtSignature"], NO_SIGNATURE);
    }

    #[test]
    fn an_id_that_was_made_up_is_not_sent() {
        assert_eq!((own_id("call#0"), own_id("call#x#0"), own_id("")), (None, None, None));
        assert_eq!(own_id("call_1"), Some("call_1"));
    }
}
