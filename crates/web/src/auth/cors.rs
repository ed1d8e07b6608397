//! CORS: lets the pages of the origins that the settings name read the answers of the server.

use axum::http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_METHOD, HeaderMap,
    HeaderValue, ORIGIN, VARY,
};
use axum::http::request::Parts;
use axum::http::{Method, StatusCode};
use axum::response::Response;

use super::request_source::is_of_origin;
use crate::response::empty;

/// What pages of open origins may send: the methods of the API, a token, JSON, and the position of an event
/// stream.
const METHODS: &str = "GET, POST, PUT, PATCH, DELETE";
const HEADERS: &str = "authorization, content-type, last-event-id";

/// How long a browser remembers that it may send such a request, in seconds.
const PREFLIGHT_LIFE: &str = "600";

/// Whether a browser asks if a page of one of these origins may send a request.
pub(crate) fn is_preflight(parts: &Parts, open: &[String]) -> bool {
    parts.method == Method::OPTIONS
        && parts.headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD)
        && is_of_origin(&parts.headers, open)
}

/// The answer to such a question. [`allow_reading`] adds the origin to it.
pub(crate) fn preflight_answer() -> Response {
    let mut response = empty(StatusCode::NO_CONTENT);
    let headers = response.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(METHODS));
    headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static(HEADERS));
    headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static(PREFLIGHT_LIFE));
    response
}

/// The origin of a request, if its pages may read the answer.
pub(crate) fn open_origin(headers: &HeaderMap, open: &[String]) -> Option<HeaderValue> {
    headers.get(ORIGIN).filter(|_| is_of_origin(headers, open)).cloned()
}

/// Lets the pages of `origin` read an answer. Tells caches that the answer depends on the origin, also if it is not open.
pub(crate) fn allow_reading(headers: &mut HeaderMap, origin: Option<HeaderValue>) {
    headers.append(VARY, HeaderValue::from_static("origin"));
    if let Some(origin) = origin {
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true"));
    }
}

/// Whether a text is an origin as browsers send it for pages: `https://chat.example` or `http://127.0.0.1:5173`.
pub fn is_origin(text: &str) -> bool {
    let has_host = |rest: &str| !rest.is_empty() && !rest.contains(['/', '?', '#', '@']);
    let is_lower = !text.bytes().any(|byte| byte.is_ascii_uppercase());
    is_lower && text.split_once("://").is_some_and(|(_, rest)| has_host(rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routes::ROUTES;

    #[test]
    fn pages_of_open_origins_may_use_every_route() {
        let allowed: Vec<&str> = METHODS.split(", ").collect();
        for (method, path) in ROUTES {
            assert!(allowed.contains(method), "{method} {path}");
        }
    }

    #[test]
    fn an_origin_has_a_scheme_and_a_host_and_no_path() {
        for origin in ["https://chat.example", "http://localhost:5173", "tauri://localhost"] {
            assert!(is_origin(origin), "{origin}");
        }
        for other in
            ["chat.example", "https://", "https://chat.example/", "https://Chat.example", "*", "null", ""]
        {
            assert!(!is_origin(other), "{other}");
        }
    }
}
