//! The endpoints that return the token, make a new one, set up the channel, and let a browser sign in.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::{ORIGIN, SET_COOKIE};
use axum::http::request::Parts;
use axum::response::Response;
use serde::{Deserialize, Serialize};

use crate::auth::cookie::{self, Cookie, CookieHolder};
use crate::auth::forwarded::client_address;
use crate::auth::token_store::{StoreError, StoredToken};
use crate::body::json_object;
use crate::query::first;
use crate::response::{empty, json, text};
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
    let evict = match first(parts.uri.query().unwrap_or_default(), "evict").as_deref() {
        None | Some(b"0" | b"false") => false,
        Some(b"1" | b"true") => true,
        Some(_) => return text(StatusCode::BAD_REQUEST, "evict is 1, true, 0 or false"),
    };
    let rotated =
        on_blocking_thread(move || if evict { tokens.rotate_and_evict() } else { tokens.rotate() }).await;
    match rotated {
        Ok(stored) => {
            tracing::info!(evict, "a new token is valid; open connections stay open unless they are evicted");
            token_answer(&site, &parts, &stored, None)
        }
        Err(response) => response,
    }
}

pub(crate) async fn set_up(State(site): State<Arc<Site>>, parts: Parts) -> Response {
    let origin = parts.headers.get(ORIGIN).and_then(|origin| origin.to_str().ok()).map(str::to_owned);
    let origin = origin.filter(|origin| origin.contains("://") && origin.len() <= MAX_ORIGIN_BYTES);
    let tokens = Arc::clone(&site.deps.tokens);
    match on_blocking_thread(move || tokens.set_up(origin.as_deref())).await {
        Ok((stored, changed)) => {
            let was_disabled = site.enable();
            if was_disabled {
                tracing::info!("a client enabled the supr door, until this server ends");
            }
            token_answer(&site, &parts, &stored, Some(changed || was_disabled))
        }
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
    match json_object(&body) {
        Ok(Claim::Code(code)) => {
            if !site.deps.one_time_link.as_ref().is_some_and(|link| link.accepts(&code)) {
                let reason = "this link has been used or is too old: start parlor serve again, or enter what parlor token prints";
                return text(StatusCode::FORBIDDEN, reason);
            }
            tracing::info!("a browser used the one-time link");
        }
        Ok(Claim::Token(token)) if stored.token.is(token.as_bytes()) => {}
        Ok(Claim::Token(_)) => {
            site.refusals.write("token", client_address(&parts), parts.uri.path());
            return text(StatusCode::UNAUTHORIZED, "this is not the token: enter what parlor token prints");
        }
        Err(_) => return text(StatusCode::BAD_REQUEST, "the body is {\"code\":\"…\"} or {\"token\":\"…\"}"),
    }
    let mut response = token_answer(&site, &parts, &stored, None);
    give_cookie(&site, &parts, &stored, &mut response);
    response
}

/// Adds the cookie of a browser that has shown the token to the answer.
pub(crate) fn give_cookie(site: &Site, parts: &Parts, stored: &StoredToken, response: &mut Response) {
    let Some(holder) = CookieHolder::of(parts) else { return };
    let cookie = Cookie::new(&stored.token, stored.sign_outs, holder);
    site.deps.tokens.learn(cookie.reveal());
    if let Some(header) = cookie.header(&parts.headers, site.bound.port()) {
        response.headers_mut().insert(SET_COOKIE, header);
    }
}

/// Signs a browser out, or all of them. An empty body signs out the browser that sends it, which forgets its cookie.
pub(crate) async fn sign_out(State(site): State<Arc<Site>>, parts: Parts, body: Bytes) -> Response {
    #[derive(Default, Deserialize)]
    struct SignOut {
        #[serde(default)]
        all: bool,
    }
    let asked = if body.is_empty() { Ok(SignOut::default()) } else { json_object(&body) };
    let Ok(SignOut { all }) = asked else {
        return text(
            StatusCode::BAD_REQUEST,
            "the body is empty, or {\"all\":true} to sign out all browsers",
        );
    };
    if all {
        let tokens = Arc::clone(&site.deps.tokens);
        if let Err(response) = on_blocking_thread(move || tokens.sign_out()).await {
            return response;
        }
        tracing::info!("all browsers are signed out; the token stays valid, and open connections stay open");
    }
    let mut response = empty(StatusCode::NO_CONTENT);
    if let Some(header) = cookie::forget(&parts.headers, site.bound.port()) {
        response.headers_mut().insert(SET_COOKIE, header);
    }
    response
}

fn token_answer(site: &Site, parts: &Parts, stored: &StoredToken, changed: Option<bool>) -> Response {
    let token = stored.token.reveal();
    let ws_url = ws_url(parts, site.bound, &site.deps.settings.allow_hosts);
    json(StatusCode::OK, &TokenAnswer { token, ws_url, enabled: site.is_enabled(), changed })
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
