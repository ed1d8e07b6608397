//! Registers parlor at an authorization server (RFC 7591).

use oauth2::http::header::{ACCEPT, CONTENT_TYPE};
use oauth2::http::{Method, Request};
use serde::Deserialize;
use serde_json::json;
use url::Url;
use zeroize::Zeroizing;

use super::client::TokenAuth;
use crate::http::Http;
use crate::tokens::check_token;

/// Who parlor is at an authorization server.
pub(super) struct Registration {
    pub(super) client_id: String,
    pub(super) client_secret: Option<Zeroizing<String>>,
    pub(super) token_auth: TokenAuth,
}

#[derive(Deserialize)]
struct RegistrationResponse {
    client_id: String,
    client_secret: Option<Zeroizing<String>>,
    token_endpoint_auth_method: Option<String>,
}

#[derive(Deserialize)]
struct RegistrationError {
    error: String,
    error_description: Option<String>,
}

/// Registers parlor with the callback `redirect_url`. The error is for people, and not yet without secrets.
pub(super) async fn register(
    http: &Http,
    url: &Url,
    redirect_url: &str,
    token_auth: TokenAuth,
    scopes: &[String],
) -> Result<Registration, String> {
    let mut body = json!({
        "client_name": "parlor",
        "redirect_uris": [redirect_url],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "application_type": "native",
        "token_endpoint_auth_method": token_auth.as_str(),
    });
    if !scopes.is_empty() {
        body["scope"] = scopes.join(" ").into();
    }
    let request = Request::builder()
        .method(Method::POST)
        .uri(url.as_str())
        .header(CONTENT_TYPE, "application/json")
        .header(ACCEPT, "application/json")
        .body(body.to_string().into_bytes());
    let request = request.map_err(|error| error.to_string())?;
    let answer = http.send(request).await.map_err(|error| error.to_string())?;
    if !answer.status().is_success() {
        let status = answer.status().as_u16();
        let error = serde_json::from_slice::<RegistrationError>(answer.body());
        let reason = error.map(|error| error.error_description.unwrap_or(error.error));
        return Err(format!("status {status}: {}", reason.unwrap_or_else(|_| "no reason given".to_owned())));
    }
    let given: RegistrationResponse = serde_json::from_slice(answer.body())
        .map_err(|_| "its answer is not what RFC 7591 asks for".to_owned())?;
    check_token(&given.client_id)?;
    given.client_secret.iter().try_for_each(|secret| check_token(secret))?;
    let registered = match given.token_endpoint_auth_method.as_deref() {
        None => token_auth,
        Some(name) => TokenAuth::parse(name)
            .ok_or_else(|| format!("it wants the token_endpoint_auth_method {name:?}"))?,
    };
    if registered != TokenAuth::None && given.client_secret.is_none() {
        return Err("it wants a client secret and gave none".to_owned());
    }
    let client_secret = given.client_secret.filter(|_| registered != TokenAuth::None);
    Ok(Registration { client_id: given.client_id, client_secret, token_auth: registered })
}
