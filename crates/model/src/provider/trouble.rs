//! From what a provider answers, or does not answer, to a [`ProviderError`].

use std::time::Duration;

use reqwest::header::HeaderMap;
use serde_json::Value;
use serde_json::value::RawValue;

use super::{MAX_ERROR_BYTES, ProviderError};
use crate::MAX_RETRY_AFTER;

/// How it is said that a server does not take a key; `advice.rs` says which one.
pub(super) const KEY_REFUSED: &str = "the key is not accepted";

/// What stands in the place of a reason.
pub(super) const NO_REASON: &str = "no reason given";

/// Words by which providers say that a conversation is too long. None of them has a code that all
/// share.
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

/// Words by which providers say that there is no money left. Waiting does not help.
const NO_CREDIT: [&str; 4] = ["insufficient_quota", "credit balance", "billing", "insufficient credits"];

/// What a wait is taken for that is longer than anybody lives.
const FOR_EVER: Duration = Duration::from_secs(u32::MAX as u64);

/// An answer with a status that is no success, and what its body says; at full length, as what is secret is not taken
/// out yet.
pub(super) fn refusal(status: u16, head: &HeaderMap, said: &str) -> ProviderError {
    let line = |name: &str| head.get(name)?.to_str().ok().map(str::trim);
    let retry_after = asked_wait(line);
    let long = retry_after.filter(|wait| *wait > MAX_RETRY_AFTER);
    let long = long.map_or_else(String::new, |wait| until(wait, line("date")));
    by_status(status, said.to_owned() + &long, retry_after)
}

/// A connection that failed, with what is behind it: reqwest's own words do not say why.
pub(super) fn failed(error: reqwest::Error) -> ProviderError {
    // An address may hold a password.
    let error = error.without_url();
    if error.is_builder() {
        let said = "the request cannot be written: check base_url and the key".to_owned();
        return ProviderError::Settings { said };
    }
    let causes = std::iter::successors(Some(&error as &dyn std::error::Error), |error| error.source());
    broken(causes.map(ToString::to_string).collect::<Vec<_>>().join(": "))
}

/// What an answer with this status means.
fn by_status(status: u16, said: String, retry_after: Option<Duration>) -> ProviderError {
    let numbered = format!("{status}: {said}");
    match status {
        _ if has(&said, &OVERFLOW) && (400..500).contains(&status) => {
            ProviderError::Overflow { said: numbered }
        }
        _ if has(&said, &NO_CREDIT) && (400..500).contains(&status) => {
            ProviderError::Refused { said: numbered }
        }
        401 | 403 => ProviderError::Auth { said: format!("{KEY_REFUSED} ({numbered})") },
        413 => ProviderError::Overflow { said: numbered },
        408 | 409 | 425 | 429 | 503 | 529 => ProviderError::Busy { said: numbered, retry_after },
        500.. => ProviderError::Broken { said: numbered, retry_after },
        _ => ProviderError::Refused { said: numbered },
    }
}

/// The error that the member `error` of a frame is.
pub(super) fn error_in(error: &RawValue) -> ProviderError {
    // As a value, JSON takes many times the memory of its text.
    let is_short = error.get().len() <= MAX_ERROR_BYTES;
    let error: Option<Value> = is_short.then(|| serde_json::from_str(error.get()).ok()).flatten();
    by_kind(&error.unwrap_or_default())
}

/// The error that a text is, if it is one: JSON with a member `error` or `message`, which some send as if all were
/// well. Gemini's errors are in a list.
pub(super) fn error_of(text: &str) -> Option<ProviderError> {
    let body: Value = serde_json::from_str(text).ok().filter(|_| text.len() <= MAX_ERROR_BYTES)?;
    let body = body.get(0).cloned().unwrap_or(body);
    let has = |member: &str| body.get(member).is_some_and(|value| !value.is_null());
    (has("error") || has("message")).then(|| by_kind(&body))
}

/// An error within a stream, which has a word for its kind and no status.
fn by_kind(body: &Value) -> ProviderError {
    let error = body.get("error").unwrap_or(body);
    let text = |member: &str| error.get(member).and_then(Value::as_str).unwrap_or_default();
    let said = match text("message") {
        "" => error.as_str().unwrap_or(NO_REASON),
        message => message,
    };
    let said = said.to_owned();
    // Some have a status all the same, as a number.
    if let Some(status) = error.get("code").and_then(Value::as_u64).filter(|code| (400..600).contains(code)) {
        return by_status(u16::try_from(status).unwrap_or(500), said, None);
    }
    let kind = format!("{} {}", text("type"), text("code"));
    let is = |word: &str| kind.contains(word);
    if has(&said, &OVERFLOW) || has(&kind, &OVERFLOW) {
        ProviderError::Overflow { said }
    } else if has(&kind, &NO_CREDIT) {
        ProviderError::Refused { said }
    } else if is("rate_limit") || is("overloaded") {
        ProviderError::Busy { said, retry_after: None }
    } else if is("authentication") || is("permission") {
        ProviderError::Auth { said: format!("{KEY_REFUSED} ({said})") }
    } else if is("invalid_request") || is("invalid_prompt") {
        ProviderError::Refused { said }
    } else {
        ProviderError::Broken { said, retry_after: None }
    }
}

fn broken(said: String) -> ProviderError {
    ProviderError::Broken { said, retry_after: None }
}

fn has(text: &str, words: &[&str]) -> bool {
    let text = text.to_lowercase();
    words.iter().any(|word| text.contains(word))
}

/// The sentence in an error's body, which is JSON mostly.
pub(super) fn said_in(body: &str) -> String {
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

/// Until when to wait, if the provider says what time it is there.
fn until(wait: Duration, date: Option<&str>) -> String {
    let now = date.and_then(|date| httpdate::parse_http_date(date).ok());
    let until = now.and_then(|now| now.checked_add(wait)).map(httpdate::fmt_http_date);
    let until = until.map_or_else(String::new, |until| format!(", until {until}"));
    format!("; it asks to wait for {} minutes{until}: try again then", wait.as_secs().div_ceil(60))
}

/// How long the provider wants us to wait, as its head says. A date is compared with that of the answer: the provider's clock need not be ours.
fn asked_wait<'h>(line: impl Fn(&str) -> Option<&'h str>) -> Option<Duration> {
    let number = |name: &str| line(name)?.parse::<f64>().ok();
    let seconds = number("retry-after-ms").map(|millis| millis / 1000.0).or_else(|| number("retry-after"));
    if let Some(seconds) = seconds.filter(|seconds| *seconds >= 0.0) {
        return Some(Duration::try_from_secs_f64(seconds).unwrap_or(FOR_EVER).min(FOR_EVER));
    }
    let moment = |name: &str| httpdate::parse_http_date(line(name)?).ok();
    Some(moment("retry-after")?.duration_since(moment("date")?).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(status: u16, body: &str) -> ProviderError {
        by_status(status, said_in(body), None)
    }

    #[test]
    fn a_wait_is_told_in_seconds_or_as_a_date() {
        const NOON: &str = "Sun, 06 Nov 1994 12:00:00 GMT";
        const LATER: &str = "Sun, 06 Nov 1994 12:00:07 GMT";
        let wait = |head: &[(&str, &'static str)]| {
            asked_wait(|name| head.iter().find(|(known, _)| *known == name).map(|(_, value)| *value))
        };
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        assert_eq!(wait(&[("retry-after", "7")]), seconds(7));
        assert_eq!(
            wait(&[("retry-after-ms", "1500"), ("retry-after", "7")]),
            Some(Duration::from_millis(1500))
        );
        assert_eq!(wait(&[("retry-after", LATER), ("date", NOON)]), seconds(7));
        assert_eq!(wait(&[("retry-after", NOON), ("date", LATER)]), seconds(0), "it is over already");
        assert_eq!(wait(&[("retry-after", LATER)]), None, "nobody says what time it is there");
        assert_eq!(wait(&[("retry-after", "-1")]), None);
        assert_eq!(wait(&[("retry-after", "1e300")]), Some(FOR_EVER));
        assert_eq!(wait(&[("retry-after", "soon"), ("date", NOON)]), None);
    }

    #[test]
    fn a_long_wait_is_told_with_its_end() {
        let hour = Duration::from_secs(3600);
        assert_eq!(until(hour, None), "; it asks to wait for 60 minutes: try again then");
        let told = until(hour, Some("Sun, 06 Nov 1994 12:00:00 GMT"));
        assert!(told.contains("until Sun, 06 Nov 1994 13:00:00 GMT"), "{told}");
    }

    #[test]
    fn what_says_nothing_is_said_to() {
        assert_eq!(said_in(" "), NO_REASON);
        assert_eq!(said_in("<!doctype html><html>…"), "a page of HTML");
        assert_eq!(status(400, "").to_string(), "the provider refuses: 400: no reason given");
    }

    #[test]
    fn a_status_says_what_can_be_done() {
        assert_eq!(status(401, "{}").code().as_str(), "MODEL_AUTH");
        assert_eq!(status(429, "{}").code().as_str(), "MODEL_BUSY");
        assert_eq!(status(529, "{}").code().as_str(), "MODEL_BUSY");
        assert_eq!(status(500, "{}").code().as_str(), "MODEL_UNAVAILABLE");
        assert_eq!(status(404, "{}").code().as_str(), "MODEL_REFUSED");
        assert_eq!(status(413, "{}").code().as_str(), "CONTEXT_OVERFLOW");
    }

    #[test]
    fn a_conversation_that_is_too_long_is_known_by_the_words_of_each_provider() {
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
            by_kind(&serde_json::json!({"error": {"message": "Your input exceeds the context window of this model"}}))
                .code()
                .as_str(),
            "CONTEXT_OVERFLOW"
        );
    }

    #[test]
    fn an_account_without_credit_is_not_asked_again() {
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
    fn an_error_in_a_stream_is_known_by_its_kind() {
        let kind = |kind: &str| {
            by_kind(&serde_json::json!({"error": {"type": kind, "message": "m"}})).code().to_string()
        };
        assert_eq!(kind("overloaded_error"), "MODEL_BUSY");
        assert_eq!(kind("rate_limit_error"), "MODEL_BUSY");
        assert_eq!(kind("api_error"), "MODEL_UNAVAILABLE");
        assert_eq!(kind("authentication_error"), "MODEL_AUTH");
        assert_eq!(kind("invalid_request_error"), "MODEL_REFUSED");
        assert_eq!(kind("insufficient_quota"), "MODEL_REFUSED");
        let code = |code: u16| {
            by_kind(&serde_json::json!({"error": {"code": code, "message": "m"}})).code().to_string()
        };
        assert_eq!([code(401), code(429), code(1)], ["MODEL_AUTH", "MODEL_BUSY", "MODEL_UNAVAILABLE"]);
    }
}
