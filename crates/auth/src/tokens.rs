//! The token endpoint: a code, or a refresh token, for tokens.

use std::fmt;
use std::time::Duration;

use oauth2::basic::{
    BasicErrorResponse, BasicErrorResponseType, BasicRevocationErrorResponse,
    BasicTokenIntrospectionResponse, BasicTokenType,
};
use oauth2::{
    AuthorizationCode, Client, ClientId, ClientSecret, EndpointNotSet, EndpointSet, ErrorResponseType,
    ExtraTokenFields, PkceCodeVerifier, RedirectUrl, RefreshToken, RequestTokenError, StandardErrorResponse,
    StandardRevocableToken, StandardTokenResponse, TokenResponse, TokenUrl,
};
use parlor_vocab::Timestamp;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::error::clean;
use crate::http::{Call, Http, HttpError};
use crate::record::Login;
use crate::time::later;
use crate::{Account, LoginError, LoginProvider, Redactor, Secret};

/// What a provider answers.
pub(crate) type Answer = StandardTokenResponse<Extra, BasicTokenType>;

/// The client that a provider knows, at its token endpoint.
pub(crate) type TokenClient = Client<
    BasicErrorResponse,
    Answer,
    BasicTokenIntrospectionResponse,
    StandardRevocableToken,
    BasicRevocationErrorResponse,
    EndpointNotSet,
    EndpointNotSet,
    EndpointNotSet,
    EndpointNotSet,
    EndpointSet,
>;

/// What comes beside the tokens of OAuth.
#[derive(Serialize, Deserialize)]
pub(crate) struct Extra {
    id_token: Option<Zeroizing<String>>,
}

impl ExtraTokenFields for Extra {}

impl fmt::Debug for Extra {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Extra(…)")
    }
}

/// What was given.
pub(crate) struct Granted {
    pub(crate) access: Secret,
    pub(crate) refresh: Option<Secret>,
    lifetime: Option<Duration>,
    account: Option<Account>,
}

impl Granted {
    /// From an answer. From now on its secrets are known.
    pub(crate) fn new(answer: &Answer, provider: &LoginProvider, redactor: &Redactor) -> Self {
        let access = Secret::new(answer.access_token().secret());
        let refresh = answer.refresh_token().map(|token| Secret::new(token.secret()));
        let id_token = answer.extra_fields().id_token.as_ref();
        let id_token = id_token.map(|token| Secret::new(token.as_str()));
        for secret in [Some(&access), refresh.as_ref(), id_token.as_ref()].into_iter().flatten() {
            redactor.learn(secret);
        }
        let account =
            id_token.and_then(|token| Account::of_id_token(token.expose(), &provider.account_claim));
        Self { access, refresh, lifetime: answer.expires_in(), account }
    }

    /// The login that it makes, given at that time. What is not given anew is kept from `before`.
    pub(crate) fn into_login(self, at: Timestamp, before: Option<Login>) -> Login {
        let (refresh, account) = before.map(|login| (login.refresh, login.account)).unwrap_or_default();
        Login {
            access: Some(self.access),
            refresh: self.refresh.or(refresh),
            expires_at: self.lifetime.map(|lifetime| later(at, lifetime)),
            obtained_at: at,
            account: self.account.or(account),
            ended: None,
        }
    }
}

/// Who we are to the provider.
pub(crate) fn client(provider: &LoginProvider) -> TokenClient {
    let client = Client::new(ClientId::new(provider.client_id.clone()));
    let client = match &provider.client_secret {
        Some(secret) => client.set_client_secret(ClientSecret::new(secret.expose().to_owned())),
        None => client,
    };
    client.set_token_uri(TokenUrl::from_url(provider.token_url.clone()))
}

/// Exchanges the code that a login ends with.
pub(crate) async fn exchange(
    http: &Http,
    provider: &LoginProvider,
    redactor: &Redactor,
    code: &Secret,
    verifier: &Secret,
    redirect: RedirectUrl,
) -> Result<Granted, LoginError> {
    redactor.learn(code);
    redactor.learn(verifier);
    let (call, client) = (Call::new(http), client(provider).set_redirect_uri(redirect));
    let answer = client
        .exchange_code(AuthorizationCode::new(code.expose().to_owned()))
        .set_pkce_verifier(PkceCodeVerifier::new(verifier.expose().to_owned()))
        .request_async(&call)
        .await;
    match answer {
        Ok(answer) => Ok(Granted::new(&answer, provider, redactor)),
        Err(error) => Err(LoginError::Exchange { status: call.status(), reason: reason(&error, redactor) }),
    }
}

/// Why a login was not renewed.
pub(crate) enum NotRenewed {
    /// The provider says that it is over.
    Ended(String),
    /// It may work another time.
    Unavailable {
        /// The HTTP status, if there was an answer.
        status: Option<u16>,
        /// What went wrong.
        reason: String,
    },
}

/// Exchanges a refresh token.
pub(crate) async fn renew(
    http: &Http,
    provider: &LoginProvider,
    redactor: &Redactor,
    refresh: &Secret,
) -> Result<Granted, NotRenewed> {
    redactor.learn(refresh);
    let (call, client) = (Call::new(http), client(provider));
    let token = RefreshToken::new(refresh.expose().to_owned());
    let error = match client.exchange_refresh_token(&token).request_async(&call).await {
        Ok(answer) => return Ok(Granted::new(&answer, provider, redactor)),
        Err(error) => error,
    };
    let reason = reason(&error, redactor);
    let is_over = |answer: &BasicErrorResponse| *answer.error() == BasicErrorResponseType::InvalidGrant;
    if matches!(&error, RequestTokenError::ServerResponse(answer) if is_over(answer)) {
        return Err(NotRenewed::Ended(reason));
    }
    Err(NotRenewed::Unavailable { status: call.status(), reason })
}

/// What went wrong, in words. Nothing of an answer is repeated but what it says about the error.
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
            clean(redactor, answer.error_description().unwrap_or(&code))
        }
        RequestTokenError::Request(error) => clean(redactor, &error.to_string()),
        RequestTokenError::Parse(..) => "its answer is not what OAuth asks for".to_owned(),
        RequestTokenError::Other(what) => clean(redactor, what),
    }
}
