//! Lists the models of a provider.

use reqwest::Client;
use serde::Deserialize;

use super::{Key, ProviderError, ProviderKind, http};

/// The most models of a provider that are listed.
pub const MAX_LISTED_MODELS: usize = 5000;

/// The largest list of models, in bytes.
pub const MAX_LISTING_BYTES: usize = 8 << 20;

/// The page size, for providers that return pages.
const PAGE: &str = "1000";

/// OpenAI and Anthropic send `data` with an `id`, Gemini and Ollama send `models` with a `name`.
#[derive(Deserialize)]
struct ModelList {
    #[serde(alias = "models")]
    data: Vec<ModelEntry>,
}

#[derive(Deserialize)]
struct ModelEntry {
    id: Option<String>,
    name: Option<String>,
}

/// The ids of the models of the provider at `base_url`, sorted.
pub(super) async fn model_ids(
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
    let mut url = http::join_url(base_url, path)?;
    if let Some(page) = page {
        url.query_pairs_mut().append_pair(page, PAGE);
    }
    let response = http::send(http::authorize(client.get(url), kind, key)?).await?;
    parse_ids(&http::read_body(http::check_response(response).await?, MAX_LISTING_BYTES).await?)
}

fn parse_ids(body: &[u8]) -> Result<Vec<String>, ProviderError> {
    let list: ModelList = serde_json::from_slice(body)
        .map_err(|error| ProviderError::broken(format!("its response cannot be parsed: {error}")))?;
    // OpenRouter sends both; its name is for people.
    let names = list.data.into_iter().filter_map(|model| model.id.or(model.name)).take(MAX_LISTED_MODELS);
    let mut names: Vec<String> =
        names.map(|name| name.strip_prefix("models/").map_or(name.clone(), str::to_owned)).collect();
    names.sort_unstable();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_each_provider_is_parsed() {
        for list in [
            r#"{"data":[{"id":"b","name":"B"},{"id":"a"}]}"#,
            r#"{"models":[{"name":"models/b"},{"name":"models/a"},{}]}"#,
            r#"{"models":[{"name":"b","size":1},{"name":"a"}],"more":1}"#,
        ] {
            assert_eq!(parse_ids(list.as_bytes()).unwrap(), ["a", "b"], "{list}");
        }
        assert!(parse_ids(b"{}").is_err());
    }
}
