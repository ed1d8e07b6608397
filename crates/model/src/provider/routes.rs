//! Lists the providers that run a model behind a router such as OpenRouter.

use std::time::Duration;

use reqwest::Url;
use serde::Deserialize;
use tokio::time::timeout;

use super::{ProviderError, http};

/// How long a router may take to list the providers of a model.
pub const ROUTES_WAIT: Duration = Duration::from_secs(20);

/// The largest list of providers, in bytes.
pub const MAX_ROUTES_BYTES: usize = 1 << 20;

/// The most providers that are listed.
pub const MAX_ROUTES: usize = 500;

#[derive(Deserialize)]
struct RoutesResponse {
    data: RoutesData,
}

#[derive(Deserialize)]
struct RoutesData {
    endpoints: Vec<Endpoint>,
}

#[derive(Deserialize)]
struct Endpoint {
    provider_name: String,
}

/// The names of the providers that run `model`, which has the form `author/name`, from the router at `base_url`.
/// Sends no key, because the list is public.
pub async fn routes(base_url: &str, model: &str) -> Result<Vec<String>, ProviderError> {
    let url = http::join_url(base_url, &format!("models/{model}/endpoints"))?;
    timeout(ROUTES_WAIT, fetch(url)).await.unwrap_or_else(|_| {
        Err(ProviderError::broken(format!("it did not answer within {} seconds", ROUTES_WAIT.as_secs())))
    })
}

async fn fetch(url: Url) -> Result<Vec<String>, ProviderError> {
    let response = http::send(http::client()?.get(url)).await?;
    let status = response.status();
    if status.as_u16() == 404 {
        return Err(ProviderError::Refused { message: "it does not know this model".to_owned() });
    }
    if !status.is_success() {
        return Err(ProviderError::broken(format!("it answers with status {}", status.as_u16())));
    }
    let response = http::check_response(response).await?;
    let list: RoutesResponse = serde_json::from_slice(&http::read_body(response, MAX_ROUTES_BYTES).await?)
        .map_err(|error| ProviderError::broken(format!("its response cannot be parsed: {error}")))?;
    Ok(list.data.endpoints.into_iter().take(MAX_ROUTES).map(|endpoint| endpoint.provider_name).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_name_cannot_change_the_host_or_the_base_path() {
        let url = |base: &str, model: &str| {
            http::join_url(base, &format!("models/{model}/endpoints")).unwrap().to_string()
        };
        let base = "https://router.test/api/v1/";
        assert_eq!(url(base, "a/b:free"), "https://router.test/api/v1/models/a/b:free/endpoints");
        assert_eq!(url("https://router.test/api", "a/b"), "https://router.test/api/models/a/b/endpoints");
        assert_eq!(url(base, "../../x?y#z"), "https://router.test/api/v1/models/x%3Fy%23z/endpoints");
    }
}
