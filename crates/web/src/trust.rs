//! Whether a request may read and change what is here: it brings the token, the cookie of somebody who has shown it, or
//! it comes from the user whose server this is.

use axum::http::request::Parts;

use crate::cookie::{self, Cookie, CookieHolder};
use crate::guard::{ConnectionEnds, is_near, is_of_our_page};
use crate::handshake::bears;
use crate::site::SiteState;
use parlor_transport::Peer;

pub(crate) fn is_trusted(site: &SiteState, parts: &Parts, ends: ConnectionEnds) -> bool {
    if bears(&parts.headers, &site.web.tokens.now().token) {
        return true;
    }
    let Some(peer) = parts.extensions.get::<Peer>() else { return false };
    has_cookie(site, parts, peer)
        || is_near(parts, ends) && site.web.settings.allow_local.admits(|| peer.user())
}

fn has_cookie(site: &SiteState, parts: &Parts, peer: &Peer) -> bool {
    let (headers, port) = (&parts.headers, site.bound.port());
    if !cookie::is_given(headers, port) || !is_of_our_page(parts) {
        return false;
    }
    let right = Cookie::new(&site.web.tokens.now().token, CookieHolder::of(peer));
    let has_it = right.is_in(headers, port);
    if has_it {
        // A server that was started anew has not given it out itself.
        site.web.tokens.learn(right.reveal());
    }
    has_it
}
