//! Requests to the token endpoint: exchanges a code or a refresh token for tokens.

use std::fmt;
use std::time::Duration;

use oauth2::basic::{
    BasicErrorResponse, BasicErrorResponseType, BasicRevocationErrorResponse,
    BasicTokenIntrospectionResponse, BasicTokenType,
};
use oauth2::{
    AuthType, AuthorizationCode, Client, ClientId, ClientSecret, EndpointNotSet, EndpointSet,
    ErrorResponseType, ExtraTokenFields, PkceCodeVerifier, RedirectUrl, RefreshToken, RequestTokenError,
    StandardErrorResponse, StandardRevocableToken, StandardTokenResponse, TokenResponse, TokenUrl,
};
use parlor_vocab::Timestamp;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::error::sanitize;
use crate::http::{Http, HttpCall, HttpError};
use crate::record::Login;
use crate::resource::TokenAuth;
use crate::time::later;
use crate::{Account, LoginError, LoginProvider, Redactor, Secret};

/// The longest token or code that parlor takes from a provider, in bytes. Servers refuse longer ones in a header, and the
/// redactor has many forms of each.
pub const MAX_TOKEN_BYTES: usize = 16 << 10;

/// The response of the token endpoint.
pub(crate) type TokenEndpointResponse = StandardTokenResponse<ExtraFields, BasicTokenType>;

/// An `oauth2` client with only the token endpoint set.
pub(crate) type TokenClient = Client<
    BasicErrorResponse,
    TokenEndpointResponse,
    BasicTokenIntrospectionResponse,
    StandardRevocableToken,
    BasicRevocationErrorResponse,
    EndpointNotSet,
    EndpointNotSet,
    EndpointNotSet,
    EndpointNotSet,
    EndpointSet,
>;

/// The members of a response beside the OAuth tokens.
#[derive(Serialize, Deserialize)]
pub(crate) struct ExtraFields {
    id_token: Option<Zeroizing<String>>,
}

impl ExtraTokenFields for ExtraFields {}

impl fmt::Debug for ExtraFields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ExtraFields(…)")
    }
}

/// The tokens that a provider granted.
pub(crate) struct GrantedTokens {
    pub(crate) access: Secret,
    pub(crate) refresh: Option<Secret>,
    lifetime: Option<Duration>,
    account: Option<Account>,
}

impl GrantedTokens {
    /// Reads a response. The redactor learns its secrets. The error says why a token cannot be used.
    pub(crate) fn new(
        answer: &TokenEndpointResponse,
        provider: &LoginProvider,
        redactor: &Redactor,
    ) -> Result<Self, String> {
        let access = Secret::new(answer.access_token().secret());
        let refresh = answer.refresh_token().map(|token| Secret::new(token.secret()));
        let id_token = answer.extra_fields().id_token.as_ref();
        let id_token = id_token.map(|token| Secret::new(token.as_str()));
        for secret in [Some(&access), refresh.as_ref(), id_token.as_ref()].into_iter().flatten() {
            check_token(secret.expose())?;
            redactor.learn(secret);
        }
        let account =
            id_token.and_then(|token| Account::from_id_token(token.expose(), &provider.account_claim));
        Ok(Self { access, refresh, lifetime: answer.expires_in(), account })
    }

    /// The login with these tokens, obtained `at` this time. Missing fields are taken from the `previous` login.
    pub(crate) fn into_login(self, at: Timestamp, previous: Option<Login>) -> Login {
        let (refresh, account, client) =
            previous.map(|login| (login.refresh, login.account, login.client)).unwrap_or_default();
        Login {
            access: Some(self.access),
            refresh: self.refresh.or(refresh),
            expires_at: self.lifetime.map(|lifetime| later(at, lifetime)),
            obtained_at: at,
            account: self.account.or(account),
            ended: None,
            client,
        }
    }
}

/// Checks a token or code of a provider. OAuth allows only visible ASCII characters and spaces (RFC 6749, appendix A).
pub(crate) fn check_token(token: &str) -> Result<(), String> {
    if token.len() > MAX_TOKEN_BYTES {
        return Err(format!("it sent a token or code of more than {MAX_TOKEN_BYTES} bytes"));
    }
    match token.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        true => Ok(()),
        false => Err("it sent a token or code with characters that OAuth does not allow".to_owned()),
    }
}

/// A client for the token endpoint of `provider`.
pub(crate) fn client(provider: &LoginProvider) -> TokenClient {
    let client = Client::new(ClientId::new(provider.client_id.clone()));
    let client = match &provider.client_secret {
        Some(secret) => client.set_client_secret(ClientSecret::new(secret.expose().to_owned())),
        None => client,
    };
    let client = match provider.discovered.as_ref().map(|client| client.token_auth) {
        Some(TokenAuth::Post) => client.set_auth_type(AuthType::RequestBody),
        Some(TokenAuth::Basic | TokenAuth::None) | None => client,
    };
    client.set_token_uri(TokenUrl::from_url(provider.token_url.clone()))
}

/// Exchanges an authorization code for tokens.
pub(crate) async fn exchange(
    http: &Http,
    provider: &LoginProvider,
    redactor: &Redactor,
    code: &Secret,
    verifier: &Secret,
    redirect: RedirectUrl,
) -> Result<GrantedTokens, LoginError> {
    for secret in [code, verifier] {
        let refused = |reason| LoginError::Exchange { status: None, reason };
        check_token(secret.expose()).map_err(refused)?;
        redactor.learn(secret);
    }
    let (call, client) = (HttpCall::new(http), client(provider).set_redirect_uri(redirect));
    let mut request = client
        .exchange_code(AuthorizationCode::new(code.expose().to_owned()))
        .set_pkce_verifier(PkceCodeVerifier::new(verifier.expose().to_owned()));
    if let Some(resource) = provider.resource() {
        request = request.add_extra_param("resource", resource);
    }
    let answer = request.request_async(&call).await;
    let granted = match answer {
        Ok(answer) => GrantedTokens::new(&answer, provider, redactor),
        Err(error) => Err(reason(&error, redactor)),
    };
    granted.map_err(|reason| LoginError::Exchange { status: call.status(), reason })
}

/// Why a login was not renewed.
pub(crate) enum RenewalError {
    /// The provider refuses to renew this login (`invalid_grant`).
    Ended(String),
    /// A later attempt may succeed.
    Unavailable {
        /// The HTTP status, if there was a response.
        status: Option<u16>,
        /// The sanitized error text.
        reason: String,
    },
}

/// Exchanges a refresh token for new tokens.
pub(crate) async fn renew(
    http: &Http,
    provider: &LoginProvider,
    redactor: &Redactor,
    refresh: &Secret,
) -> Result<GrantedTokens, RenewalError> {
    redactor.learn(refresh);
    let (call, client) = (HttpCall::new(http), client(provider));
    let token = RefreshToken::new(refresh.expose().to_owned());
    let mut request = client.exchange_refresh_token(&token);
    if let Some(resource) = provider.resource() {
        request = request.add_extra_param("resource", resource);
    }
    let error = match request.request_async(&call).await {
        Ok(answer) => {
            let granted = GrantedTokens::new(&answer, provider, redactor);
            return granted.map_err(|reason| RenewalError::Unavailable { status: call.status(), reason });
        }
        Err(error) => error,
    };
    let reason = reason(&error, redactor);
    let is_ended = |answer: &BasicErrorResponse| *answer.error() == BasicErrorResponseType::InvalidGrant;
    if matches!(&error, RequestTokenError::ServerResponse(answer) if is_ended(answer)) {
        return Err(RenewalError::Ended(reason));
    }
    Err(RenewalError::Unavailable { status: call.status(), reason })
}

/// The error text. Of a response, only the error members are used, because the others may contain secrets.
pub(crate) fn reason<T>(
    error: &RequestTokenError<HttpError, StandardErrorResponse<T>>,
    redactor: &Redactor,
) -> String
where
    T: ErrorResponseType + fmt::Display + 'static,
{
    match error {
        RequestTokenError::ServerResponse(answer) => {
            let code = answer.error().to_string();
            sanitize(redactor, answer.error_description().unwrap_or(&code))
        }
        RequestTokenError::Request(error) => sanitize(redactor, &error.to_string()),
        RequestTokenError::Parse(..) => "its answer is not what OAuth asks for".to_owned(),
        RequestTokenError::Other(what) => sanitize(redactor, what),
    }
}
