//! Classifies failed requests and error responses as [`ProviderError`]s.

use std::time::Duration;

use reqwest::header::HeaderMap;
use serde_json::Value;
use serde_json::value::RawValue;

use super::{MAX_ERROR_BYTES, ProviderError};
use crate::MAX_RETRY_AFTER;

/// The message for a refused key. `advice.rs` adds which key it is.
pub(super) const KEY_REFUSED: &str = "the key is not accepted";

/// The message of an error response without a reason.
pub(super) const NO_REASON: &str = "no reason given";

/// Texts by which providers report that a conversation is too long. There is no common error code.
const OVERFLOW: [&str; 10] = [
    "context_length_exceeded",
    "context length",
    "context window",
    "context limit",
    "maximum context",
    "prompt is too long",
    "prompt too long",
    "too many tokens",
    "input token count",
    "exceeds the maximum number of tokens",
];

/// Texts by which providers report that the account has no credit. A retry does not help.
const NO_CREDIT: [&str; 4] = ["insufficient_quota", "credit balance", "billing", "insufficient credits"];

/// Texts by which a gateway reports with 403 that it refuses the content of a request, and not the key.
const CONTENT_REFUSED: [&str; 5] =
    ["moderation", "flagged", "content policy", "content_policy", "content filter"];

/// The status of an unknown model or address, at the beginning of a message.
const NOT_FOUND: &str = "404: ";

/// The longest wait that is represented; longer ones are shortened to it.
const MAX_WAIT: Duration = Duration::from_secs(u32::MAX as u64);

/// The error for a response with an error status. `message` is not truncated yet, because the key must be removed
/// first.
pub(super) fn status_error(status: u16, head: &HeaderMap, message: &str) -> ProviderError {
    let line = |name: &str| head.get(name)?.to_str().ok().map(str::trim);
    let retry_after = retry_after(line);
    let long_wait = retry_after.filter(|wait| *wait > MAX_RETRY_AFTER);
    let note = long_wait.map_or_else(String::new, |wait| long_wait_note(wait, line("date")));
    by_status(status, message.to_owned() + &note, retry_after)
}

/// The error for a failed HTTP request. Includes all causes, because reqwest's own text does not name them.
pub(super) fn request_error(error: reqwest::Error) -> ProviderError {
    // The URL may contain a password.
    let error = error.without_url();
    if error.is_builder() {
        let message = "the request cannot be written: check base_url and the key".to_owned();
        return ProviderError::Settings { message };
    }
    let causes = std::iter::successors(Some(&error as &dyn std::error::Error), |error| error.source());
    broken(causes.map(ToString::to_string).collect::<Vec<_>>().join(": "))
}

/// Classifies an error by its HTTP status.
fn by_status(status: u16, message: String, retry_after: Option<Duration>) -> ProviderError {
    let numbered = format!("{status}: {message}");
    match status {
        _ if has(&message, &OVERFLOW) && (400..500).contains(&status) => {
            ProviderError::Overflow { message: numbered }
        }
        _ if has(&message, &NO_CREDIT) && (400..500).contains(&status) => {
            ProviderError::Refused { message: numbered }
        }
        403 if has(&message, &CONTENT_REFUSED) => ProviderError::Refused { message: numbered },
        401 | 403 => ProviderError::Auth { message: format!("{KEY_REFUSED} ({numbered})") },
        413 => ProviderError::Overflow { message: numbered },
        408 | 409 | 425 | 429 | 503 | 529 => ProviderError::Busy { message: numbered, retry_after },
        500.. => ProviderError::Broken { message: numbered, retry_after },
        _ => ProviderError::Refused { message: numbered },
    }
}

/// Whether the message of a refused request speaks of the account, the model or the address, so that the content of
/// the request is not the reason.
pub(crate) fn is_about_account(message: &str) -> bool {
    has(message, &NO_CREDIT) || message.contains(NOT_FOUND)
}

/// The error in the member `error` of a frame.
pub(super) fn error_member(error: &RawValue) -> ProviderError {
    // A `Value` takes many times the memory of its text.
    let is_short = error.get().len() <= MAX_ERROR_BYTES;
    let error: Option<Value> = is_short.then(|| serde_json::from_str(error.get()).ok()).flatten();
    by_type(&error.unwrap_or_default())
}

/// The error in a response with a success status: JSON with a member `error` or `message`. Gemini sends it in a list.
pub(super) fn error_in_body(text: &str) -> Option<ProviderError> {
    let body: Value = serde_json::from_str(text).ok().filter(|_| text.len() <= MAX_ERROR_BYTES)?;
    let body = body.get(0).cloned().unwrap_or(body);
    let has = |member: &str| body.get(member).is_some_and(|value| !value.is_null());
    (has("error") || has("message")).then(|| by_type(&body))
}

/// Classifies an error within a stream by its type and code.
fn by_type(body: &Value) -> ProviderError {
    let error = body.get("error").unwrap_or(body);
    let text = |member: &str| error.get(member).and_then(Value::as_str).unwrap_or_default();
    let message = match text("message") {
        "" => error.as_str().unwrap_or(NO_REASON),
        message => message,
    };
    let message = message.to_owned();
    // Some servers send an HTTP status as code.
    if let Some(status) = error.get("code").and_then(Value::as_u64).filter(|code| (400..600).contains(code)) {
        return by_status(u16::try_from(status).unwrap_or(500), message, None);
    }
    let kind = format!("{} {}", text("type"), text("code"));
    let is = |word: &str| kind.contains(word);
    if has(&message, &OVERFLOW) || has(&kind, &OVERFLOW) {
        ProviderError::Overflow { message }
    } else if has(&kind, &NO_CREDIT) {
        ProviderError::Refused { message }
    } else if is("rate_limit") || is("overloaded") {
        ProviderError::Busy { message, retry_after: None }
    } else if is("authentication") || is("permission") {
        ProviderError::Auth { message: format!("{KEY_REFUSED} ({message})") }
    } else if is("invalid_request") || is("invalid_prompt") {
        ProviderError::Refused { message }
    } else {
        ProviderError::Broken { message, retry_after: None }
    }
}

fn broken(message: String) -> ProviderError {
    ProviderError::Broken { message, retry_after: None }
}

fn has(text: &str, words: &[&str]) -> bool {
    let text = text.to_lowercase();
    words.iter().any(|word| text.contains(word))
}

/// The message in the body of an error response, which is mostly JSON.
pub(super) fn error_message(body: &str) -> String {
    let body = body.trim();
    if body.is_empty() || body == "{}" {
        return NO_REASON.to_owned();
    }
    if body.starts_with('<') {
        return "a page of HTML".to_owned();
    }
    let Ok(json) = serde_json::from_str::<Value>(body) else { return body.to_owned() };
    let json = json.get(0).cloned().unwrap_or(json);
    let error = json.get("error").unwrap_or(&json);
    let message = error.get("message").and_then(Value::as_str).or(error.as_str());
    let code = error.get("code").and_then(Value::as_str);
    match (message, code) {
        (Some(message), Some(code)) => format!("{message} ({code})"),
        (Some(message), None) => message.to_owned(),
        (None, _) => body.to_owned(),
    }
}

/// A note about a long wait, with its end if the response has a date.
fn long_wait_note(wait: Duration, date: Option<&str>) -> String {
    let now = date.and_then(|date| httpdate::parse_http_date(date).ok());
    let until = now.and_then(|now| now.checked_add(wait)).map(httpdate::fmt_http_date);
    let until = until.map_or_else(String::new, |until| format!(", until {until}"));
    format!("; it asks to wait for {} minutes{until}: try again then", wait.as_secs().div_ceil(60))
}

/// How long the response headers ask to wait. A date is compared with the date of the response, because the
/// provider's clock may differ from ours.
fn retry_after<'h>(line: impl Fn(&str) -> Option<&'h str>) -> Option<Duration> {
    let number = |name: &str| line(name)?.parse::<f64>().ok();
    let seconds = number("retry-after-ms").map(|millis| millis / 1000.0).or_else(|| number("retry-after"));
    if let Some(seconds) = seconds.filter(|seconds| *seconds >= 0.0) {
        return Some(Duration::try_from_secs_f64(seconds).unwrap_or(MAX_WAIT).min(MAX_WAIT));
    }
    let moment = |name: &str| httpdate::parse_http_date(line(name)?).ok();
    Some(moment("retry-after")?.duration_since(moment("date")?).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(status: u16, body: &str) -> ProviderError {
        by_status(status, error_message(body), None)
    }

    #[test]
    fn retry_after_is_a_number_or_a_date() {
        const NOON: &str = "Sun, 06 Nov 1994 12:00:00 GMT";
        const LATER: &str = "Sun, 06 Nov 1994 12:00:07 GMT";
        let wait = |head: &[(&str, &'static str)]| {
            retry_after(|name| head.iter().find(|(known, _)| *known == name).map(|(_, value)| *value))
        };
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        assert_eq!(wait(&[("retry-after", "7")]), seconds(7));
        assert_eq!(
            wait(&[("retry-after-ms", "1500"), ("retry-after", "7")]),
            Some(Duration::from_millis(1500))
        );
        assert_eq!(wait(&[("retry-after", LATER), ("date", NOON)]), seconds(7));
        assert_eq!(wait(&[("retry-after", NOON), ("date", LATER)]), seconds(0), "the date has passed");
        assert_eq!(wait(&[("retry-after", LATER)]), None, "a date needs the date of the response");
        assert_eq!(wait(&[("retry-after", "-1")]), None);
        assert_eq!(wait(&[("retry-after", "1e300")]), Some(MAX_WAIT));
        assert_eq!(wait(&[("retry-after", "soon"), ("date", NOON)]), None);
    }

    #[test]
    fn a_long_wait_is_reported_with_its_end() {
        let hour = Duration::from_secs(3600);
        assert_eq!(long_wait_note(hour, None), "; it asks to wait for 60 minutes: try again then");
        let note = long_wait_note(hour, Some("Sun, 06 Nov 1994 12:00:00 GMT"));
        assert!(note.contains("until Sun, 06 Nov 1994 13:00:00 GMT"), "{note}");
    }

    #[test]
    fn bodies_without_a_message_have_a_default() {
        assert_eq!(error_message(" "), NO_REASON);
        assert_eq!(error_message("<!doctype html><html>…"), "a page of HTML");
        assert_eq!(status(400, "").to_string(), "the provider refuses: 400: no reason given");
    }

    #[test]
    fn each_status_has_a_code() {
        assert_eq!(status(401, "{}").code().as_str(), "MODEL_AUTH");
        assert_eq!(status(429, "{}").code().as_str(), "MODEL_BUSY");
        assert_eq!(status(529, "{}").code().as_str(), "MODEL_BUSY");
        assert_eq!(status(500, "{}").code().as_str(), "MODEL_UNAVAILABLE");
        assert_eq!(status(404, "{}").code().as_str(), "MODEL_REFUSED");
        assert_eq!(status(413, "{}").code().as_str(), "CONTEXT_OVERFLOW");
    }

    #[test]
    fn a_gateway_that_moderates_refuses_the_request_and_not_the_key() {
        let flagged = status(403, r#"{"error":{"message":"Your input was flagged by moderation"}}"#);
        assert_eq!(flagged.code().as_str(), "MODEL_REFUSED");
        assert_eq!(status(403, "{}").code().as_str(), "MODEL_AUTH");
        assert!(!is_about_account(&flagged.to_string()));
        assert!(is_about_account(&status(404, r#"{"error":{"message":"no such model"}}"#).to_string()));
        assert!(is_about_account(
            &status(402, r#"{"error":{"message":"Insufficient credits"}}"#).to_string()
        ));
    }

    #[test]
    fn an_overflow_is_recognized_by_the_texts_of_each_provider() {
        for body in [
            r#"{"error":{"message":"This model's maximum context length is 8192 tokens","code":"context_length_exceeded"}}"#,
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 210000 tokens > 200000 maximum"}}"#,
            r#"[{"error":{"code":400,"message":"The input token count (2000000) exceeds the maximum number of tokens allowed"}}]"#,
        ] {
            assert_eq!(status(400, body).code().as_str(), "CONTEXT_OVERFLOW", "{body}");
        }
        assert_eq!(
            status(400, r#"{"error":{"message":"no such parameter"}}"#).code().as_str(),
            "MODEL_REFUSED"
        );
        assert_eq!(
            by_type(&serde_json::json!({"error": {"message": "Your input exceeds the context window of this model"}}))
                .code()
                .as_str(),
            "CONTEXT_OVERFLOW"
        );
    }

    #[test]
    fn an_account_without_credit_is_not_retryable() {
        let error = status(
            429,
            r#"{"error":{"message":"You exceeded your current quota","code":"insufficient_quota"}}"#,
        );
        assert!(!error.is_retryable());
        assert_eq!(
            error.to_string(),
            "the provider refuses: 429: You exceeded your current quota (insufficient_quota)"
        );
    }

    #[test]
    fn an_error_in_a_stream_is_classified_by_its_type() {
        let kind = |kind: &str| {
            by_type(&serde_json::json!({"error": {"type": kind, "message": "m"}})).code().to_string()
        };
        assert_eq!(kind("overloaded_error"), "MODEL_BUSY");
        assert_eq!(kind("rate_limit_error"), "MODEL_BUSY");
        assert_eq!(kind("api_error"), "MODEL_UNAVAILABLE");
        assert_eq!(kind("authentication_error"), "MODEL_AUTH");
        assert_eq!(kind("invalid_request_error"), "MODEL_REFUSED");
        assert_eq!(kind("insufficient_quota"), "MODEL_REFUSED");
        let code = |code: u16| {
            by_type(&serde_json::json!({"error": {"code": code, "message": "m"}})).code().to_string()
        };
        assert_eq!([code(401), code(429), code(1)], ["MODEL_AUTH", "MODEL_BUSY", "MODEL_UNAVAILABLE"]);
    }
}
