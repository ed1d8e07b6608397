//! Whether a request may use the API: it has the token, it has the cookie of a browser that has signed in, or it comes
//! from the user who runs the server.

use axum::http::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use axum::http::request::Parts;
use parlor_transport::ConnectedPeer;

use super::cookie::{self, Cookie, CookieHolder};
use super::request_source::{ConnectionEnds, is_local, is_own_page_or_program};
use super::token::Token;
use crate::site::Site;

pub(crate) fn is_trusted(site: &Site, parts: &Parts, ends: ConnectionEnds) -> bool {
    if has_bearer_token(&parts.headers, &site.deps.tokens.now().token) {
        return true;
    }
    let Some(peer) = parts.extensions.get::<ConnectedPeer>() else { return false };
    has_cookie(site, parts, peer)
        || is_local(parts, ends) && site.deps.settings.allow_local.admits(|| peer.user())
}

/// Whether `Authorization` has the token.
pub(crate) fn has_bearer_token(headers: &HeaderMap, token: &Token) -> bool {
    let given = headers.get(AUTHORIZATION).map(HeaderValue::as_bytes).unwrap_or_default();
    match given.split_at_checked(b"Bearer ".len()) {
        Some((scheme, given)) => scheme.eq_ignore_ascii_case(b"Bearer ") && token.is(given),
        None => false,
    }
}

fn has_cookie(site: &Site, parts: &Parts, peer: &ConnectedPeer) -> bool {
    let (headers, port) = (&parts.headers, site.bound.port());
    if !cookie::is_given(headers, port) || !is_own_page_or_program(parts) {
        return false;
    }
    let expected = Cookie::new(&site.deps.tokens.now().token, CookieHolder::of(peer));
    let has_it = expected.is_in(headers, port);
    if has_it {
        // An earlier process may have given out this cookie, so the redaction may not know it yet.
        site.deps.tokens.learn(expected.reveal());
    }
    has_it
}
