//! The browser flow: OAuth 2 (RFC 6749) with PKCE (RFC 7636) and a loopback callback (RFC 8252).

use oauth2::{AuthUrl, CsrfToken, PkceCodeChallenge, RedirectUrl, Scope};

use super::{FlowContext, LoginFlow, LoginProgress};
use crate::callback::{Callback, ExpectedAnswer};
use crate::tokens::{GrantedTokens, client, exchange};
use crate::{LoginError, Secret};

/// Random bytes in the `state` parameter.
const STATE_BYTES: u32 = 32;

/// Random bytes in the PKCE verifier.
const VERIFIER_BYTES: u32 = 64;

/// Publishes the URL for the browser, waits for the callback, and exchanges its code for tokens.
pub(super) async fn tokens(
    context: &FlowContext,
    extra: &[(String, String)],
) -> Result<GrantedTokens, LoginError> {
    let provider = &context.deps.provider;
    let missing =
        || LoginError::FlowNotConfigured { provider: provider.name.clone(), flow: LoginFlow::Browser };
    let authorize_url = provider.authorize_url.clone().ok_or_else(missing)?;
    let callback = Callback::listen(&provider.redirect).await?;
    let redirect = RedirectUrl::new(callback.redirect_url())
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
    context.send(LoginProgress::Url { flow: LoginFlow::Browser, url: url.into() });
    let expected = ExpectedAnswer {
        state: Secret::new(state.secret()),
        issuer: provider.discovered.as_ref().map(|client| (client.issuer.clone(), client.names_issuer)),
    };
    let code = callback.wait_for_code(expected, &context.deps.redactor, &context.deps.admits_peer).await?;
    exchange(&context.deps.http, provider, &context.deps.redactor, &code, &verifier, redirect).await
}
