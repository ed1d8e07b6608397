//! The browser flow: RFC 6749 with PKCE (RFC 7636) and a callback on this machine (RFC 8252).

use oauth2::{AuthUrl, CsrfToken, PkceCodeChallenge, RedirectUrl, Scope};

use super::{FlowContext, LoginFlow, LoginProgress};
use crate::callback::Callback;
use crate::tokens::{Granted, client, exchange};
use crate::{LoginError, Secret};

/// How many random bytes are in the state.
const STATE_BYTES: u32 = 32;

/// How many random bytes are in the verifier.
const VERIFIER_BYTES: u32 = 64;

/// Sends a browser to the provider, waits for it, and exchanges the code that it brings.
pub(super) async fn tokens(stage: &FlowContext, extra: &[(String, String)]) -> Result<Granted, LoginError> {
    let provider = &stage.provider;
    let missing =
        || LoginError::FlowNotConfigured { provider: provider.name.clone(), way: LoginFlow::Browser };
    let authorize_url = provider.authorize_url.clone().ok_or_else(missing)?;
    let callback = Callback::listen(&provider.redirect).await?;
    let redirect = RedirectUrl::new(callback.address())
        .map_err(|error| LoginError::Local(format!("the callback has no address: {error}")))?;
    let (challenge, verifier) = PkceCodeChallenge::new_random_sha256_len(VERIFIER_BYTES);
    let verifier = Secret::new(verifier.secret());
    let client =
        client(provider).set_auth_uri(AuthUrl::from_url(authorize_url)).set_redirect_uri(redirect.clone());
    let mut request = client
        .authorize_url(|| CsrfToken::new_random_len(STATE_BYTES))
        .add_scopes(provider.scopes.iter().cloned().map(Scope::new))
        .set_pkce_challenge(challenge);
    for (name, value) in provider.authorize_params.iter().chain(extra) {
        request = request.add_extra_param(name.as_str(), value.as_str());
    }
    let (url, state) = request.url();
    stage.tell(LoginProgress::Url { way: LoginFlow::Browser, url: url.into() });
    let code = callback.code(&Secret::new(state.secret()), &stage.redactor, &stage.admits_peer).await?;
    exchange(&stage.http, provider, &stage.redactor, &code, &verifier, redirect).await
}
