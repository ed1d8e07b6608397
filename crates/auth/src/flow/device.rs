//! The device flow: RFC 8628.

use std::time::Duration;

use chrono::DateTime;
use oauth2::{
    DeviceAuthorizationUrl, DeviceCodeErrorResponseType, EmptyExtraDeviceAuthorizationFields,
    RequestTokenError, Scope, StandardDeviceAuthorizationResponse, TokenUrl,
};

use super::{DeviceCode, FlowContext, LoginFlow, LoginProgress};
use crate::error::clean;
use crate::http::Call;
use crate::provider::DeviceEndpoints;
use crate::tokens::{Granted, client, reason};
use crate::{LoginError, Secret};

/// How long lies between two questions, unless the provider says otherwise.
pub const DEFAULT_INTERVAL: Duration = Duration::from_secs(5);

/// The longest time between two questions, whatever the provider says.
pub const MAX_INTERVAL: Duration = Duration::from_secs(60);

/// The shortest time between two questions, whatever the provider says.
pub(super) const MIN_INTERVAL: Duration = Duration::from_secs(1);

/// How much longer it lies from when the provider asks for patience.
pub const SLOW_DOWN_STEP: Duration = Duration::from_secs(5);

/// How long a code can be entered, if the provider does not say: 15 minutes.
pub const DEFAULT_LIFETIME: Duration = Duration::from_secs(15 * 60);

/// Asks for a code, shows it, and asks for the tokens until it was entered.
pub(super) async fn tokens(stage: &FlowContext, device: &DeviceEndpoints) -> Result<Granted, LoginError> {
    let (provider, redactor) = (&stage.provider, &stage.redactor);
    let code = code(stage, device).await?;
    redactor.learn(&Secret::new(code.device_code().secret()));
    stage.tell(LoginProgress::Url { way: LoginFlow::Device, url: code.verification_uri().to_string() });
    stage.tell(LoginProgress::DeviceCode(DeviceCode {
        verification_url: code.verification_uri().to_string(),
        complete_url: code.verification_uri_complete().map(|url| url.secret().clone()),
        user_code: code.user_code().secret().clone(),
        interval_seconds: code.interval().clamp(MIN_INTERVAL, MAX_INTERVAL).as_secs(),
        expires_in_seconds: code.expires_in().as_secs(),
    }));
    let client = client(provider).set_token_uri(TokenUrl::from_url(device.poll_url.clone()));
    let call = Call::patient(&stage.http);
    let now = stage.time.clone();
    let answer = client
        .exchange_device_access_token(&code)
        .set_time_fn(move || DateTime::from_timestamp_millis(now.now().0).unwrap_or_default())
        .set_max_backoff_interval(MAX_INTERVAL)
        .request_async(&call, |wait| stage.time.pause(wait.clamp(MIN_INTERVAL, MAX_INTERVAL)), None)
        .await;
    let error = match answer {
        Ok(answer) => return Ok(Granted::new(&answer, provider, redactor)),
        Err(error) => error,
    };
    let reason = reason(&error, redactor);
    if let RequestTokenError::ServerResponse(answer) = &error {
        match answer.error() {
            DeviceCodeErrorResponseType::ExpiredToken => return Err(LoginError::CodeExpired),
            DeviceCodeErrorResponseType::AccessDenied => {
                let code = "access_denied".to_owned();
                let description = answer.error_description().map(|text| clean(redactor, text));
                return Err(LoginError::Denied { code, description });
            }
            DeviceCodeErrorResponseType::AuthorizationPending
            | DeviceCodeErrorResponseType::SlowDown
            | DeviceCodeErrorResponseType::Basic(_) => {}
        }
    }
    Err(LoginError::DevicePoll { status: call.status(), reason })
}

async fn code(
    stage: &FlowContext,
    device: &DeviceEndpoints,
) -> Result<StandardDeviceAuthorizationResponse, LoginError> {
    let (provider, call) = (&stage.provider, Call::new(&stage.http));
    let client =
        client(provider).set_device_authorization_url(DeviceAuthorizationUrl::from_url(device.url.clone()));
    let answer = client
        .exchange_device_code()
        .add_scopes(provider.scopes.iter().cloned().map(Scope::new))
        .request_async::<_, EmptyExtraDeviceAuthorizationFields>(&call)
        .await;
    answer.map_err(|error| match call.status() {
        Some(404) => LoginError::DeviceUnsupported,
        status => LoginError::DeviceRequest { status, reason: reason(&error, &stage.redactor) },
    })
}
