//! A device flow that some providers have instead of RFC 8628.
//!
//! Requests and responses are JSON. Once the user has entered the device code, the provider returns an authorization code
//! and its PKCE verifier, which are exchanged for tokens as in the browser flow.

use std::time::Duration;

use oauth2::http::header::{ACCEPT, CONTENT_TYPE};
use oauth2::http::{Method, Request};
use oauth2::{HttpResponse, RedirectUrl};
use serde::Deserialize;
use serde_json::{Value, json};
use url::Url;
use zeroize::Zeroizing;

use super::device::{DEFAULT_INTERVAL, DEFAULT_LIFETIME, MAX_INTERVAL, MIN_INTERVAL, SLOW_DOWN_STEP};
use super::{DeviceCode, FlowContext, LoginFlow, LoginProgress};
use crate::error::sanitize;
use crate::http::HttpError;
use crate::provider::DeviceEndpoints;
use crate::time::later;
use crate::tokens::{GrantedTokens, check_token, exchange};
use crate::{LoginError, Secret};

/// The response to the request for a device code.
#[derive(Deserialize)]
struct CodeResponse {
    device_auth_id: Zeroizing<String>,
    #[serde(alias = "usercode")]
    user_code: String,
    #[serde(default, deserialize_with = "seconds")]
    interval: Option<u64>,
    #[serde(default, deserialize_with = "seconds")]
    expires_in: Option<u64>,
}

/// The response to a poll after the user has entered the code.
#[derive(Deserialize)]
struct PollResponse {
    authorization_code: Zeroizing<String>,
    code_verifier: Zeroizing<String>,
}

/// Requests a device code, publishes it, polls until the user has entered it, and exchanges the result for tokens.
pub(super) async fn tokens(
    context: &FlowContext,
    device: &DeviceEndpoints,
    verification_url: &Url,
    redirect: &Url,
) -> Result<GrantedTokens, LoginError> {
    let code = request_code(context, device).await?;
    let refused = |reason| LoginError::DeviceRequest { status: None, reason };
    check_token(&code.device_auth_id).map_err(refused)?;
    context.deps.redactor.learn(&Secret::from(code.device_auth_id.clone()));
    let lifetime = code.expires_in.map_or(DEFAULT_LIFETIME, Duration::from_secs);
    let interval =
        code.interval.map_or(DEFAULT_INTERVAL, Duration::from_secs).clamp(MIN_INTERVAL, MAX_INTERVAL);
    context.send(LoginProgress::Url { flow: LoginFlow::Device, url: verification_url.to_string() });
    context.send(LoginProgress::DeviceCode(DeviceCode {
        verification_url: verification_url.to_string(),
        complete_url: None,
        user_code: code.user_code.clone(),
        interval_seconds: interval.as_secs(),
        expires_in_seconds: lifetime.as_secs(),
    }));
    let entered = poll(context, device, &code, interval, lifetime).await?;
    let (code, verifier) = (Secret::from(entered.authorization_code), Secret::from(entered.code_verifier));
    let redirect = RedirectUrl::from_url(redirect.clone());
    exchange(&context.deps.http, &context.deps.provider, &context.deps.redactor, &code, &verifier, redirect)
        .await
}

async fn request_code(context: &FlowContext, device: &DeviceEndpoints) -> Result<CodeResponse, LoginError> {
    let failed = |status, reason: &str| LoginError::DeviceRequest {
        status,
        reason: sanitize(&context.deps.redactor, reason),
    };
    let body = json!({"client_id": context.deps.provider.client_id, "scope": context.deps.provider.scopes.join(" ")});
    let answer = post(context, &device.url, &body).await.map_err(|error| failed(None, &error.to_string()))?;
    match answer.status().as_u16() {
        404 => Err(LoginError::DeviceUnsupported),
        status if answer.status().is_success() => serde_json::from_slice(answer.body())
            .map_err(|_| failed(Some(status), "its answer is not what this device_flow expects")),
        status => Err(failed(Some(status), &error_text(&answer))),
    }
}

async fn poll(
    context: &FlowContext,
    device: &DeviceEndpoints,
    code: &CodeResponse,
    mut interval: Duration,
    lifetime: Duration,
) -> Result<PollResponse, LoginError> {
    let failed = |status, reason: &str| {
        Err(LoginError::DevicePoll { status: Some(status), reason: sanitize(&context.deps.redactor, reason) })
    };
    let body = json!({"device_auth_id": code.device_auth_id.as_str(), "user_code": code.user_code});
    let end = later(context.deps.time.now(), lifetime);
    while context.deps.time.now() <= end {
        match post(context, &device.poll_url, &body).await {
            Ok(answer) => match answer.status().as_u16() {
                // The user has not entered the code yet.
                403 | 404 => {}
                429 | 500.. => interval = (interval + SLOW_DOWN_STEP).min(MAX_INTERVAL),
                status if answer.status().is_success() => {
                    return serde_json::from_slice(answer.body())
                        .or_else(|_| failed(status, "its answer is not what this device_flow expects"));
                }
                status => return failed(status, &error_text(&answer)),
            },
            // The network may recover before the code expires.
            Err(_) => interval = (interval + SLOW_DOWN_STEP).min(MAX_INTERVAL),
        }
        context.deps.time.sleep(interval).await;
    }
    Err(LoginError::CodeExpired)
}

async fn post(context: &FlowContext, url: &Url, body: &Value) -> Result<HttpResponse, HttpError> {
    let request = Request::builder()
        .method(Method::POST)
        .uri(url.as_str())
        .header(ACCEPT, "application/json")
        .header(CONTENT_TYPE, "application/json")
        .body(body.to_string().into_bytes())
        .map_err(|_| HttpError::InvalidUrl)?;
    context.deps.http.send(request).await
}

/// The error text in a response. Its other members are ignored, because they may contain secrets.
fn error_text(answer: &HttpResponse) -> String {
    let body: Value = serde_json::from_slice(answer.body()).unwrap_or_default();
    let inside = [&body["error_description"], &body["error"]["message"], &body["error"], &body["message"]];
    inside.into_iter().find_map(Value::as_str).unwrap_or("it does not say why").to_owned()
}

/// Deserializes seconds, which some providers send as text.
fn seconds<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    Ok(match Option::<Value>::deserialize(from)? {
        Some(Value::Number(number)) => number.as_f64().map(|seconds| seconds.max(0.0) as u64),
        Some(Value::String(text)) => text.trim().parse().ok(),
        Some(Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_)) | None => None,
    })
}
