//! The wire formats of providers: `request.rs` of each writes requests, `read.rs` reads answers.
//!
//! Pure: a request becomes JSON, an event becomes pieces. Deliberately absent: URLs, keys, and limits, which are the same for
//! all formats.

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

pub(super) use shared::LOCAL_CALL_ID_PREFIX;

/// The last event of a stream in the chat format.
const DONE: &str = "[DONE]";

/// Reads the events of one answer, in order.
pub(super) trait EventReader: Send {
    /// Adds the content of an event to `answer`.
    fn read(&mut self, event: &Event, answer: &mut Answer) -> Result<(), ProviderError>;

    /// The state to send back with an answer that has this number of calls. Called once, at the end.
    fn provider_state(&mut self, calls: usize) -> ProviderState;
}

/// A reader for an answer of this kind of provider.
pub(super) fn reader(kind: ProviderKind) -> Box<dyn EventReader> {
    match kind {
        ProviderKind::OpenAi | ProviderKind::OpenRouter => Box::new(chat::ChatReader::default()),
        ProviderKind::OpenAiResponses => Box::new(responses::ResponsesReader::default()),
        ProviderKind::Anthropic => Box::new(anthropic::AnthropicReader::default()),
        ProviderKind::Gemini => Box::new(gemini::GeminiReader::default()),
        ProviderKind::Ollama => Box::new(ollama::OllamaReader),
    }
}

/// How the events of this kind of provider are framed.
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

/// Whether the data of an event is complete.
pub(super) fn is_complete(data: &str) -> bool {
    data == DONE || serde_json::from_str::<IgnoredAny>(data).is_ok()
}

/// The body of a request. It contains the model's id unchanged, unless the URL does.
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

/// The path of a request below the base URL.
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
    fn the_model_id_is_sent_unchanged_and_only_openrouter_gets_the_routing() {
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
