//! What to do about an error: the sentences that are added to what a provider says.
//!
//! Only what the user can do something about has one. What went wrong is decided in `trouble.rs`.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::StreamExt;

use super::address::redacted_url;
use super::trouble::{KEY_REFUSED, NO_REASON};
use super::{Connection, KeySource, Pieces, Provider, ProviderError, ProviderKind, Request};

/// Words by which it is known that nobody listens at an address.
const NOBODY: [&str; 1] = ["Connection refused"];

/// Words by which it is known that an address cannot be reached.
const UNREACHABLE: [&str; 4] = ["dns error", "tcp connect error", "Network is unreachable", "timed out"];

/// Words by which it is known that what came was no stream of answers.
const NO_STREAM: [&str; 3] =
    ["the stream ended before", "came in the place of a stream", "expected value at line 1 column 1"];

/// A way to a provider whose errors say what to do.
#[derive(Clone)]
pub struct AdvisedConnection {
    connection: Connection,
    kind: ProviderKind,
    /// As people are told of it.
    shown_url: String,
    key: Arc<dyn KeySource>,
}

impl AdvisedConnection {
    /// The same way. `base_url` and `key` are those that it was made of.
    pub fn new(
        connection: Connection,
        kind: ProviderKind,
        base_url: Option<&str>,
        key: Arc<dyn KeySource>,
    ) -> Self {
        let shown_url = redacted_url(base_url.unwrap_or(kind.base_url())).into_owned();
        Self { connection, kind, shown_url, key }
    }

    /// The models that the provider has, as it calls them, sorted.
    pub async fn model_ids(&self) -> Result<Vec<String>, ProviderError> {
        match self.connection.model_ids().await {
            Ok(names) => Ok(names),
            Err(error) => Err(self.advise(error, None).await),
        }
    }

    async fn advise(&self, error: ProviderError, model: Option<&str>) -> ProviderError {
        match error {
            ProviderError::Auth { said } => ProviderError::Auth { said: self.about_key(said).await },
            ProviderError::Refused { said } => {
                let advice = self.about_request(&said, model);
                ProviderError::Refused { said: said + &advice }
            }
            ProviderError::Broken { said, retry_after } => {
                let advice = self.about_place(&said);
                ProviderError::Broken { said: said + &advice, retry_after }
            }
            error @ (ProviderError::Busy { .. }
            | ProviderError::Overflow { .. }
            | ProviderError::Settings { .. }) => error,
        }
    }

    async fn about_key(&self, said: String) -> String {
        // Whoever has no key to send has said what to do.
        let Some(why) = said.strip_prefix(KEY_REFUSED) else { return said };
        let about = self.key.info().await;
        match about.used {
            Some(key) => format!("{key} is not accepted{why}; {}", about.remedy),
            None => format!("{} wants a key, and has none{why}; {}", self.shown_url, about.remedy),
        }
    }

    fn about_request(&self, said: &str, model: Option<&str>) -> String {
        let url = &self.shown_url;
        match (status(said), model) {
            (Some(404), Some(model)) => {
                format!(
                    "; check model = {model:?} and base_url = {url:?}; parlor models --all lists what is there"
                )
            }
            (Some(404 | 405), _) => format!("; check base_url = {url:?}"),
            (Some(400), Some(model)) if said.ends_with(NO_REASON) => {
                format!("; check model = {model:?} and base_url = {url:?}")
            }
            (Some(300..400), _) => format!("; who redirects is not followed: check base_url = {url:?}"),
            _ => String::new(),
        }
    }

    fn about_place(&self, said: &str) -> String {
        let url = &self.shown_url;
        let has = |words: &[&str]| words.iter().any(|word| said.contains(word));
        if has(&NOBODY) {
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
        } else if has(&NO_STREAM) {
            format!("; if it does so again, {url} is no address of models: check base_url")
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
        // What is wrong with a key, a name or an address shows at once; later it is only a break.
        let first = match pieces.next().await {
            Some(Err(error)) => Some(Err(self.advise(error, Some(&model)).await)),
            other => other,
        };
        Ok(futures_util::stream::iter(first).chain(pieces).boxed())
    }
}

/// The status with which an error begins.
fn status(said: &str) -> Option<u16> {
    said.split_once(':').and_then(|(status, _)| status.parse().ok())
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
    fn a_server_that_is_not_there_is_to_be_started() {
        let ollama = advised(ProviderKind::Ollama).about_place("tcp connect error: Connection refused");
        assert_eq!(ollama, "; is the server running at http://127.0.0.1:1/v1?; start it with: ollama serve");
        let other = advised(ProviderKind::OpenAi);
        assert!(!other.about_place("Connection refused").contains("ollama"));
        assert!(other.about_place("dns error: failed to lookup").contains("is there a network?"));
        assert_eq!(other.about_place("503: overloaded"), "");
    }

    #[test]
    fn names_are_checked_where_something_is_not_found() {
        let openai = advised(ProviderKind::OpenAi);
        let advice = openai.about_request("404: no such model", Some("m"));
        assert!(
            advice.starts_with("; check model = \"m\" and base_url = \"http://127.0.0.1:1/v1\""),
            "{advice}"
        );
        assert_eq!(openai.about_request("400: no such parameter", Some("m")), "");
    }
}
