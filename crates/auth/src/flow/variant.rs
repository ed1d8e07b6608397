//! A device flow that some providers have instead of RFC 8628.
//!
//! Requests and answers are JSON. A code that was entered yields an authorization code with the
//! verifier that belongs to it, and those are exchanged as a browser's are.

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
use crate::error::clean;
use crate::http::HttpError;
use crate::provider::DeviceEndpoints;
use crate::time::later;
use crate::tokens::{Granted, exchange};
use crate::{LoginError, Secret};

/// What a provider answers to the request for a code.
#[derive(Deserialize)]
struct Code {
    device_auth_id: Zeroizing<String>,
    #[serde(alias = "usercode")]
    user_code: String,
    #[serde(default, deserialize_with = "seconds")]
    interval: Option<u64>,
    #[serde(default, deserialize_with = "seconds")]
    expires_in: Option<u64>,
}

/// What it answers once the code was entered.
#[derive(Deserialize)]
struct Entered {
    authorization_code: Zeroizing<String>,
    code_verifier: Zeroizing<String>,
}

/// Asks for a code, shows it, asks until it was entered, and exchanges what that yields.
pub(super) async fn tokens(
    stage: &FlowContext,
    device: &DeviceEndpoints,
    verification_url: &Url,
    redirect: &Url,
) -> Result<Granted, LoginError> {
    let code = code(stage, device).await?;
    stage.redactor.learn(&Secret::from(code.device_auth_id.clone()));
    let lifetime = code.expires_in.map_or(DEFAULT_LIFETIME, Duration::from_secs);
    let interval =
        code.interval.map_or(DEFAULT_INTERVAL, Duration::from_secs).clamp(MIN_INTERVAL, MAX_INTERVAL);
    stage.tell(LoginProgress::Url { way: LoginFlow::Device, url: verification_url.to_string() });
    stage.tell(LoginProgress::DeviceCode(DeviceCode {
        verification_url: verification_url.to_string(),
        complete_url: None,
        user_code: code.user_code.clone(),
        interval_seconds: interval.as_secs(),
        expires_in_seconds: lifetime.as_secs(),
    }));
    let entered = entered(stage, device, &code, interval, lifetime).await?;
    let (code, verifier) = (Secret::from(entered.authorization_code), Secret::from(entered.code_verifier));
    let redirect = RedirectUrl::from_url(redirect.clone());
    exchange(&stage.http, &stage.provider, &stage.redactor, &code, &verifier, redirect).await
}

async fn code(stage: &FlowContext, device: &DeviceEndpoints) -> Result<Code, LoginError> {
    let failed =
        |status, reason: &str| LoginError::DeviceRequest { status, reason: clean(&stage.redactor, reason) };
    let body = json!({"client_id": stage.provider.client_id, "scope": stage.provider.scopes.join(" ")});
    let answer = post(stage, &device.url, &body).await.map_err(|error| failed(None, &error.to_string()))?;
    match answer.status().as_u16() {
        404 => Err(LoginError::DeviceUnsupported),
        status if answer.status().is_success() => serde_json::from_slice(answer.body())
            .map_err(|_| failed(Some(status), "its answer is not what this device_flow expects")),
        status => Err(failed(Some(status), &complaint(&answer))),
    }
}

async fn entered(
    stage: &FlowContext,
    device: &DeviceEndpoints,
    code: &Code,
    mut interval: Duration,
    lifetime: Duration,
) -> Result<Entered, LoginError> {
    let failed = |status, reason: &str| {
        Err(LoginError::DevicePoll { status: Some(status), reason: clean(&stage.redactor, reason) })
    };
    let body = json!({"device_auth_id": code.device_auth_id.as_str(), "user_code": code.user_code});
    let end = later(stage.time.now(), lifetime);
    while stage.time.now() <= end {
        match post(stage, &device.poll_url, &body).await {
            Ok(answer) => match answer.status().as_u16() {
                // Not entered yet.
                403 | 404 => {}
                429 | 500.. => interval = (interval + SLOW_DOWN_STEP).min(MAX_INTERVAL),
                status if answer.status().is_success() => {
                    return serde_json::from_slice(answer.body())
                        .or_else(|_| failed(status, "its answer is not what this device_flow expects"));
                }
                status => return failed(status, &complaint(&answer)),
            },
            // The network may come back before the code expires.
            Err(_) => interval = (interval + SLOW_DOWN_STEP).min(MAX_INTERVAL),
        }
        stage.time.pause(interval).await;
    }
    Err(LoginError::CodeExpired)
}

async fn post(stage: &FlowContext, url: &Url, body: &Value) -> Result<HttpResponse, HttpError> {
    let request = Request::builder()
        .method(Method::POST)
        .uri(url.as_str())
        .header(ACCEPT, "application/json")
        .header(CONTENT_TYPE, "application/json")
        .body(body.to_string().into_bytes())
        .map_err(|_| HttpError::Address)?;
    stage.http.send(request).await
}

/// What an answer says about an error. Its other members are nobody's business.
fn complaint(answer: &HttpResponse) -> String {
    let body: Value = serde_json::from_slice(answer.body()).unwrap_or_default();
    let inside = [&body["error_description"], &body["error"]["message"], &body["error"], &body["message"]];
    inside.into_iter().find_map(Value::as_str).unwrap_or("it does not say why").to_owned()
}

/// Seconds, which some providers write as text.
fn seconds<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    Ok(match Option::<Value>::deserialize(from)? {
        Some(Value::Number(number)) => number.as_f64().map(|seconds| seconds.max(0.0) as u64),
        Some(Value::String(text)) => text.trim().parse().ok(),
        Some(Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_)) | None => None,
    })
}
