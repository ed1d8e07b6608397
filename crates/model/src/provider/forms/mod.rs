//! The forms in which models are spoken to: what is sent (`request.rs` of each) and how answers are read (`read.rs`).
//!
//! Pure: a request becomes JSON, an event becomes pieces. Deliberately absent: addresses of servers, keys, and limits,
//! which are the same for all forms.

mod anthropic;
mod chat;
mod gemini;
mod ollama;
mod responses;
mod shared;

use serde::de::IgnoredAny;
use serde_json::Value;

use super::answer::Answer;
use super::split::{Event, Framing};
use super::{ProviderError, ProviderKind, ProviderState, Request, Routing};

pub(super) use shared::MADE_UP_ID;

/// How the chat form ends a stream.
const DONE: &str = "[DONE]";

/// Reads the events of one answer, in order.
pub(super) trait Reader: Send {
    /// Takes an event into `answer`.
    fn read(&mut self, event: &Event, answer: &mut Answer) -> Result<(), ProviderError>;

    /// What the provider wants to get back with an answer that has so many calls. Asked once, at the end.
    fn thread(&mut self, calls: usize) -> ProviderState;
}

/// Who reads the answers of this kind of provider.
pub(super) fn reader(kind: ProviderKind) -> Box<dyn Reader> {
    match kind {
        ProviderKind::OpenAi | ProviderKind::OpenRouter => Box::new(chat::ChatReader::default()),
        ProviderKind::OpenAiResponses => Box::new(responses::ResponsesReader::default()),
        ProviderKind::Anthropic => Box::new(anthropic::AnthropicReader::default()),
        ProviderKind::Gemini => Box::new(gemini::GeminiReader::default()),
        ProviderKind::Ollama => Box::new(ollama::OllamaReader),
    }
}

/// How its answers are cut into events.
pub(super) fn framing(kind: ProviderKind) -> Framing {
    match kind {
        ProviderKind::OpenAi
        | ProviderKind::OpenAiResponses
        | ProviderKind::Anthropic
        | ProviderKind::Gemini
        | ProviderKind::OpenRouter => Framing::ServerSentEvents,
        ProviderKind::Ollama => Framing::JsonLines,
    }
}

/// Whether it is all of the data of an event.
pub(super) fn is_whole(data: &str) -> bool {
    data == DONE || serde_json::from_str::<IgnoredAny>(data).is_ok()
}

/// What is sent. The name of the model stands there as it is, unless it is a part of the address.
pub(super) fn body(kind: ProviderKind, request: &Request, routing: &Routing) -> Value {
    match kind {
        ProviderKind::OpenAi => chat::body(request, &Routing::default()),
        ProviderKind::OpenRouter => chat::body(request, routing),
        ProviderKind::OpenAiResponses => responses::body(request),
        ProviderKind::Anthropic => anthropic::body(request),
        ProviderKind::Gemini => gemini::body(request),
        ProviderKind::Ollama => ollama::body(request),
    }
}

/// Where it is sent to, below the address of the provider.
pub(super) fn path(kind: ProviderKind, model: &str) -> String {
    match kind {
        ProviderKind::OpenAi | ProviderKind::OpenRouter => "chat/completions".to_owned(),
        ProviderKind::OpenAiResponses => "responses".to_owned(),
        ProviderKind::Anthropic => "messages".to_owned(),
        ProviderKind::Gemini => format!("models/{model}:streamGenerateContent"),
        ProviderKind::Ollama => "api/chat".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_name_of_a_model_is_sent_as_it_is_and_routing_goes_to_openrouter_alone() {
        let request = Request { model: "m-high".to_owned(), ..Request::default() };
        let routing = Routing(vec!["x".to_owned()]);
        for kind in ProviderKind::ALL {
            let body = body(kind, &request, &routing);
            let is_in_body = kind != ProviderKind::Gemini;
            assert_eq!(body.get("model"), is_in_body.then_some(&json!("m-high")), "{kind:?}");
            let routed = (kind == ProviderKind::OpenRouter).then(|| json!({"order": ["x"]}));
            assert_eq!(body.get("provider"), routed.as_ref(), "{kind:?}");
        }
        assert_eq!(path(ProviderKind::Gemini, "m-high"), "models/m-high:streamGenerateContent");
    }
}
