//! A provider over the network.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures_util::{StreamExt, stream};
use reqwest::header::CONTENT_TYPE;
use reqwest::{Client, Response};
use tokio::time::timeout;

use super::error::short;
use super::reading::{Reading, Step};
use super::trouble::failed;
use super::{
    Key, KeyError, KeySource, Piece, Pieces, Provider, ProviderError, ProviderKind, Request, forms, http,
    listing,
};

/// How long a server may take to begin its answer.
pub const FIRST_BYTE_WAIT: Duration = Duration::from_secs(300);

/// How long a server may say nothing in the middle of an answer.
pub const IDLE_WAIT: Duration = Duration::from_secs(180);

/// How long an answer is worked on before others have their turn on this thread.
const MAX_STRETCH: Duration = Duration::from_millis(5);

/// To which of its own providers OpenRouter is to pass on, the first first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Routing(pub Vec<String>);

/// A way to a provider, with its key. Holds open connections, which clones share.
#[derive(Clone)]
pub struct Connection {
    kind: ProviderKind,
    /// Made when it is first needed: it reads all certificates of the machine.
    client: Arc<OnceLock<Client>>,
    base_url: String,
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
        let base_url = base_url.unwrap_or(kind.base_url()).to_owned();
        Self { kind, client: Arc::default(), base_url, key, routing }
    }

    /// The models that the provider has, as it calls them, sorted.
    pub async fn model_ids(&self) -> Result<Vec<String>, ProviderError> {
        let key = self.current_key().await?;
        let listed = self.listed(key.as_ref()).await;
        match self.other_key(listed.as_ref().err(), key.as_ref()).await? {
            Some(other) => self.listed(Some(&other)).await,
            None => listed,
        }
    }

    async fn listed(&self, key: Option<&Key>) -> Result<Vec<String>, ProviderError> {
        let listed = listing::models(self.client()?, self.kind, &self.base_url, key).await;
        listed.map_err(|error| hide(error, key))
    }

    fn client(&self) -> Result<&Client, ProviderError> {
        if let Some(client) = self.client.get() {
            return Ok(client);
        }
        let client = http::client()?;
        Ok(self.client.get_or_init(|| client))
    }

    async fn current_key(&self) -> Result<Option<Key>, ProviderError> {
        self.key.key().await.map_err(no_key)
    }

    /// Another key, if the server did not accept the one that it was asked with.
    async fn other_key(
        &self,
        error: Option<&ProviderError>,
        key: Option<&Key>,
    ) -> Result<Option<Key>, ProviderError> {
        match (error, key) {
            (Some(ProviderError::Auth { .. }), Some(refused)) => {
                self.key.replacement_for(refused).await.map_err(no_key)
            }
            _ => Ok(None),
        }
    }

    /// Asks, and waits for the first piece: only then it is known whether the key was accepted.
    async fn begin(
        &self,
        request: &Request,
        key: Option<Key>,
    ) -> Result<(Piece, AnswerStream), ProviderError> {
        let mut url = http::address(&self.base_url, &forms::path(self.kind, &request.model))?;
        if self.kind == ProviderKind::Gemini {
            url.query_pairs_mut().append_pair("alt", "sse");
        }
        let body = forms::body(self.kind, request, &self.routing).to_string();
        let question = self.client()?.post(url).header(CONTENT_TYPE, "application/json").body(body);
        let sent = http::send(http::authorize(question, self.kind, key.as_ref())?).await?;
        let response = http::accept(sent).await.map_err(|error| hide(error, key.as_ref()))?;
        let reading = Reading::new(self.kind, key.clone());
        let mut answer = AnswerStream { response, reading, key, is_over: false, worked: Duration::ZERO };
        let first = answer.piece().await?;
        Ok((first, answer))
    }
}

#[async_trait]
impl Provider for Connection {
    async fn stream(&self, request: &Request) -> Result<Pieces, ProviderError> {
        let key = self.current_key().await?;
        let mut begun = self.begin(request, key.clone()).await;
        if let Some(other) = self.other_key(begun.as_ref().err(), key.as_ref()).await? {
            begun = self.begin(request, Some(other)).await;
        }
        Ok(match begun {
            Ok((first, answer)) => {
                stream::iter([Ok(first)]).chain(stream::unfold(answer, AnswerStream::next)).boxed()
            }
            Err(error) => stream::iter([Err(error)]).boxed(),
        })
    }
}

/// An answer that is coming in. Dropping it closes the connection.
struct AnswerStream {
    response: Response,
    reading: Reading,
    key: Option<Key>,
    is_over: bool,
    /// How long it was worked on since others had their turn.
    worked: Duration,
}

impl AnswerStream {
    async fn next(mut self) -> Option<(Result<Piece, ProviderError>, Self)> {
        if self.is_over {
            return None;
        }
        let piece = self.piece().await;
        Some((piece, self))
    }

    /// The next piece. With [`Piece::Done`] or an error, the answer is over.
    async fn piece(&mut self) -> Result<Piece, ProviderError> {
        let piece = self.read().await;
        self.is_over = matches!(piece, Err(_) | Ok(Piece::Done(_)));
        piece.map_err(|error| hide(error, self.key.as_ref()))
    }

    async fn read(&mut self) -> Result<Piece, ProviderError> {
        loop {
            // A server that never pauses must not keep others from this thread, neither with many events nor with large ones.
            tokio::task::consume_budget().await;
            if self.worked > MAX_STRETCH {
                tokio::task::yield_now().await;
                self.worked = Duration::ZERO;
            }
            let begun = Instant::now();
            let step = self.reading.step()?;
            self.worked += begun.elapsed();
            match step {
                Step::Piece(piece) => return Ok(piece),
                Step::Event => {}
                Step::NeedsBytes => match timeout(IDLE_WAIT, self.response.chunk()).await {
                    Ok(Ok(Some(bytes))) => self.reading.push(&bytes),
                    Ok(Ok(None)) => self.reading.end(None)?,
                    Ok(Err(error)) => self.reading.end(Some(failed(error)))?,
                    Err(_) => self.reading.end(Some(silent()))?,
                },
            }
        }
    }
}

fn silent() -> ProviderError {
    ProviderError::broken(format!("the answer timed out: nothing came for {} seconds", IDLE_WAIT.as_secs()))
}

fn no_key(error: KeyError) -> ProviderError {
    match error {
        KeyError::Missing(said) => ProviderError::Auth { said },
        KeyError::Unavailable(said) => ProviderError::broken(said),
        KeyError::Settings(said) => ProviderError::Settings { said },
    }
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
        ProviderError::Settings { said } => ProviderError::Settings { said: hidden(said) },
        ProviderError::Refused { said } => ProviderError::Refused { said: hidden(said) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::error::MAX_ERROR_CHARS;

    #[test]
    fn a_key_is_taken_out_before_an_error_is_cut() {
        let key = Key::new("sk-0123456789abcdef");
        let pad = MAX_ERROR_CHARS - 5;
        let error = ProviderError::Refused { said: format!("{}{}", "x".repeat(pad), key.reveal()) };
        let ProviderError::Refused { said } = hide(error, Some(&key)) else { panic!("it is another") };
        assert!(!said.contains("sk-"), "{said}");
    }
}
