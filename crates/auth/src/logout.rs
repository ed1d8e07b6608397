//! Logging out: the provider is told, and the tokens are forgotten.

use oauth2::HttpRequest;
use oauth2::http::header::{AUTHORIZATION, CONTENT_TYPE};
use oauth2::http::{Method, Request};
use url::form_urlencoded;
use zeroize::Zeroizing;

use crate::error::clean;
use crate::logins::Inner;
use crate::{AccessError, LoginManager, LoginProvider, LogoutOutcome, Secret, SecretName};

impl LoginManager {
    /// Forgets the login to a provider, whether that is configured or not. It is also revoked, if the
    /// provider is configured for that; if it cannot be, it is forgotten all the same.
    pub async fn logout(&self, provider: &str) -> Result<LogoutOutcome, AccessError> {
        let inner = &self.0;
        let local = |error: crate::SecretStoreError| AccessError::Local(error.to_string());
        let Some(name) = SecretName::login(provider) else {
            return Err(AccessError::UnknownProvider { name: provider.to_owned(), known: inner.known() });
        };
        let _lock = inner.lock(&name).await.map_err(local)?;
        // What cannot be read is deleted as well.
        let login = inner.read(&name).await.ok().flatten();
        let token = login.and_then(|login| login.refresh.or(login.access));
        let revoked = match (inner.provider(provider), token) {
            (Some(provider), Some(token)) => inner.revoke(&provider, &token).await,
            (Some(_) | None, _) => Ok(false),
        };
        let wanted = name.clone();
        let existed = inner.on_disk(move |store| store.remove(&wanted)).await.map_err(local)?;
        Ok(LogoutOutcome { existed, revoked })
    }
}

impl Inner {
    /// Revokes a token (RFC 7009), and with a refresh token all that came of it. Says whether the
    /// provider is configured for it. Not by the crate, which refuses http even on this machine.
    async fn revoke(&self, provider: &LoginProvider, token: &Secret) -> Result<bool, String> {
        let Some(url) = &provider.revoke_url else { return Ok(false) };
        if let Some(what) = &provider.lacks {
            return Err(what.clone());
        }
        let request = revocation(provider, url.as_str(), token).map_err(|error| error.to_string())?;
        let said = |text: &str| clean(&self.redactor, text);
        let answer = self.http.send(request).await.map_err(|error| said(&error.to_string()))?;
        if answer.status().is_success() {
            Ok(true)
        } else {
            Err(format!("status {}", answer.status().as_u16()))
        }
    }
}

/// Apart from what waits for the answer: a form that is being written cannot move to another thread.
fn revocation(
    provider: &LoginProvider,
    url: &str,
    token: &Secret,
) -> Result<HttpRequest, oauth2::http::Error> {
    let mut form = form_urlencoded::Serializer::new(String::new());
    form.append_pair("token", token.expose());
    let request = Request::builder().method(Method::POST).uri(url);
    let request = request.header(CONTENT_TYPE, "application/x-www-form-urlencoded");
    let request = match &provider.client_secret {
        Some(secret) => request.header(AUTHORIZATION, basic(&provider.client_id, secret).as_str()),
        None => {
            form.append_pair("client_id", &provider.client_id);
            request
        }
    };
    request.body(form.finish().into_bytes())
}

/// How a client with a secret says who it is (RFC 6749, section 2.3.1).
fn basic(client_id: &str, secret: &Secret) -> Zeroizing<String> {
    let encoded =
        |text: &str| Zeroizing::new(form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>());
    let pair = Zeroizing::new(format!("{}:{}", *encoded(client_id), *encoded(secret.expose())));
    Zeroizing::new(format!("Basic {}", base64_simd::STANDARD.encode_to_string(pair.as_bytes())))
}
