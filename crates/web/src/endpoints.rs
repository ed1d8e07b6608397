//! The endpoints that hand out the token, make another one and set the channel up.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::{ORIGIN, SET_COOKIE};
use axum::http::request::Parts;
use axum::response::Response;
use serde::{Deserialize, Serialize};

use crate::answer::{json, text};
use crate::cookie::{Cookie, CookieHolder};
use crate::guard::ConnectionEnds;
use crate::site::{Shared, SiteState};
use crate::store::{StoreError, StoredToken};
use crate::ws_url::ws_url;
use parlor_transport::Peer;

/// The longest `Origin` that is stored.
const MAX_ORIGIN_BYTES: usize = 256;

#[derive(Serialize)]
struct Answer<'a> {
    token: &'a str,
    ws_url: String,
    enabled: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    changed: Option<bool>,
}

pub(crate) async fn token(State(site): State<Shared>, parts: Parts) -> Response {
    answer(&site, &parts, &site.web.tokens.now(), None)
}

pub(crate) async fn rotate(State(site): State<Shared>, parts: Parts) -> Response {
    let tokens = Arc::clone(&site.web.tokens);
    match at_the_disk(move || tokens.rotate()).await {
        Ok(kept) => {
            tracing::info!("a new token holds; open connections stay");
            answer(&site, &parts, &kept, None)
        }
        Err(response) => response,
    }
}

pub(crate) async fn set_up(State(site): State<Shared>, parts: Parts) -> Response {
    if !site.web.settings.is_enabled {
        let what = "the channel is switched off: set enabled = true in [channels.supr] of parlor.toml and start again";
        return text(StatusCode::CONFLICT, what);
    }
    let origin = parts.headers.get(ORIGIN).and_then(|origin| origin.to_str().ok()).map(str::to_owned);
    let origin = origin.filter(|origin| origin.contains("://") && origin.len() <= MAX_ORIGIN_BYTES);
    let tokens = Arc::clone(&site.web.tokens);
    match at_the_disk(move || tokens.set_up(origin.as_deref())).await {
        Ok((kept, changed)) => answer(&site, &parts, &kept, Some(changed)),
        Err(response) => response,
    }
}

/// Tells the token to a browser that has the code of the one-time link or knows the token already, and gives it the
/// cookie by which it is known from then on.
pub(crate) async fn claim(State(site): State<Shared>, parts: Parts, body: Bytes) -> Response {
    #[derive(Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Claim {
        Code(String),
        Token(String),
    }
    let kept = site.web.tokens.now();
    match serde_json::from_slice(&body) {
        Ok(Claim::Code(code)) => {
            if !site.web.invitation.as_ref().is_some_and(|invitation| invitation.accepts(&code)) {
                let what = "this link has been used or is too old: start parlor serve again, or enter what parlor token prints";
                return text(StatusCode::FORBIDDEN, what);
            }
            tracing::info!("somebody came by the link");
        }
        Ok(Claim::Token(token)) if kept.token.is(token.as_bytes()) => {}
        Ok(Claim::Token(_)) => {
            let peer = parts.extensions.get::<ConnectionEnds>().map(|ends| ends.peer);
            site.refusals.tell("token", peer, parts.uri.path());
            return text(StatusCode::UNAUTHORIZED, "this is not the token: enter what parlor token prints");
        }
        Err(_) => return text(StatusCode::BAD_REQUEST, "the body is {\"code\":\"…\"} or {\"token\":\"…\"}"),
    }
    let mut response = answer(&site, &parts, &kept, None);
    if let Some(peer) = parts.extensions.get::<Peer>() {
        let cookie = Cookie::new(&kept.token, CookieHolder::of(peer));
        site.web.tokens.learn(cookie.reveal());
        if let Some(header) = cookie.header(&parts.headers, site.bound.port()) {
            response.headers_mut().insert(SET_COOKIE, header);
        }
    }
    response
}

fn answer(site: &SiteState, parts: &Parts, kept: &StoredToken, changed: Option<bool>) -> Response {
    let token = kept.token.reveal();
    let ws_url = ws_url(parts, site.bound, &site.web.settings.allow_hosts);
    json(StatusCode::OK, &Answer { token, ws_url, enabled: site.web.settings.is_enabled, changed })
}

/// Does what may wait for a disk where nobody else waits for it.
async fn at_the_disk<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, Response> {
    let trouble = |why: String| {
        tracing::warn!(why, "the token cannot be changed");
        text(StatusCode::INTERNAL_SERVER_ERROR, &why)
    };
    match tokio::task::spawn_blocking(work).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(error @ StoreError::Configured)) => Err(text(StatusCode::CONFLICT, &error.to_string())),
        Ok(Err(error)) => Err(trouble(error.to_string())),
        Err(error) => Err(trouble(error.to_string())),
    }
}
