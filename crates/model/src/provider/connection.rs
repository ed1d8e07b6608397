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
//! - It sends the token of a login to Anthropic and Gemini as a key: there, address and headers are ours.
//! - A call whose number is not the next one is there several times: each is taken once.
//! - It sets no limit to one line of a stream. Ours are to the whole answer and to silence.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream;
use genai::chat::{ChatOptions, ChatStream, ChatStreamEvent, ReasoningEffort, StopReason, StreamEnd};
use genai::resolver::{AuthData, Endpoint, ProviderConfig};
use genai::{Client, Headers, ModelIden, ServiceTarget};
use parlor_vocab::{Reasoning, Usage};
use reqwest::redirect::Policy;
use serde_json::{Value, json};

use super::error::short;
use super::speech::spoken;
use super::trouble::trouble;
use super::{
    Completion, Key, KeyError, KeySource, ModelCall, Piece, Pieces, Provider, ProviderError, ProviderKind,
    Request, Stop, Thread,
};

/// How long it may take to reach a server.
pub const CONNECT_WAIT: Duration = Duration::from_secs(20);

/// How long a server may take to begin its answer.
pub const FIRST_WORD_WAIT: Duration = Duration::from_secs(300);

/// How long a server may say nothing in the middle of an answer.
pub const SILENCE_WAIT: Duration = Duration::from_secs(180);

/// The most that one answer may have: text, thoughts and the inputs of calls.
pub const MAX_ANSWER_BYTES: usize = 16 << 20;

/// The most models of a catalogue that are taken.
pub const MAX_CATALOGUE: usize = 5000;

/// The longest name of a tool that all providers take.
const MAX_TOOL_NAME: usize = 64;

/// The version of Anthropic's API that requests with the token of a login name.
const ANTHROPIC_VERSION: &str = "2023-06-01";

/// What stands for a key where a server asks for none, but the protocol has a place for one.
const NO_KEY: &str = "none";

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
        let config = ProviderConfig { endpoint: Some(self.endpoint.clone()), auth: Some(auth(key.as_ref())) };
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
        let options = self.options(request);
        let answer =
            self.client()?.exec_chat_stream(target, spoken(request, self.kind), Some(&options)).await;
        let answer = answer.map_err(|error| hide(trouble(&error), key.as_ref()))?;
        Ok(Reading { stream: answer.stream, kind: self.kind, key, bytes: 0, calls: Vec::new(), over: false })
    }

    /// How a request says who asks.
    fn auth_of(&self, request: &Request, key: Option<&Key>) -> AuthData {
        let Some(token) = key.filter(|key| key.is_bearer()) else { return auth(key) };
        let base = self.endpoint.base_url();
        let bearer = ("authorization".to_owned(), format!("Bearer {}", token.reveal()));
        match self.kind {
            // These send any key as a bearer token.
            ProviderKind::OpenAi
            | ProviderKind::OpenAiResponses
            | ProviderKind::OpenRouter
            | ProviderKind::Ollama => auth(key),
            ProviderKind::Anthropic => {
                let version = ("anthropic-version".to_owned(), ANTHROPIC_VERSION.to_owned());
                let headers = Headers::from(vec![bearer, version]);
                AuthData::RequestOverride { url: format!("{base}messages"), headers }
            }
            ProviderKind::Gemini => {
                let url = format!("{base}models/{}:streamGenerateContent?alt=sse", request.model);
                AuthData::RequestOverride { url, headers: Headers::from(vec![bearer]) }
            }
        }
    }

    fn options(&self, request: &Request) -> ChatOptions {
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
            ..ChatOptions::default()
        };
        options
            .with_capture_usage(true)
            .with_capture_tool_calls(true)
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

/// An answer that is being read.
struct Reading {
    stream: ChatStream,
    kind: ProviderKind,
    key: Option<Key>,
    bytes: usize,
    /// The calls that have begun, each with the size of its input.
    calls: Vec<(String, usize)>,
    over: bool,
}

impl Reading {
    async fn next(mut self) -> Option<(Result<Piece, ProviderError>, Self)> {
        if self.over {
            return None;
        }
        let piece = self.piece().await;
        Some((self.taken(piece), self))
    }

    /// A piece as it is passed on; with the last one the answer is over.
    fn taken(&mut self, piece: Result<Piece, ProviderError>) -> Result<Piece, ProviderError> {
        self.over = matches!(piece, Err(_) | Ok(Piece::Done(_)));
        piece.map_err(|error| hide(error, self.key.as_ref()))
    }

    async fn piece(&mut self) -> Result<Piece, ProviderError> {
        loop {
            let Some(event) = self.stream.next().await else {
                return Err(ProviderError::broken("the stream ended before the answer was complete"));
            };
            let piece = match event.map_err(|error| trouble(&error))? {
                ChatStreamEvent::Chunk(chunk) => Piece::Text(self.counted(chunk.content)?),
                ChatStreamEvent::ReasoningChunk(chunk) => Piece::Thought(self.counted(chunk.content)?),
                ChatStreamEvent::ToolCallChunk(chunk) => {
                    let call = chunk.tool_call;
                    let bytes = call.fn_arguments.as_str().map_or(0, str::len);
                    self.call_goes_on(call.call_id, call.fn_name, bytes)?
                }
                ChatStreamEvent::End(end) => return self.done(end),
                ChatStreamEvent::Start
                | ChatStreamEvent::Heartbeat
                | ChatStreamEvent::ThoughtSignatureChunk(_) => continue,
            };
            return Ok(piece);
        }
    }

    fn counted(&mut self, text: String) -> Result<String, ProviderError> {
        self.count(text.len())?;
        Ok(text)
    }

    fn count(&mut self, more: usize) -> Result<(), ProviderError> {
        self.bytes += more;
        if self.bytes > MAX_ANSWER_BYTES {
            let said = format!("the answer is longer than {MAX_ANSWER_BYTES} bytes");
            return Err(ProviderError::Refused { said });
        }
        Ok(())
    }

    fn call_goes_on(&mut self, id: String, tool: String, bytes: usize) -> Result<Piece, ProviderError> {
        match self.calls.iter_mut().find(|(known, _)| *known == id) {
            Some((_, before)) => {
                let more = bytes.saturating_sub(*before);
                *before = bytes;
                self.count(more)?;
                Ok(Piece::CallInput { id, bytes })
            }
            None => {
                self.calls.push((id.clone(), bytes));
                self.count(bytes)?;
                Ok(Piece::CallBegun { id, tool })
            }
        }
    }

    fn done(&self, end: StreamEnd) -> Result<Piece, ProviderError> {
        let ends_without_reason = match self.kind {
            ProviderKind::OpenAi | ProviderKind::OpenRouter | ProviderKind::Anthropic => false,
            ProviderKind::OpenAiResponses | ProviderKind::Gemini | ProviderKind::Ollama => true,
        };
        if ends_without_reason && end.captured_stop_reason.is_none() {
            return Err(ProviderError::broken("the stream ended before the answer was complete"));
        }
        let stop = match &end.captured_stop_reason {
            Some(StopReason::MaxTokens(_)) => Stop::Length,
            Some(StopReason::ContentFilter(_)) => Stop::Filtered,
            Some(
                StopReason::Completed(_)
                | StopReason::ToolCall(_)
                | StopReason::StopSequence(_)
                | StopReason::Other(_),
            )
            | None => Stop::Complete,
        };
        let usage = end.captured_usage.as_ref().map(usage).unwrap_or_default();
        let parts = end.captured_content.map(|content| content.into_parts()).unwrap_or_default();
        let (calls, mut thread): (Vec<_>, Vec<_>) = parts.into_iter().partition(|part| part.is_tool_call());
        thread.retain(|part| !part.is_text());
        let calls = calls.into_iter().filter_map(|part| part.into_tool_call());
        let calls = calls.map(|call| ModelCall {
            id: call.call_id,
            tool: sendable(&call.fn_name),
            // What could not be read as JSON is passed on as the text that it is.
            input: call.fn_arguments.as_str().map_or_else(|| call.fn_arguments.to_string(), str::to_owned),
        });
        let calls = match self.kind {
            ProviderKind::OpenAi | ProviderKind::OpenRouter | ProviderKind::Ollama => {
                without_beginnings(calls.collect())
            }
            ProviderKind::OpenAiResponses | ProviderKind::Anthropic | ProviderKind::Gemini => calls.collect(),
        };
        Ok(Piece::Done(Completion { calls, usage, stop, thread: Thread(thread) }))
    }
}

/// The name of a tool as providers take it back in a history, whatever a model made up.
fn sendable(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let name: String = name.chars().take(MAX_TOOL_NAME).map(|c| if is_plain(c) { c } else { '_' }).collect();
    if name.is_empty() { "unnamed".to_owned() } else { name }
}

/// Each call once. genai fills the places before a call whose number is not the next one with how that call began.
fn without_beginnings(mut calls: Vec<ModelCall>) -> Vec<ModelCall> {
    calls.dedup_by(|later, earlier| {
        let is_beginning = !later.id.is_empty()
            && (&later.id, &later.tool) == (&earlier.id, &earlier.tool)
            && later.input.starts_with(&earlier.input);
        if is_beginning {
            std::mem::swap(later, earlier);
        }
        is_beginning
    });
    calls
}

fn no_key(error: KeyError) -> ProviderError {
    match error {
        KeyError::Missing(said) => ProviderError::Auth { said },
        KeyError::Unavailable(said) => ProviderError::broken(said),
    }
}

fn auth(key: Option<&Key>) -> AuthData {
    AuthData::from_single(key.map_or(NO_KEY, Key::reveal))
}

/// An error as it is told: without the key, and short. In this order, or the beginning of a key could be left.
fn hide(error: ProviderError, key: Option<&Key>) -> ProviderError {
    let hidden = |said: String| short(&key.map_or_else(|| said.clone(), |key| key.hide_in(&said)));
    match error {
        ProviderError::Busy { said, retry_after } => ProviderError::Busy { said: hidden(said), retry_after },
        ProviderError::Broken { said, retry_after } => {
            ProviderError::Broken { said: hidden(said), retry_after }
        }
        ProviderError::Overflow { said } => ProviderError::Overflow { said: hidden(said) },
        ProviderError::Auth { said } => ProviderError::Auth { said: hidden(said) },
        ProviderError::Refused { said } => ProviderError::Refused { said: hidden(said) },
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

/// genai counts what was cached among what was read; we do not.
fn usage(usage: &genai::chat::Usage) -> Usage {
    let count = |tokens: Option<i32>| tokens.and_then(|tokens| u64::try_from(tokens).ok()).unwrap_or(0);
    let details = usage.prompt_tokens_details.as_ref();
    let cache_read_tokens = count(details.and_then(|details| details.cached_tokens));
    let cache_write_tokens = count(details.and_then(|details| details.cache_creation_tokens));
    Usage {
        input_tokens: count(usage.prompt_tokens).saturating_sub(cache_read_tokens + cache_write_tokens),
        output_tokens: count(usage.completion_tokens),
        cache_read_tokens,
        cache_write_tokens,
        cost_micros: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::FixedKey;
    use crate::provider::error::MAX_ERROR_CHARS;

    fn connection(kind: ProviderKind) -> Connection {
        let key = Arc::new(FixedKey(Ok(None)));
        Connection::new(kind, Some("http://127.0.0.1:1/v1"), key, Routing(vec!["x".to_owned()]))
    }

    #[test]
    fn cached_tokens_are_counted_once() {
        let details = genai::chat::PromptTokensDetails {
            cached_tokens: Some(70),
            cache_creation_tokens: Some(20),
            ..Default::default()
        };
        let read = genai::chat::Usage {
            prompt_tokens: Some(100),
            completion_tokens: Some(5),
            prompt_tokens_details: Some(details),
            ..Default::default()
        };
        let usage = usage(&read);
        assert_eq!((usage.input_tokens, usage.output_tokens), (10, 5));
        assert_eq!((usage.cache_read_tokens, usage.cache_write_tokens), (70, 20));
    }

    #[test]
    fn a_call_whose_number_is_not_the_next_is_made_once() {
        let call = |id: &str, input: &str| ModelCall {
            id: id.to_owned(),
            tool: "shell".to_owned(),
            input: input.to_owned(),
        };
        let told = vec![call("a", "{\"c"), call("a", "{\"c"), call("a", "{\"c\":1}"), call("b", "{}")];
        assert_eq!(without_beginnings(told), [call("a", "{\"c\":1}"), call("b", "{}")]);
        let nameless = vec![call("", "{}"), call("", "{}")];
        assert_eq!(without_beginnings(nameless.clone()), nameless);
    }

    #[test]
    fn what_a_model_calls_a_tool_can_be_sent_back() {
        assert_eq!(sendable("read_file"), "read_file");
        assert_eq!((sendable("").as_str(), sendable("a\u{1b}[31m b").as_str()), ("unnamed", "a__31m_b"));
        assert_eq!(sendable(&"x".repeat(5000)).len(), MAX_TOOL_NAME);
    }

    #[test]
    fn a_key_is_taken_out_before_an_error_is_cut() {
        let key = Key::new("sk-0123456789abcdef");
        let pad = MAX_ERROR_CHARS - 5;
        let error = ProviderError::Refused { said: format!("{}{}", "x".repeat(pad), key.reveal()) };
        let ProviderError::Refused { said } = hide(error, Some(&key)) else { panic!("it is another") };
        assert!(!said.contains("sk-"), "{said}");
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
