//! The endpoints that return the token, make a new one, set up the channel, and let a browser sign in.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::{ORIGIN, SET_COOKIE};
use axum::http::request::Parts;
use axum::response::Response;
use parlor_transport::ConnectedPeer;
use serde::{Deserialize, Serialize};

use crate::auth::cookie::{Cookie, CookieHolder};
use crate::auth::request_source::ConnectionEnds;
use crate::auth::token_store::{StoreError, StoredToken};
use crate::response::{json, text};
use crate::site::Site;
use crate::socket::ws_url::ws_url;

/// The longest `Origin` that the setup stores.
const MAX_ORIGIN_BYTES: usize = 256;

#[derive(Serialize)]
struct TokenAnswer<'a> {
    token: &'a str,
    ws_url: String,
    enabled: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    changed: Option<bool>,
}

pub(crate) async fn token(State(site): State<Arc<Site>>, parts: Parts) -> Response {
    token_answer(&site, &parts, &site.deps.tokens.now(), None)
}

pub(crate) async fn rotate(State(site): State<Arc<Site>>, parts: Parts) -> Response {
    let tokens = Arc::clone(&site.deps.tokens);
    match on_blocking_thread(move || tokens.rotate()).await {
        Ok(stored) => {
            tracing::info!("a new token is valid; open connections stay open");
            token_answer(&site, &parts, &stored, None)
        }
        Err(response) => response,
    }
}

pub(crate) async fn set_up(State(site): State<Arc<Site>>, parts: Parts) -> Response {
    if !site.deps.settings.is_enabled {
        let reason = "the channel is switched off: set enabled = true in [channels.supr] of parlor.toml and start again";
        return text(StatusCode::CONFLICT, reason);
    }
    let origin = parts.headers.get(ORIGIN).and_then(|origin| origin.to_str().ok()).map(str::to_owned);
    let origin = origin.filter(|origin| origin.contains("://") && origin.len() <= MAX_ORIGIN_BYTES);
    let tokens = Arc::clone(&site.deps.tokens);
    match on_blocking_thread(move || tokens.set_up(origin.as_deref())).await {
        Ok((stored, changed)) => token_answer(&site, &parts, &stored, Some(changed)),
        Err(response) => response,
    }
}

/// Signs a browser in that has the code of the one-time link or the token: the answer has the token, and the cookie
/// that the browser shows from then on.
pub(crate) async fn claim(State(site): State<Arc<Site>>, parts: Parts, body: Bytes) -> Response {
    #[derive(Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Claim {
        Code(String),
        Token(String),
    }
    let stored = site.deps.tokens.now();
    match serde_json::from_slice(&body) {
        Ok(Claim::Code(code)) => {
            if !site.deps.one_time_link.as_ref().is_some_and(|link| link.accepts(&code)) {
                let reason = "this link has been used or is too old: start parlor serve again, or enter what parlor token prints";
                return text(StatusCode::FORBIDDEN, reason);
            }
            tracing::info!("a browser used the one-time link");
        }
        Ok(Claim::Token(token)) if stored.token.is(token.as_bytes()) => {}
        Ok(Claim::Token(_)) => {
            let peer = parts.extensions.get::<ConnectionEnds>().map(|ends| ends.peer);
            site.refusals.write("token", peer, parts.uri.path());
            return text(StatusCode::UNAUTHORIZED, "this is not the token: enter what parlor token prints");
        }
        Err(_) => return text(StatusCode::BAD_REQUEST, "the body is {\"code\":\"…\"} or {\"token\":\"…\"}"),
    }
    let mut response = token_answer(&site, &parts, &stored, None);
    if let Some(peer) = parts.extensions.get::<ConnectedPeer>() {
        let cookie = Cookie::new(&stored.token, CookieHolder::of(peer));
        site.deps.tokens.learn(cookie.reveal());
        if let Some(header) = cookie.header(&parts.headers, site.bound.port()) {
            response.headers_mut().insert(SET_COOKIE, header);
        }
    }
    response
}

fn token_answer(site: &Site, parts: &Parts, stored: &StoredToken, changed: Option<bool>) -> Response {
    let token = stored.token.reveal();
    let ws_url = ws_url(parts, site.bound, &site.deps.settings.allow_hosts);
    json(StatusCode::OK, &TokenAnswer { token, ws_url, enabled: site.deps.settings.is_enabled, changed })
}

/// Runs `work`, which waits for the disk, on a thread of its own.
async fn on_blocking_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, Response> {
    let failed = |reason: String| {
        tracing::warn!(reason, "the token could not be changed");
        text(StatusCode::INTERNAL_SERVER_ERROR, &reason)
    };
    match tokio::task::spawn_blocking(work).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(error @ StoreError::Configured)) => Err(text(StatusCode::CONFLICT, &error.to_string())),
        Ok(Err(error)) => Err(failed(error.to_string())),
        Err(error) => Err(failed(error.to_string())),
    }
}
