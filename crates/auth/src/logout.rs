//! Logout: revokes the token at the provider and deletes the stored login.

use oauth2::HttpRequest;
use oauth2::http::header::{AUTHORIZATION, CONTENT_TYPE};
use oauth2::http::{Method, Request};
use url::form_urlencoded;
use zeroize::Zeroizing;

use crate::error::sanitize;
use crate::login_manager::Inner;
use crate::{AccessError, LoginManager, LoginProvider, LogoutOutcome, Secret, SecretName};

impl LoginManager {
    /// Deletes the stored login to a provider, whether the provider is configured or not. If a revoke URL is
    /// configured, the token is revoked first; the login is deleted even if that fails.
    pub async fn logout(&self, provider: &str) -> Result<LogoutOutcome, AccessError> {
        let inner = &self.0;
        let local = |error: crate::SecretStoreError| AccessError::Local(error.to_string());
        let Some(name) = SecretName::login(provider) else {
            return Err(AccessError::UnknownProvider { name: provider.to_owned(), known: inner.known() });
        };
        let _lock = inner.lock(&name).await.map_err(local)?;
        // An unreadable login is deleted as well.
        let login = inner.read(&name).await.ok().flatten();
        let token = login.and_then(|login| login.refresh.or(login.access));
        let revoked = match (inner.provider(provider), token) {
            (Some(provider), Some(token)) => inner.revoke(&provider, &token).await,
            (Some(_) | None, _) => Ok(false),
        };
        let existed = inner.with_store(move |store| store.remove(&name)).await.map_err(local)?;
        Ok(LogoutOutcome { existed, revoked })
    }
}

impl Inner {
    /// Revokes a token (RFC 7009); a refresh token is revoked together with its access tokens. Returns false if no
    /// revoke URL is configured. Does not use the `oauth2` crate, because that refuses http:// even for loopback.
    async fn revoke(&self, provider: &LoginProvider, token: &Secret) -> Result<bool, String> {
        let Some(url) = &provider.revoke_url else { return Ok(false) };
        if let Some(fix) = &provider.missing_secret {
            return Err(fix.clone());
        }
        let request = revocation_request(provider, url.as_str(), token).map_err(|error| error.to_string())?;
        let sent = self.http.send(request).await;
        let answer = sent.map_err(|error| sanitize(&self.redactor, &error.to_string()))?;
        if answer.status().is_success() {
            Ok(true)
        } else {
            Err(format!("status {}", answer.status().as_u16()))
        }
    }
}

/// The revocation request. A function of its own, because the form serializer is not `Send` and must not live across
/// an await.
fn revocation_request(
    provider: &LoginProvider,
    url: &str,
    token: &Secret,
) -> Result<HttpRequest, oauth2::http::Error> {
    let mut form = form_urlencoded::Serializer::new(String::new());
    form.append_pair("token", token.expose());
    let request = Request::builder().method(Method::POST).uri(url);
    let request = request.header(CONTENT_TYPE, "application/x-www-form-urlencoded");
    let request = match &provider.client_secret {
        Some(secret) => {
            request.header(AUTHORIZATION, basic_authorization(&provider.client_id, secret).as_str())
        }
        None => {
            form.append_pair("client_id", &provider.client_id);
            request
        }
    };
    request.body(form.finish().into_bytes())
}

/// The `Authorization` header of a client with a secret (RFC 6749, section 2.3.1).
fn basic_authorization(client_id: &str, secret: &Secret) -> Zeroizing<String> {
    let encoded =
        |text: &str| Zeroizing::new(form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>());
    let pair = Zeroizing::new(format!("{}:{}", *encoded(client_id), *encoded(secret.expose())));
    Zeroizing::new(format!("Basic {}", base64_simd::STANDARD.encode_to_string(pair.as_bytes())))
}
