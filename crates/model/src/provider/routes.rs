//! Who runs a model behind a router, as the router tells everybody.

use std::time::Duration;

use reqwest::Url;
use serde::Deserialize;
use tokio::time::timeout;

use super::{ProviderError, http};

/// How long a router may take to tell who runs a model.
pub const ROUTES_WAIT: Duration = Duration::from_secs(20);

/// The most that it may tell, in bytes.
pub const MAX_ROUTES_BYTES: usize = 1 << 20;

/// The most routes that are taken.
pub const MAX_ROUTES: usize = 500;

#[derive(Deserialize)]
struct Told {
    data: Data,
}

#[derive(Deserialize)]
struct Data {
    endpoints: Vec<Runner>,
}

#[derive(Deserialize)]
struct Runner {
    provider_name: String,
}

/// The names of those who run `model`, which is written `author/name`, as the router at `base_url` calls them. No
/// key is sent: the list is public.
pub async fn routes(base_url: &str, model: &str) -> Result<Vec<String>, ProviderError> {
    let url = http::address(base_url, &format!("models/{model}/endpoints"))?;
    timeout(ROUTES_WAIT, ask(url)).await.unwrap_or_else(|_| {
        Err(ProviderError::broken(format!("it did not answer within {} seconds", ROUTES_WAIT.as_secs())))
    })
}

async fn ask(url: Url) -> Result<Vec<String>, ProviderError> {
    let response = http::send(http::client()?.get(url)).await?;
    let status = response.status();
    if status.as_u16() == 404 {
        return Err(ProviderError::Refused { said: "it does not know this model".to_owned() });
    }
    if !status.is_success() {
        return Err(ProviderError::broken(format!("it answers with status {}", status.as_u16())));
    }
    let response = http::accept(response).await?;
    let told: Told = serde_json::from_slice(&http::whole(response, MAX_ROUTES_BYTES).await?)
        .map_err(|error| ProviderError::broken(format!("what it tells cannot be read: {error}")))?;
    Ok(told.data.endpoints.into_iter().take(MAX_ROUTES).map(|runner| runner.provider_name).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_cannot_lead_elsewhere() {
        let address = |base: &str, model: &str| {
            http::address(base, &format!("models/{model}/endpoints")).unwrap().to_string()
        };
        let base = "https://router.test/api/v1/";
        assert_eq!(address(base, "a/b:free"), "https://router.test/api/v1/models/a/b:free/endpoints");
        assert_eq!(address("https://router.test/api", "a/b"), "https://router.test/api/models/a/b/endpoints");
        assert_eq!(address(base, "../../x?y#z"), "https://router.test/api/v1/models/x%3Fy%23z/endpoints");
    }
}
