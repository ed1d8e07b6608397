//! Adds advice to the errors of a provider: what the user can do about them.
//!
//! Only errors that the user can fix get advice. `classify_error.rs` decides the kind of an error.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::StreamExt;

use super::classify_error::{KEY_REFUSED, NO_REASON};
use super::url::redacted_url;
use super::{Connection, KeySource, Pieces, Provider, ProviderError, ProviderKind, Request};

/// Error texts that mean that no server listens at the URL.
const CONNECTION_REFUSED: [&str; 1] = ["Connection refused"];

/// Error texts that mean that the URL cannot be reached.
const UNREACHABLE: [&str; 4] = ["dns error", "tcp connect error", "Network is unreachable", "timed out"];

/// Error texts that mean that the response was not a stream of answer events.
const NOT_A_STREAM: [&str; 3] =
    ["the stream ended before", "came in the place of a stream", "expected value at line 1 column 1"];

/// A connection whose errors contain advice.
#[derive(Clone)]
pub struct AdvisedConnection {
    connection: Connection,
    kind: ProviderKind,
    /// The base URL without user and password.
    redacted_url: String,
    key: Arc<dyn KeySource>,
}

impl AdvisedConnection {
    /// Wraps `connection`. `base_url` and `key` must be those of the connection.
    pub fn new(
        connection: Connection,
        kind: ProviderKind,
        base_url: Option<&str>,
        key: Arc<dyn KeySource>,
    ) -> Self {
        let redacted_url = redacted_url(base_url.unwrap_or(kind.base_url())).into_owned();
        Self { connection, kind, redacted_url, key }
    }

    /// The ids of the provider's models, sorted.
    pub async fn model_ids(&self) -> Result<Vec<String>, ProviderError> {
        match self.connection.model_ids().await {
            Ok(names) => Ok(names),
            Err(error) => Err(self.advise(error, None).await),
        }
    }

    async fn advise(&self, error: ProviderError, model: Option<&str>) -> ProviderError {
        match error {
            ProviderError::Auth { message } => {
                ProviderError::Auth { message: self.key_advice(message).await }
            }
            ProviderError::Refused { message } => {
                let advice = self.request_advice(&message, model);
                ProviderError::Refused { message: message + &advice }
            }
            ProviderError::Broken { message, retry_after } => {
                let advice = self.connection_advice(&message);
                ProviderError::Broken { message: message + &advice, retry_after }
            }
            error @ (ProviderError::Busy { .. }
            | ProviderError::Overflow { .. }
            | ProviderError::Settings { .. }) => error,
        }
    }

    async fn key_advice(&self, message: String) -> String {
        // Other messages, such as that of a missing key, contain the advice already.
        let Some(reason) = message.strip_prefix(KEY_REFUSED) else { return message };
        let info = self.key.info().await;
        match info.used {
            Some(key) => format!("{key} is not accepted{reason}; {}", info.remedy),
            None => {
                format!("{} requires a key, and none was sent{reason}; {}", self.redacted_url, info.remedy)
            }
        }
    }

    fn request_advice(&self, message: &str, model: Option<&str>) -> String {
        let url = &self.redacted_url;
        match (status(message), model) {
            (Some(404), Some(model)) => {
                format!(
                    "; check model = {model:?} and base_url = {url:?}; parlor models --all lists what is there"
                )
            }
            (Some(404 | 405), _) => format!("; check base_url = {url:?}"),
            (Some(400), Some(model)) if message.ends_with(NO_REASON) => {
                format!("; check model = {model:?} and base_url = {url:?}")
            }
            (Some(300..400), _) => format!("; redirects are not followed: check base_url = {url:?}"),
            _ => String::new(),
        }
    }

    fn connection_advice(&self, message: &str) -> String {
        let url = &self.redacted_url;
        let has = |words: &[&str]| words.iter().any(|word| message.contains(word));
        if has(&CONNECTION_REFUSED) {
            let start = match self.kind {
                ProviderKind::Ollama => "; start it with: ollama serve",
                ProviderKind::OpenAi
                | ProviderKind::OpenAiResponses
                | ProviderKind::Anthropic
                | ProviderKind::Gemini
                | ProviderKind::OpenRouter => "",
            };
            format!("; is the server running at {url}?{start}")
        } else if has(&UNREACHABLE) {
            format!("; is {url} right, and is there a network?")
        } else if has(&NOT_A_STREAM) {
            format!("; if this happens again, {url} is not the URL of a model API: check base_url")
        } else {
            String::new()
        }
    }
}

#[async_trait]
impl Provider for AdvisedConnection {
    async fn stream(&self, request: &Request) -> Result<Pieces, ProviderError> {
        let model = request.model.clone();
        let mut pieces = match self.connection.stream(request).await {
            Ok(pieces) => pieces,
            Err(error) => return Err(self.advise(error, Some(&model)).await),
        };
        // A wrong key, model or URL fails the first piece. Later errors are interruptions, for which there is no
        // advice.
        let first = match pieces.next().await {
            Some(Err(error)) => Some(Err(self.advise(error, Some(&model)).await)),
            other => other,
        };
        Ok(futures_util::stream::iter(first).chain(pieces).boxed())
    }

    fn takes_documents(&self) -> bool {
        self.connection.takes_documents()
    }
}

/// The HTTP status at the beginning of an error message.
fn status(message: &str) -> Option<u16> {
    message.split_once(':').and_then(|(status, _)| status.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::{FixedKey, Routing};

    fn advised(kind: ProviderKind) -> AdvisedConnection {
        let (key, url): (Arc<dyn KeySource>, _) =
            (Arc::new(FixedKey(Ok(None))), Some("http://user:s3cret@127.0.0.1:1/v1"));
        AdvisedConnection::new(
            Connection::new(kind, url, Arc::clone(&key), Routing::default()),
            kind,
            url,
            key,
        )
    }

    #[test]
    fn an_unreachable_server_gets_advice() {
        let ollama = advised(ProviderKind::Ollama).connection_advice("tcp connect error: Connection refused");
        assert_eq!(ollama, "; is the server running at http://127.0.0.1:1/v1?; start it with: ollama serve");
        let other = advised(ProviderKind::OpenAi);
        assert!(!other.connection_advice("Connection refused").contains("ollama"));
        assert!(other.connection_advice("dns error: failed to lookup").contains("is there a network?"));
        assert_eq!(other.connection_advice("503: overloaded"), "");
    }

    #[test]
    fn a_404_advises_to_check_model_and_base_url() {
        let openai = advised(ProviderKind::OpenAi);
        let advice = openai.request_advice("404: no such model", Some("m"));
        assert!(
            advice.starts_with("; check model = \"m\" and base_url = \"http://127.0.0.1:1/v1\""),
            "{advice}"
        );
        assert_eq!(openai.request_advice("400: no such parameter", Some("m")), "");
    }
}
