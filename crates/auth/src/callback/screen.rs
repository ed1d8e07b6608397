//! Which requests may say anything about a login: those that a browser makes because its user was sent back.
//!
//! A page of another site can make a browser ask this machine too. It does so under a name of its own that leads here
//! (DNS rebinding), or as a part of itself: an image, a script, a frame. Browsers say both in headers. What cannot be
//! told from the real thing is a whole window that is sent here; the state stands between that and the login.

use hyper::header::{HOST, ORIGIN};
use hyper::{Request, StatusCode};

/// The names of this machine that a browser may have asked for.
const LOOPBACK_NAMES: [&str; 3] = ["127.0.0.1", "localhost", "[::1]"];

/// The port that browsers leave out.
const HTTP_PORT: u16 = 80;

/// Where a browser puts what it loads into another page.
const EMBEDDED: [&[u8]; 5] = [b"iframe", b"frame", b"fencedframe", b"embed", b"object"];

/// Why a request is turned away, if it is.
pub(super) fn refusal<B>(request: &Request<B>, port: u16) -> Option<(StatusCode, &'static str)> {
    if !is_for_us(request, port) {
        return Some((StatusCode::MISDIRECTED_REQUEST, "This is not the address of the login."));
    }
    if is_embedded(request) {
        return Some((StatusCode::FORBIDDEN, "Open this in a window of its own."));
    }
    None
}

/// Whether it was sent to a name of this machine, with our port.
fn is_for_us<B>(request: &Request<B>, port: u16) -> bool {
    let mut hosts = request.headers().get_all(HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else { return false };
    let target = request.uri().authority().map(|authority| authority.as_str());
    host.to_str().is_ok_and(|host| is_loopback(host, port))
        && target.is_none_or(|target| is_loopback(target, port))
}

fn is_loopback(authority: &str, port: u16) -> bool {
    let name = match authority.strip_suffix(&format!(":{port}")) {
        Some(name) => name,
        None if port == HTTP_PORT => authority,
        None => return false,
    };
    LOOPBACK_NAMES.iter().any(|known| known.eq_ignore_ascii_case(name))
}

/// Whether a page asks for it, and not a window that goes there. `Origin` tells of older browsers as well: none sends it
/// when a window goes somewhere by GET.
fn is_embedded<B>(request: &Request<B>) -> bool {
    let header = |name: &str| request.headers().get(name).map(|value| value.as_bytes());
    request.headers().contains_key(ORIGIN)
        || header("sec-fetch-mode").is_some_and(|mode| mode != b"navigate")
        || header("sec-fetch-dest").is_some_and(|place| EMBEDDED.contains(&place))
        || ["sec-purpose", "purpose"].iter().any(|name| header(name).is_some())
}
