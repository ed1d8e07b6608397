//! [`Connection`]: a provider over HTTP.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures_util::{StreamExt, stream};
use reqwest::header::CONTENT_TYPE;
use reqwest::{Client, Response};
use tokio::time::timeout;

use super::answer_reader::{AnswerReader, Step};
use super::classify_error::request_error;
use super::error::truncate_message;
use super::{
    Key, KeyError, KeySource, Piece, Pieces, Provider, ProviderError, ProviderKind, Request, formats, http,
    model_list,
};

/// How long a server may take to begin its response.
pub const FIRST_BYTE_WAIT: Duration = Duration::from_secs(300);

/// How long a server may send nothing in the middle of an answer.
pub const IDLE_WAIT: Duration = Duration::from_secs(180);

/// How long an answer is processed before other tasks of the thread get a turn.
const MAX_WORK: Duration = Duration::from_millis(5);

/// The order in which OpenRouter should try its providers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Routing(pub Vec<String>);

/// The URL, key and HTTP client of a provider. Clones share open HTTP connections.
#[derive(Clone)]
pub struct Connection {
    kind: ProviderKind,
    /// Created on first use, because that reads all certificates of the machine.
    client: Arc<OnceLock<Client>>,
    base_url: String,
    key: Arc<dyn KeySource>,
    routing: Routing,
}

impl Connection {
    /// A connection to `base_url`, or to the default URL of the provider. Sends nothing yet.
    pub fn new(
        kind: ProviderKind,
        base_url: Option<&str>,
        key: Arc<dyn KeySource>,
        routing: Routing,
    ) -> Self {
        let base_url = base_url.unwrap_or(kind.base_url()).to_owned();
        Self { kind, client: Arc::default(), base_url, key, routing }
    }

    /// The ids of the provider's models, sorted.
    pub async fn model_ids(&self) -> Result<Vec<String>, ProviderError> {
        let key = self.current_key().await?;
        let ids = self.list_models(key.as_ref()).await;
        match self.replacement_key(ids.as_ref().err(), key.as_ref()).await? {
            Some(other) => self.list_models(Some(&other)).await,
            None => ids,
        }
    }

    async fn list_models(&self, key: Option<&Key>) -> Result<Vec<String>, ProviderError> {
        let ids = model_list::model_ids(self.client()?, self.kind, &self.base_url, key).await;
        ids.map_err(|error| sanitize(error, key))
    }

    fn client(&self) -> Result<&Client, ProviderError> {
        if let Some(client) = self.client.get() {
            return Ok(client);
        }
        let client = http::client()?;
        Ok(self.client.get_or_init(|| client))
    }

    async fn current_key(&self) -> Result<Option<Key>, ProviderError> {
        self.key.key().await.map_err(key_error)
    }

    /// Another key, if the error says that the server refused `key`.
    async fn replacement_key(
        &self,
        error: Option<&ProviderError>,
        key: Option<&Key>,
    ) -> Result<Option<Key>, ProviderError> {
        match (error, key) {
            (Some(ProviderError::Auth { .. }), Some(refused)) => {
                self.key.replacement_for(refused).await.map_err(key_error)
            }
            _ => Ok(None),
        }
    }

    /// Sends a request and waits for the first piece, which shows whether the server accepted the key.
    async fn start(
        &self,
        request: &Request,
        key: Option<Key>,
    ) -> Result<(Piece, AnswerStream), ProviderError> {
        let mut url = http::join_url(&self.base_url, &formats::path(self.kind, &request.model))?;
        if self.kind == ProviderKind::Gemini {
            url.query_pairs_mut().append_pair("alt", "sse");
        }
        let body = formats::body(self.kind, request, &self.routing).to_string();
        let post = self.client()?.post(url).header(CONTENT_TYPE, "application/json").body(body);
        let sent = http::send(http::authorize(post, self.kind, key.as_ref())?).await?;
        let response = http::check_response(sent).await.map_err(|error| sanitize(error, key.as_ref()))?;
        let reader = AnswerReader::new(self.kind, key.clone());
        let mut answer = AnswerStream { response, reader, key, has_ended: false, worked: Duration::ZERO };
        let first = answer.next_piece().await?;
        Ok((first, answer))
    }
}

#[async_trait]
impl Provider for Connection {
    async fn stream(&self, request: &Request) -> Result<Pieces, ProviderError> {
        let key = self.current_key().await?;
        let mut started = self.start(request, key.clone()).await;
        if let Some(other) = self.replacement_key(started.as_ref().err(), key.as_ref()).await? {
            started = self.start(request, Some(other)).await;
        }
        Ok(match started {
            Ok((first, answer)) => {
                stream::iter([Ok(first)]).chain(stream::unfold(answer, AnswerStream::next)).boxed()
            }
            Err(error) => stream::iter([Err(error)]).boxed(),
        })
    }

    fn takes_documents(&self) -> bool {
        self.kind != ProviderKind::Ollama
    }
}

/// An answer that is being received. Dropping it closes the connection.
struct AnswerStream {
    response: Response,
    reader: AnswerReader,
    key: Option<Key>,
    has_ended: bool,
    /// The processing time since the last yield to other tasks.
    worked: Duration,
}

impl AnswerStream {
    async fn next(mut self) -> Option<(Result<Piece, ProviderError>, Self)> {
        if self.has_ended {
            return None;
        }
        let piece = self.next_piece().await;
        Some((piece, self))
    }

    /// The next piece. [`Piece::Done`] or an error is the last.
    async fn next_piece(&mut self) -> Result<Piece, ProviderError> {
        let piece = self.read().await;
        self.has_ended = matches!(piece, Err(_) | Ok(Piece::Done(_)));
        piece.map_err(|error| sanitize(error, self.key.as_ref()))
    }

    async fn read(&mut self) -> Result<Piece, ProviderError> {
        loop {
            // A server that sends many or large events without a pause must not block the other tasks of this thread.
            tokio::task::consume_budget().await;
            if self.worked > MAX_WORK {
                tokio::task::yield_now().await;
                self.worked = Duration::ZERO;
            }
            let started = Instant::now();
            let step = self.reader.step()?;
            self.worked += started.elapsed();
            match step {
                Step::Piece(piece) => return Ok(piece),
                Step::Event => {}
                Step::NeedsBytes => match timeout(IDLE_WAIT, self.response.chunk()).await {
                    Ok(Ok(Some(bytes))) => self.reader.push(&bytes),
                    Ok(Ok(None)) => self.reader.end(None)?,
                    Ok(Err(error)) => self.reader.end(Some(request_error(error)))?,
                    Err(_) => self.reader.end(Some(idle_timeout()))?,
                },
            }
        }
    }
}

fn idle_timeout() -> ProviderError {
    ProviderError::broken(format!("the answer timed out: nothing came for {} seconds", IDLE_WAIT.as_secs()))
}

fn key_error(error: KeyError) -> ProviderError {
    match error {
        KeyError::Missing(message) => ProviderError::Auth { message },
        KeyError::Unavailable(message) => ProviderError::broken(message),
        KeyError::Settings(message) => ProviderError::Settings { message },
    }
}

/// Removes the key from an error, then truncates it. In this order, because a cut could leave the beginning of the
/// key.
fn sanitize(error: ProviderError, key: Option<&Key>) -> ProviderError {
    let sanitized = |message: String| {
        truncate_message(&key.map_or_else(|| message.clone(), |key| key.redact_in(&message)))
    };
    match error {
        ProviderError::Busy { message, retry_after } => {
            ProviderError::Busy { message: sanitized(message), retry_after }
        }
        ProviderError::Broken { message, retry_after } => {
            ProviderError::Broken { message: sanitized(message), retry_after }
        }
        ProviderError::Overflow { message } => ProviderError::Overflow { message: sanitized(message) },
        ProviderError::Auth { message } => ProviderError::Auth { message: sanitized(message) },
        ProviderError::Settings { message } => ProviderError::Settings { message: sanitized(message) },
        ProviderError::Refused { message } => ProviderError::Refused { message: sanitized(message) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::error::MAX_ERROR_CHARS;

    #[test]
    fn the_key_is_removed_before_an_error_is_truncated() {
        let key = Key::new("sk-0123456789abcdef");
        let pad = MAX_ERROR_CHARS - 5;
        let error = ProviderError::Refused { message: format!("{}{}", "x".repeat(pad), key.reveal()) };
        let ProviderError::Refused { message } = sanitize(error, Some(&key)) else {
            panic!("another kind of error")
        };
        assert!(!message.contains("sk-"), "{message}");
    }
}
