//! Whether a request may use the API: it has the token, it has the cookie of a browser that has signed in, or it comes
//! from the user who runs the server.

use axum::http::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use axum::http::request::Parts;
use parlor_transport::ConnectedPeer;

use super::cookie::{self, Cookie, CookieHolder};
use super::request_source::{ConnectionEnds, is_local, is_own_page, is_own_page_or_program};
use super::token::Token;
use super::token_store::StoredToken;
use crate::site::Site;

pub(crate) fn is_trusted(site: &Site, parts: &Parts, ends: ConnectionEnds) -> bool {
    let stored = site.deps.tokens.now();
    if has_bearer_token(&parts.headers, &stored.token) {
        return true;
    }
    let Some(peer) = parts.extensions.get::<ConnectedPeer>() else { return false };
    has_cookie(site, parts, &stored)
        || is_local(parts, ends, &stored.open_origins)
            && site.deps.settings.allow_local.admits(|| peer.user())
}

/// Whether a page of this server itself opens a socket.
pub(crate) fn is_own_origin(site: &Site, parts: &Parts) -> bool {
    let ends = parts.extensions.get::<ConnectionEnds>();
    ends.is_some_and(|ends| is_own_page(parts, *ends, &site.deps.settings.allow_hosts))
}

/// Whether `Authorization` has the token.
pub(crate) fn has_bearer_token(headers: &HeaderMap, token: &Token) -> bool {
    let given = headers.get(AUTHORIZATION).map(HeaderValue::as_bytes).unwrap_or_default();
    match given.split_at_checked(b"Bearer ".len()) {
        Some((scheme, given)) => scheme.eq_ignore_ascii_case(b"Bearer ") && token.is(given),
        None => false,
    }
}

fn has_cookie(site: &Site, parts: &Parts, stored: &StoredToken) -> bool {
    let (headers, port) = (&parts.headers, site.bound.port());
    if !cookie::is_given(headers, port) || !is_own_page_or_program(parts, &stored.open_origins) {
        return false;
    }
    let Some(holder) = CookieHolder::of(parts) else { return false };
    let expected = Cookie::new(&stored.token, stored.sign_outs, holder);
    let has_it = expected.is_in(headers, port);
    if has_it {
        // An earlier process may have given out this cookie, so the redaction may not know it yet.
        site.deps.tokens.learn(expected.reveal());
    }
    has_it
}
