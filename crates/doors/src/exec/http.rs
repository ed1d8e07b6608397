//! The params and the result of `http/request`.

use std::time::Duration;

use parlor_vocab::{ExecutorRequest, HttpReply, HttpRequest, MAX_ID_BYTES};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::bounded::Few;
use super::code::FrameError;
use super::decode::params_object;
use super::wire::{ByteChunk, MAX_HTTP_HEADERS};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct HttpParams {
    method: String,
    url: String,
    #[serde(default)]
    headers: Few<Header, MAX_HTTP_HEADERS>,
    body_base64: Option<ByteChunk>,
    timeout_ms: Option<u64>,
    redirect_policy: Option<RedirectPolicy>,
    request_id: String,
    #[serde(default)]
    stream_response: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Header {
    name: String,
    #[serde(default)]
    value: String,
    value_env_var: Option<String>,
}

#[derive(Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
enum RedirectPolicy {
    Follow,
    Stop,
}

pub(super) fn request(params: Option<&RawValue>) -> Result<ExecutorRequest, FrameError> {
    let params: HttpParams = params_object(params)?;
    let invalid = |text: String| Err(FrameError::InvalidParams(text));
    if params.request_id.len() > MAX_ID_BYTES {
        return invalid(format!("requestId has more than {MAX_ID_BYTES} bytes"));
    }
    if params.headers.0.iter().any(|header| header.value_env_var.is_some()) {
        // Not announced, so clients do not send it: variables of the server may be credentials.
        return invalid("valueEnvVar is not supported".to_owned());
    }
    Ok(ExecutorRequest::Http(Box::new(HttpRequest {
        id: params.request_id,
        method: params.method,
        url: params.url,
        headers: params.headers.0.into_iter().map(|header| (header.name, header.value)).collect(),
        body: params.body_base64.map(|body| body.0).unwrap_or_default(),
        time_limit: params.timeout_ms.map(Duration::from_millis),
        follows_redirects: params.redirect_policy != Some(RedirectPolicy::Stop),
        is_streamed: params.stream_response,
    })))
}

pub(super) fn reply(reply: &HttpReply) -> Value {
    let headers: Vec<Value> =
        reply.headers.iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
    let body = base64_simd::STANDARD.encode_to_string(&reply.body);
    json!({"status": reply.status, "headers": headers, "bodyBase64": body})
}
