//! The device flow (RFC 8628).

use std::time::Duration;

use chrono::DateTime;
use oauth2::{
    DeviceAuthorizationUrl, DeviceCodeErrorResponseType, EmptyExtraDeviceAuthorizationFields,
    RequestTokenError, Scope, StandardDeviceAuthorizationResponse, TokenUrl,
};
use url::Url;

use super::{DeviceCode, FlowContext, LoginFlow, LoginProgress};
use crate::error::sanitize;
use crate::http::HttpCall;
use crate::provider::DeviceEndpoints;
use crate::tokens::{GrantedTokens, check_token, client, reason};
use crate::{LoginError, Secret};

/// The polling interval, unless the provider sets another one.
pub const DEFAULT_INTERVAL: Duration = Duration::from_secs(5);

/// The longest polling interval, whatever the provider asks for.
pub const MAX_INTERVAL: Duration = Duration::from_secs(60);

/// The shortest polling interval, whatever the provider asks for.
pub(super) const MIN_INTERVAL: Duration = Duration::from_secs(1);

/// How much the polling interval grows when the provider answers `slow_down` or is overloaded.
pub const SLOW_DOWN_STEP: Duration = Duration::from_secs(5);

/// How long a device code is valid, unless the provider says so: 15 minutes.
pub const DEFAULT_LIFETIME: Duration = Duration::from_secs(15 * 60);

/// Requests a device code, publishes it, and polls for tokens until the user has entered it.
pub(super) async fn tokens(
    context: &FlowContext,
    device: &DeviceEndpoints,
) -> Result<GrantedTokens, LoginError> {
    let (provider, redactor) = (&context.deps.provider, &context.deps.redactor);
    let code = request_code(context, device).await?;
    let refused = |reason| LoginError::DeviceRequest { status: None, reason };
    check_token(code.device_code().secret()).map_err(refused)?;
    redactor.learn(&Secret::new(code.device_code().secret()));
    let url = code.verification_uri().to_string();
    let complete_url = code.verification_uri_complete().map(|url| url.secret().clone());
    if ![Some(&url), complete_url.as_ref()].into_iter().flatten().all(|url| is_web(url)) {
        let reason = "the provider's address for the code begins with neither http: nor https:".to_owned();
        return Err(LoginError::DeviceRequest { status: None, reason });
    }
    context.send(LoginProgress::Url { flow: LoginFlow::Device, url: url.clone() });
    context.send(LoginProgress::DeviceCode(DeviceCode {
        verification_url: url,
        complete_url,
        user_code: code.user_code().secret().clone(),
        interval_seconds: code.interval().clamp(MIN_INTERVAL, MAX_INTERVAL).as_secs(),
        expires_in_seconds: code.expires_in().as_secs(),
    }));
    let client = client(provider).set_token_uri(TokenUrl::from_url(device.poll_url.clone()));
    let call = HttpCall::retrying(&context.deps.http);
    let now = context.deps.time.clone();
    let answer = client
        .exchange_device_access_token(&code)
        .set_time_fn(move || DateTime::from_timestamp_millis(now.now().0).unwrap_or_default())
        .set_max_backoff_interval(MAX_INTERVAL)
        .request_async(&call, |wait| context.deps.time.sleep(wait.clamp(MIN_INTERVAL, MAX_INTERVAL)), None)
        .await;
    let error = match answer {
        Ok(answer) => {
            let granted = GrantedTokens::new(&answer, provider, redactor);
            return granted.map_err(|reason| LoginError::DevicePoll { status: call.status(), reason });
        }
        Err(error) => error,
    };
    let reason = reason(&error, redactor);
    if let RequestTokenError::ServerResponse(answer) = &error {
        match answer.error() {
            DeviceCodeErrorResponseType::ExpiredToken => return Err(LoginError::CodeExpired),
            DeviceCodeErrorResponseType::AccessDenied => {
                let code = "access_denied".to_owned();
                let description = answer.error_description().map(|text| sanitize(redactor, text));
                return Err(LoginError::Denied { code, description });
            }
            DeviceCodeErrorResponseType::AuthorizationPending
            | DeviceCodeErrorResponseType::SlowDown
            | DeviceCodeErrorResponseType::Basic(_) => {}
        }
    }
    Err(LoginError::DevicePoll { status: call.status(), reason })
}

/// Whether people can open the address safely: not a `javascript:` address or that of another program.
fn is_web(url: &str) -> bool {
    Url::parse(url).is_ok_and(|url| ["http", "https"].contains(&url.scheme()))
}

async fn request_code(
    context: &FlowContext,
    device: &DeviceEndpoints,
) -> Result<StandardDeviceAuthorizationResponse, LoginError> {
    let (provider, call) = (&context.deps.provider, HttpCall::new(&context.deps.http));
    let client =
        client(provider).set_device_authorization_url(DeviceAuthorizationUrl::from_url(device.url.clone()));
    let answer = client
        .exchange_device_code()
        .add_scopes(provider.scopes.iter().cloned().map(Scope::new))
        .request_async::<_, EmptyExtraDeviceAuthorizationFields>(&call)
        .await;
    answer.map_err(|error| match call.status() {
        Some(404) => LoginError::DeviceUnsupported,
        status => LoginError::DeviceRequest { status, reason: reason(&error, &context.deps.redactor) },
    })
}
