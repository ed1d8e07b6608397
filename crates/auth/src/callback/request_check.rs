//! Accepts only requests of a browser window that the provider redirected.
//!
//! A page of another site can also make a browser send requests to this machine: under a host name of its own that
//! resolves to loopback (DNS rebinding), or embedded as image, script or frame. Browsers tell both in headers. If the page
//! navigates a whole window to this server, the headers look like those of a redirect; then only the `state` parameter
//! protects the login.

use hyper::header::{HOST, ORIGIN};
use hyper::{Request, StatusCode};

/// The host names under which a browser reaches this server.
const LOOPBACK_NAMES: [&str; 3] = ["127.0.0.1", "localhost", "[::1]"];

/// The port that browsers omit in `Host`.
const HTTP_PORT: u16 = 80;

/// Values of `Sec-Fetch-Dest` for content that is embedded in another page.
const EMBEDDED: [&[u8]; 5] = [b"iframe", b"frame", b"fencedframe", b"embed", b"object"];

/// The status and text with which to refuse a request; `None` if it is acceptable.
pub(super) fn refusal<B>(request: &Request<B>, port: u16) -> Option<(StatusCode, &'static str)> {
    if !is_for_this_server(request, port) {
        return Some((StatusCode::MISDIRECTED_REQUEST, "This is not the address of the login."));
    }
    if is_embedded(request) {
        return Some((StatusCode::FORBIDDEN, "Open this in a window of its own."));
    }
    None
}

/// Whether the request names a loopback host and our port.
fn is_for_this_server<B>(request: &Request<B>, port: u16) -> bool {
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

/// Whether the request comes from within a page instead of a navigating window. `Origin` also detects older browsers:
/// no browser sends it when a window navigates with GET.
fn is_embedded<B>(request: &Request<B>) -> bool {
    let header = |name: &str| request.headers().get(name).map(|value| value.as_bytes());
    request.headers().contains_key(ORIGIN)
        || header("sec-fetch-mode").is_some_and(|mode| mode != b"navigate")
        || header("sec-fetch-dest").is_some_and(|dest| EMBEDDED.contains(&dest))
        || ["sec-purpose", "purpose"].iter().any(|name| header(name).is_some())
}
