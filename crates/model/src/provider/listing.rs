//! The models that a provider has.

use reqwest::Client;
use serde::Deserialize;

use super::{Key, ProviderError, ProviderKind, http};

/// The most models of a provider that are taken.
pub const MAX_LISTED_MODELS: usize = 5000;

/// The most that a provider may tell about its models, in bytes.
pub const MAX_LISTING_BYTES: usize = 8 << 20;

/// How many models one answer may have at providers that give them out in pages.
const PAGE: &str = "1000";

/// OpenAI and Anthropic tell `data` with an `id`, Gemini and Ollama `models` with a `name`.
#[derive(Deserialize)]
struct Told {
    #[serde(alias = "models")]
    data: Vec<Named>,
}

#[derive(Deserialize)]
struct Named {
    id: Option<String>,
    name: Option<String>,
}

/// The models that the provider at `base_url` has, as it calls them, sorted.
pub(super) async fn models(
    client: &Client,
    kind: ProviderKind,
    base_url: &str,
    key: Option<&Key>,
) -> Result<Vec<String>, ProviderError> {
    let (path, page) = match kind {
        ProviderKind::OpenAi | ProviderKind::OpenAiResponses | ProviderKind::OpenRouter => ("models", None),
        ProviderKind::Anthropic => ("models", Some("limit")),
        ProviderKind::Gemini => ("models", Some("pageSize")),
        ProviderKind::Ollama => ("api/tags", None),
    };
    let mut url = http::address(base_url, path)?;
    if let Some(page) = page {
        url.query_pairs_mut().append_pair(page, PAGE);
    }
    let response = http::send(http::authorize(client.get(url), kind, key)?).await?;
    names(&http::whole(http::accept(response).await?, MAX_LISTING_BYTES).await?)
}

fn names(told: &[u8]) -> Result<Vec<String>, ProviderError> {
    let told: Told = serde_json::from_slice(told)
        .map_err(|error| ProviderError::broken(format!("what it tells cannot be read: {error}")))?;
    // OpenRouter gives both, and the name is for people.
    let names = told.data.into_iter().filter_map(|model| model.id.or(model.name)).take(MAX_LISTED_MODELS);
    let mut names: Vec<String> =
        names.map(|name| name.strip_prefix("models/").map_or(name.clone(), str::to_owned)).collect();
    names.sort_unstable();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_are_read_as_each_provider_tells_them() {
        for told in [
            r#"{"data":[{"id":"b","name":"B"},{"id":"a"}]}"#,
            r#"{"models":[{"name":"models/b"},{"name":"models/a"},{}]}"#,
            r#"{"models":[{"name":"b","size":1},{"name":"a"}],"more":1}"#,
        ] {
            assert_eq!(names(told.as_bytes()).unwrap(), ["a", "b"], "{told}");
        }
        assert!(names(b"{}").is_err());
    }
}
