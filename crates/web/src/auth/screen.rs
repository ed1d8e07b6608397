//! The checks that every request has to pass before its handler runs, and the security headers of every response.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{CONNECTION, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::Response;

use super::cors;
use super::forwarded::{Forwarded, client_address, client_group};
use super::request_source::{ConnectionEnds, direct_host, host, is_this_server};
use super::trust::{has_bearer_token, is_trusted};
use crate::body::{BodyError, MAX_BODY_BYTES, read};
use crate::mcp::MCP_PATH;
use crate::metrics::ReasonLabel;
use crate::response::text;
use crate::site::Site;
use crate::waiting_heads::HeadWait;

/// What browsers must not do with our responses.
const SECURITY: [(&str, &str); 7] = [
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; \
         font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("permissions-policy", "camera=(), geolocation=(), microphone=()"),
];

/// Headers that decide whether a request is allowed. If there are two of a kind, a proxy may have checked the other one.
const SINGLE_HEADERS: [&str; 3] = ["host", "origin", "sec-fetch-site"];

/// Middleware around all handlers: refuses requests that fail a check, and adds the security headers to responses.
pub(crate) async fn screen(State(site): State<Arc<Site>>, request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    let ends = parts.extensions.get::<ConnectionEnds>().copied();
    let trusted = &site.deps.settings.trusted_proxies;
    if let Some(forwarded) = ends.and_then(|ends| Forwarded::read(&parts.headers, ends.peer, trusted)) {
        parts.extensions.insert(forwarded);
    }
    let peer = client_address(&parts);
    let uri = parts.uri.clone();
    let stored = site.deps.tokens.now();
    let origin = cors::open_origin(&parts.headers, &stored.open_origins);
    let is_preflight = cors::is_preflight(&parts, &stored.open_origins);
    let mut response = match check(&site, Request::from_parts(parts, body)).await {
        Ok(_) if is_preflight => cors::preflight_answer(),
        Ok(request) => {
            if let Some(head_wait) = request.extensions().get::<Arc<HeadWait>>() {
                head_wait.on_request();
            }
            next.run(request).await
        }
        Err(rejection) => {
            let reason = rejection.reason();
            site.deps.metrics.requests_refused.get_or_create(&ReasonLabel { reason }).inc();
            site.refusals.write(reason, peer, uri.path());
            rejection.response()
        }
    };
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        add_security_headers(response.headers_mut());
        if !stored.open_origins.is_empty() {
            cors::allow_reading(response.headers_mut(), origin);
        }
    }
    response
}

/// Why a request is refused.
enum Rejection {
    TooOften,
    NoHost,
    DoubleHeader(&'static str),
    ForeignHost(String),
    NoToken,
    LargeBody,
    BrokenBody,
    SlowBody,
}

impl Rejection {
    fn reason(&self) -> &'static str {
        match self {
            Self::TooOften => "rate",
            Self::NoHost | Self::ForeignHost(_) => "host",
            Self::DoubleHeader(_) => "header",
            Self::NoToken => "token",
            Self::LargeBody | Self::BrokenBody | Self::SlowBody => "body",
        }
    }

    fn response(&self) -> Response {
        match self {
            Self::TooOften => with_header(
                text(StatusCode::TOO_MANY_REQUESTS, "too many requests; try again in a moment"),
                RETRY_AFTER,
                "1",
            ),
            Self::NoHost => text(StatusCode::BAD_REQUEST, "the Host header is missing"),
            Self::DoubleHeader(name) => {
                text(StatusCode::BAD_REQUEST, &format!("there is more than one {name} header"))
            }
            Self::ForeignHost(host) => {
                let reason = format!(
                    "this server is not called {host:?}; if it is, add the name to allow_hosts in [channels.supr] of parlor.toml"
                );
                text(StatusCode::FORBIDDEN, &reason)
            }
            Self::NoToken => with_header(
                text(
                    StatusCode::UNAUTHORIZED,
                    "a token is needed from here: send Authorization: Bearer TOKEN (parlor token prints it), or sign in at /login",
                ),
                WWW_AUTHENTICATE,
                "Bearer",
            ),
            Self::LargeBody => with_header(
                text(StatusCode::PAYLOAD_TOO_LARGE, &format!("a body has at most {MAX_BODY_BYTES} bytes")),
                CONNECTION,
                "close",
            ),
            Self::BrokenBody => text(StatusCode::BAD_REQUEST, "the body has broken off"),
            Self::SlowBody => text(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time"),
        }
    }
}

async fn check(site: &Site, request: Request) -> Result<Request, Rejection> {
    let (parts, body) = request.into_parts();
    let Some(ends) = parts.extensions.get::<ConnectionEnds>().copied() else { return Err(Rejection::NoHost) };
    let Some(group) = client_group(&parts) else { return Err(Rejection::NoHost) };
    let path = parts.uri.path();
    let rate = if is_handshake(path) { &site.handshakes } else { &site.requests };
    if !rate.admits(group) {
        return Err(Rejection::TooOften);
    }
    if let Some(name) =
        SINGLE_HEADERS.into_iter().find(|name| parts.headers.get_all(*name).iter().count() > 1)
    {
        return Err(Rejection::DoubleHeader(name));
    }
    // A handshake has checks and an order of its own (`socket/handshake.rs`), and always needs the token.
    if is_handshake(path) {
        return Ok(Request::from_parts(parts, body));
    }
    let Some(host) = host(&parts) else { return Err(Rejection::NoHost) };
    // Both the host that a trusted proxy names and that of the request itself: a page whose name was made to resolve to this
    // machine writes the first header itself, but not the second.
    for host in [Some(host), direct_host(&parts)].into_iter().flatten() {
        if !is_this_server(&host, ends, &site.deps.settings.allow_hosts) {
            return Err(Rejection::ForeignHost(host));
        }
    }
    let is_public = matches!(path, "/api/openapi.json" | "/api/supr/claim");
    // Browsers ask without a cookie or a token whether they may send these.
    let is_preflight = cors::is_preflight(&parts, &site.deps.tokens.now().open_origins);
    let needs_token = path == "/metrics" || path.starts_with("/api/") && !is_public && !is_preflight;
    if needs_token && !is_trusted(site, &parts, ends) {
        return Err(Rejection::NoToken);
    }
    // Programs of the machine get in without a token elsewhere; here they would get tools.
    if path == MCP_PATH && !is_preflight && !has_bearer_token(&parts.headers, &site.deps.tokens.now().token) {
        return Err(Rejection::NoToken);
    }
    // The door has a larger limit for bodies.
    if path == MCP_PATH {
        return Ok(Request::from_parts(parts, body));
    }
    if matches!(parts.method, Method::GET | Method::HEAD) {
        return Ok(Request::from_parts(parts, Body::empty()));
    }
    let wait = site.deps.settings.limits.body_wait;
    match tokio::time::timeout(wait, read(&parts.headers, body)).await {
        Ok(Ok(body)) => Ok(Request::from_parts(parts, Body::from(body))),
        Ok(Err(BodyError::TooLarge(rest))) => {
            if let Some(rest) = rest {
                site.tasks.spawn(rest.drain());
            }
            Err(Rejection::LargeBody)
        }
        Ok(Err(BodyError::Broken)) => Err(Rejection::BrokenBody),
        Err(_) => Err(Rejection::SlowBody),
    }
}

fn is_handshake(path: &str) -> bool {
    let is_terminal = || {
        let id = path.strip_prefix("/api/processes/").and_then(|rest| rest.strip_suffix("/ws"));
        id.is_some_and(|id| !id.is_empty() && !id.contains('/'))
    };
    matches!(path, "/acp" | "/supr/ws" | "/supr/ws/" | "/pico/ws" | "/pico/ws/") || is_terminal()
}

fn add_security_headers(headers: &mut HeaderMap) {
    for (name, value) in SECURITY {
        // A handler may have set a stricter value.
        headers.entry(HeaderName::from_static(name)).or_insert(HeaderValue::from_static(value));
    }
}

fn with_header(mut response: Response, name: HeaderName, value: &'static str) -> Response {
    response.headers_mut().insert(name, HeaderValue::from_static(value));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_socket_of_a_terminal_is_a_handshake_of_the_api() {
        assert!(is_handshake("/supr/ws") && is_handshake("/api/processes/1-2/ws"));
        for path in ["/api/processes/ws", "/api/processes//ws", "/api/processes/a/b/ws", "/api/processes/ws/"]
        {
            assert!(!is_handshake(path), "{path}");
        }
    }
}
