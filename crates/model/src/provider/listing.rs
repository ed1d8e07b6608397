//! The models of a provider, asked for with the token of a login: genai sends it to Anthropic and Gemini as a key.

use reqwest::redirect::Policy;
use reqwest::{Client, Url};
use serde::Deserialize;

use super::error::short;
use super::routes::body;
use super::trouble::{by_status, said_in};
use super::{CONNECT_WAIT, Key, MAX_CATALOGUE, ProviderError, ProviderKind};

/// The most that a provider may tell about its models, in bytes.
pub const MAX_LISTING_BYTES: usize = 8 << 20;

/// How many models one answer may have at these providers.
const PAGE: &str = "1000";

/// The version of Anthropic's API that is asked.
const ANTHROPIC_VERSION: &str = "2023-06-01";

/// What Anthropic tells has `data` with an `id`, what Gemini tells has `models` with a `name`.
#[derive(Deserialize)]
struct Told {
    #[serde(alias = "models")]
    data: Vec<Named>,
}

#[derive(Deserialize)]
struct Named {
    #[serde(alias = "name")]
    id: String,
}

/// Whether genai would send the token of a login as something else.
pub(super) fn is_needed(kind: ProviderKind, key: Option<&Key>) -> bool {
    let takes_keys_apart = match kind {
        ProviderKind::Anthropic | ProviderKind::Gemini => true,
        ProviderKind::OpenAi
        | ProviderKind::OpenAiResponses
        | ProviderKind::OpenRouter
        | ProviderKind::Ollama => false,
    };
    takes_keys_apart && key.is_some_and(Key::is_bearer)
}

/// The models that the provider at `base_url` has, as it calls them, sorted.
pub(super) async fn models(
    kind: ProviderKind,
    base_url: &str,
    token: &Key,
) -> Result<Vec<String>, ProviderError> {
    let failed = |error: reqwest::Error| ProviderError::broken(causes(&error.without_url()));
    // Who redirects would be handed the token.
    let client = Client::builder().connect_timeout(CONNECT_WAIT).redirect(Policy::none()).build();
    let request = client.map_err(failed)?.get(address(kind, base_url)?).bearer_auth(token.reveal());
    let request = request.header("anthropic-version", ANTHROPIC_VERSION);
    let response = request.send().await.map_err(failed)?;
    let status = response.status();
    let body = body(response, MAX_LISTING_BYTES).await?;
    if !status.is_success() {
        let said = short(&token.hide_in(&said_in(&String::from_utf8_lossy(&body))));
        return Err(by_status(status.as_u16(), said, None));
    }
    let told: Told = serde_json::from_slice(&body)
        .map_err(|error| ProviderError::broken(format!("what it tells cannot be read: {error}")))?;
    let names = told.data.into_iter().take(MAX_CATALOGUE);
    let mut names: Vec<String> =
        names.map(|model| model.id.strip_prefix("models/").unwrap_or(&model.id).to_owned()).collect();
    names.sort_unstable();
    Ok(names)
}

fn address(kind: ProviderKind, base_url: &str) -> Result<Url, ProviderError> {
    let wrong = || ProviderError::Refused { said: "its base_url is no address of a provider".to_owned() };
    let mut url = Url::parse(base_url).map_err(|_| wrong())?;
    url.path_segments_mut().map_err(|()| wrong())?.pop_if_empty().push("models");
    url.query_pairs_mut().append_pair(if kind == ProviderKind::Gemini { "pageSize" } else { "limit" }, PAGE);
    Ok(url)
}

/// An error with what is behind it.
fn causes(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_token_of_a_login_needs_it() {
        let (key, token) = (Key::new("k"), Key::bearer("t"));
        assert!(
            is_needed(ProviderKind::Anthropic, Some(&token)) && is_needed(ProviderKind::Gemini, Some(&token))
        );
        assert!(!is_needed(ProviderKind::Anthropic, Some(&key)) && !is_needed(ProviderKind::Gemini, None));
        assert!(!is_needed(ProviderKind::OpenAi, Some(&token)));
    }

    #[test]
    fn both_are_asked_for_all_in_one_answer() {
        let url = |kind, base| address(kind, base).unwrap().to_string();
        assert_eq!(url(ProviderKind::Anthropic, "https://a.test/v1/"), "https://a.test/v1/models?limit=1000");
        assert_eq!(url(ProviderKind::Gemini, "https://g.test/v1"), "https://g.test/v1/models?pageSize=1000");
        assert!(address(ProviderKind::Gemini, "nowhere").is_err());
    }

    #[tokio::test]
    async fn more_than_can_be_read_is_left() {
        use std::io::{Read, Write};
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let provider = std::thread::spawn(move || {
            let (mut connection, _) = listener.accept().unwrap();
            let _ = connection.read(&mut [0; 4096]);
            connection.write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n").unwrap();
            // It is left in the middle, so writing fails in the end.
            while connection.write_all(&[b' '; 1 << 16]).is_ok() {}
        });
        let error = models(ProviderKind::Gemini, &url, &Key::bearer("t")).await.unwrap_err();
        assert!(error.to_string().contains("more than can be read"), "{error}");
        // Not on this thread, which is the one that closes the connection.
        tokio::task::spawn_blocking(move || provider.join().unwrap()).await.unwrap();
    }
}
