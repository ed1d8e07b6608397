//! A provider over the network, through genai.
//!
//! What genai 0.7 does not offer, and how it is met here:
//! - Its results of tools are text: images and errors go to Anthropic as raw parts, elsewhere images
//!   follow as the user's (`speech.rs`).
//! - A stream that is cut off ends in silence, or with an end that has no reason: both are reported as
//!   broken.
//! - It takes `-low` or `-high` at the end of a model's name for an effort: the name is put into the
//!   body once more, as it was.
//! - It does not say what OpenRouter charged, so cost is known from prices only.
//! - It sends the token of a login to Anthropic and Gemini as a key, Ollama none, and cannot do without one elsewhere:
//!   there, address and headers are ours.
//! - It trusts the numbers of calls, that one part of an answer follows the other, and that a stream says when it ends:
//!   these are read from the frames (`frames/`).
//! - It drops what comes in the place of a stream: what an error says that has a status as if all were well cannot be told.
//! - It reads a line of a stream, the body of an error and a list of models as a whole, and nothing that it offers bounds
//!   them: whoever is asked is trusted not to fill the memory with these. Ours are to what an answer holds, to silence,
//!   and to the time of a run.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream;
use genai::chat::{ChatFrameSink, ChatOptions, ReasoningEffort};
use genai::resolver::{AuthData, Endpoint, ProviderConfig};
use genai::{Client, Headers, ModelIden, ServiceTarget};
use parlor_vocab::Reasoning;
use reqwest::redirect::Policy;
use serde_json::{Value, json};

use super::frames::Frames;
use super::reading::{Reading, hide};
use super::speech::spoken;
use super::trouble::trouble;
use super::{Key, KeyError, KeySource, Pieces, Provider, ProviderError, ProviderKind, Request};

/// How long it may take to reach a server.
pub const CONNECT_WAIT: Duration = Duration::from_secs(20);

/// How long a server may take to begin its answer.
pub const FIRST_WORD_WAIT: Duration = Duration::from_secs(300);

/// How long a server may say nothing in the middle of an answer.
pub const SILENCE_WAIT: Duration = Duration::from_secs(180);

/// The most models of a catalogue that are taken.
pub const MAX_CATALOGUE: usize = 5000;

/// The version of Anthropic's API that requests without a key of its own name.
const ANTHROPIC_VERSION: &str = "2023-06-01";

/// To which of its own providers OpenRouter is to pass on, the first first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Routing(pub Vec<String>);

/// A way to a provider, with its key. Holds open connections, which clones share.
#[derive(Clone)]
pub struct Connection {
    kind: ProviderKind,
    /// Made when it is first needed: it reads all certificates of the machine.
    client: Arc<OnceLock<Client>>,
    endpoint: Endpoint,
    key: Arc<dyn KeySource>,
    routing: Routing,
}

impl Connection {
    /// A way to a provider at `base_url`, or where it usually is. Nothing is sent yet.
    pub fn new(
        kind: ProviderKind,
        base_url: Option<&str>,
        key: Arc<dyn KeySource>,
        routing: Routing,
    ) -> Self {
        let mut url = base_url.unwrap_or(kind.base_url()).to_owned();
        if !url.ends_with('/') {
            url.push('/');
        }
        Self { kind, client: Arc::default(), endpoint: Endpoint::from_owned(url), key, routing }
    }

    fn client(&self) -> Result<&Client, ProviderError> {
        if let Some(client) = self.client.get() {
            return Ok(client);
        }
        // Who redirects would be handed the key, and all that was said.
        let web = reqwest::Client::builder().connect_timeout(CONNECT_WAIT).redirect(Policy::none()).build();
        let web = web.map_err(|error| ProviderError::broken(error.to_string()))?;
        let client = Client::builder().with_reqwest(web).build();
        let client = client.map_err(|error| ProviderError::broken(error.to_string()))?;
        Ok(self.client.get_or_init(|| client))
    }

    /// The models that the provider has, as it calls them, sorted.
    pub async fn catalogue(&self) -> Result<Vec<String>, ProviderError> {
        let key = self.current_key().await?;
        let auth = key.as_ref().map_or(AuthData::None, |key| AuthData::from_single(key.reveal()));
        let config = ProviderConfig { endpoint: Some(self.endpoint.clone()), auth: Some(auth) };
        let names = self.client()?.all_model_names(self.kind.adapter(), config).await;
        let mut names = names.map_err(|error| hide(trouble(&error), key.as_ref()))?;
        names.truncate(MAX_CATALOGUE);
        names.sort_unstable();
        Ok(names)
    }

    async fn current_key(&self) -> Result<Option<Key>, ProviderError> {
        self.key.key().await.map_err(no_key)
    }

    async fn ask_with(&self, request: &Request, key: Option<Key>) -> Result<Reading, ProviderError> {
        let target = ServiceTarget {
            endpoint: self.endpoint.clone(),
            auth: self.auth_of(request, key.as_ref()),
            model: ModelIden::new(self.kind.adapter(), request.model.as_str()),
        };
        let frames = Arc::new(Frames::new(self.kind, key.clone()));
        let options = self.options(request, &frames);
        let answer =
            self.client()?.exec_chat_stream(target, spoken(request, self.kind), Some(&options)).await;
        let answer = answer.map_err(|error| hide(trouble(&error), key.as_ref()))?;
        Ok(Reading::new(answer.stream, self.kind, key, frames))
    }

    /// How a request says who asks, if anybody does.
    fn auth_of(&self, request: &Request, key: Option<&Key>) -> AuthData {
        let base = self.endpoint.base_url();
        let url = match self.kind {
            ProviderKind::OpenAi | ProviderKind::OpenRouter => format!("{base}chat/completions"),
            ProviderKind::OpenAiResponses => format!("{base}responses"),
            ProviderKind::Anthropic => format!("{base}messages"),
            ProviderKind::Gemini => format!("{base}models/{}:streamGenerateContent?alt=sse", request.model),
            ProviderKind::Ollama => format!("{base}api/chat"),
        };
        let mut headers = Vec::new();
        match key {
            // genai sends Ollama no key at all.
            Some(key) if key.is_bearer() || self.kind == ProviderKind::Ollama => {
                headers.push(("authorization".to_owned(), format!("Bearer {}", key.reveal())));
            }
            Some(key) => return AuthData::from_single(key.reveal()),
            None => {}
        }
        if self.kind == ProviderKind::Anthropic {
            headers.push(("anthropic-version".to_owned(), ANTHROPIC_VERSION.to_owned()));
        }
        AuthData::RequestOverride { url, headers: Headers::from(headers) }
    }

    fn options(&self, request: &Request, frames: &Arc<Frames>) -> ChatOptions {
        let effort = request.reasoning.and_then(|reasoning| effort(reasoning, self.kind));
        // Models that cannot think turn down a request that speaks of thoughts, but only here.
        let thoughts = self.kind != ProviderKind::OpenAiResponses
            || effort.as_ref().is_some_and(|effort| !matches!(effort, ReasoningEffort::Zero));
        let options = ChatOptions {
            max_tokens: request.max_output,
            reasoning_effort: effort,
            extra_body: self.extra_body(request),
            stream_header_timeout: Some(FIRST_WORD_WAIT),
            stream_read_timeout: Some(SILENCE_WAIT),
            raw_frame_sink: Some(Arc::clone(frames) as Arc<dyn ChatFrameSink>),
            ..ChatOptions::default()
        };
        options
            .with_capture_usage(true)
            .with_capture_reasoning_content(thoughts)
            .with_normalize_reasoning_content(true)
    }

    fn extra_body(&self, request: &Request) -> Option<Value> {
        match self.kind {
            // There the name is a part of the address, or taken as it is.
            ProviderKind::Gemini | ProviderKind::Ollama => None,
            ProviderKind::OpenAi | ProviderKind::OpenAiResponses | ProviderKind::Anthropic => {
                Some(json!({ "model": request.model }))
            }
            ProviderKind::OpenRouter if self.routing.0.is_empty() => Some(json!({ "model": request.model })),
            ProviderKind::OpenRouter => {
                Some(json!({ "model": request.model, "provider": {"order": self.routing.0} }))
            }
        }
    }
}

#[async_trait]
impl Provider for Connection {
    async fn ask(&self, request: &Request) -> Result<Pieces, ProviderError> {
        let key = self.current_key().await?;
        let mut reading = self.ask_with(request, key.clone()).await?;
        // Only with its first piece it is known whether the key was accepted.
        let mut first = reading.piece().await;
        if let (Err(ProviderError::Auth { .. }), Some(refused)) = (&first, &key)
            && let Some(other) = self.key.instead_of(refused).await.map_err(no_key)?
        {
            reading = self.ask_with(request, Some(other)).await?;
            first = reading.piece().await;
        }
        let first = reading.taken(first);
        Ok(stream::iter([first]).chain(stream::unfold(reading, Reading::next)).boxed())
    }
}

fn no_key(error: KeyError) -> ProviderError {
    match error {
        KeyError::Missing(said) => ProviderError::Auth { said },
        KeyError::Unavailable(said) => ProviderError::broken(said),
        KeyError::Settings(said) => ProviderError::Settings { said },
    }
}

fn effort(reasoning: Reasoning, kind: ProviderKind) -> Option<ReasoningEffort> {
    match reasoning {
        Reasoning::Off => Some(ReasoningEffort::Zero),
        Reasoning::Low => Some(ReasoningEffort::Low),
        Reasoning::Medium => Some(ReasoningEffort::Medium),
        Reasoning::High => Some(ReasoningEffort::High),
        Reasoning::Xhigh => Some(ReasoningEffort::XHigh),
        // Anthropic's models think as they see fit once an effort is named; the others do of themselves.
        Reasoning::Adaptive if kind == ProviderKind::Anthropic => Some(ReasoningEffort::High),
        Reasoning::Adaptive => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::FixedKey;

    fn connection(kind: ProviderKind) -> Connection {
        let key = Arc::new(FixedKey(Ok(None)));
        Connection::new(kind, Some("http://127.0.0.1:1/v1"), key, Routing(vec!["x".to_owned()]))
    }

    #[test]
    fn the_name_of_a_model_is_sent_as_it_is_and_routing_goes_to_openrouter_alone() {
        let request = Request { model: "m-high".to_owned(), ..Request::default() };
        let body = |kind| connection(kind).extra_body(&request);
        assert_eq!(body(ProviderKind::OpenAi), Some(json!({"model": "m-high"})));
        assert_eq!(
            body(ProviderKind::OpenRouter),
            Some(json!({"model": "m-high", "provider": {"order": ["x"]}}))
        );
        assert_eq!(body(ProviderKind::Gemini), None);
    }

    #[test]
    fn each_level_of_reasoning_means_something() {
        let word = |level, kind| effort(level, kind).map(|effort| effort.variant_name());
        assert_eq!(word(Reasoning::Off, ProviderKind::OpenAi), Some("zero"));
        assert_eq!(word(Reasoning::Xhigh, ProviderKind::OpenAi), Some("xhigh"));
        assert_eq!(word(Reasoning::Adaptive, ProviderKind::OpenAi), None);
        assert_eq!(word(Reasoning::Adaptive, ProviderKind::Anthropic), Some("high"));
    }
}
