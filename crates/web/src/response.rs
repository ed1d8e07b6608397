//! HTTP responses in the forms that clients of this protocol expect.

use axum::body::Body;
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use axum::response::Response;
use serde::Serialize;

/// Plain text, followed by a newline.
pub(crate) fn text(status: StatusCode, content: &str) -> Response {
    typed(status, "text/plain; charset=utf-8", format!("{content}\n"))
}

/// One JSON object and a newline. No cache may store it, since it may hold the token.
pub(crate) fn json(status: StatusCode, value: &impl Serialize) -> Response {
    match serde_json::to_string(value) {
        Ok(mut body) => {
            body.push('\n');
            let mut response = typed(status, "application/json", body);
            response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
            response
        }
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}

/// A body of the media type `kind`.
pub(crate) fn typed(status: StatusCode, kind: &'static str, body: impl Into<Body>) -> Response {
    let mut response = empty(status);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    *response.body_mut() = body.into();
    response
}

/// A status without a body.
pub(crate) fn empty(status: StatusCode) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

/// The response to a request that changes something, if clients may not send.
pub(crate) fn read_only() -> Response {
    text(StatusCode::FORBIDDEN, "allow_from in [channels.supr] lets clients only read")
}

/// The response for a path that does not exist.
pub(crate) fn not_found() -> Response {
    text(StatusCode::NOT_FOUND, "404 page not found")
}
