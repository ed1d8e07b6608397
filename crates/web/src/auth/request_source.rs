//! Where a request comes from: whether its `Host` names this server, whether a proxy has passed it on, and whether a page
//! of another site has sent it. [`forwarded`](super::forwarded) has what a trusted proxy says about the original request.
//!
//! A malicious page can make a browser send requests to this machine. It cannot forge `Host` or `Origin`, so these two
//! headers distinguish it from our own page and from programs.

use std::net::IpAddr;

use axum::http::header::{HOST, HeaderMap, HeaderValue, ORIGIN};
use axum::http::request::Parts;

use super::forwarded::Forwarded;

/// The prefix of headers in which proxies describe the original request.
const FORWARDED_BY: &str = "x-forwarded";

/// The one of these headers that does not show a proxy: clients of the protocol send it to get a `wss` address.
const FORWARDED_PROTO: &str = "x-forwarded-proto";

/// The other headers that proxies add.
const PROXY_HEADERS: [&str; 8] = [
    "forwarded",
    "via",
    "x-real-ip",
    "x-client-ip",
    "x-cluster-client-ip",
    "true-client-ip",
    "cf-connecting-ip",
    "fastly-client-ip",
];

/// The scheme of our page without a proxy: the server speaks no TLS.
const DIRECT_SCHEMES: &[&str] = &["http"];

/// The schemes of our page behind a proxy, which may speak TLS.
const PROXIED_SCHEMES: &[&str] = &["http", "https"];

/// The addresses of the two ends of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ConnectionEnds {
    pub(crate) peer: IpAddr,
    pub(crate) local: IpAddr,
}

/// The host that a request names, without its port and in lower case.
pub(crate) fn host(parts: &Parts) -> Option<String> {
    authority(parts).map(|authority| without_port(&authority).to_ascii_lowercase())
}

/// The host that the request itself names, whatever a trusted proxy says.
pub(crate) fn direct_host(parts: &Parts) -> Option<String> {
    direct_authority(parts).map(|authority| without_port(authority).to_ascii_lowercase())
}

/// Whether `host` names this server: this machine, the address that the client has connected to, or a name that the
/// settings list.
pub(crate) fn is_this_server(host: &str, ends: ConnectionEnds, allowed: &[String]) -> bool {
    is_loopback(host) || ip(host) == Some(ends.local.to_canonical()) || is_listed(host, allowed)
}

/// Whether the settings list this host name.
pub(crate) fn is_listed(host: &str, allowed: &[String]) -> bool {
    allowed.iter().any(|name| name == "*" || name.eq_ignore_ascii_case(host))
}

/// Whether a request comes from this machine and not through a proxy, and if a page has sent it, from our own page or from
/// one of the `open` origins. Any user of the machine may have sent it.
pub(crate) fn is_local(parts: &Parts, ends: ConnectionEnds, open: &[String]) -> bool {
    let host = host(parts).unwrap_or_default();
    let is_local = ends.peer.to_canonical().is_loopback() && is_this_server(&host, ends, &[]);
    // The client of a proxy is not the peer of the connection.
    let is_direct = is_local && !is_proxied(&parts.headers);
    is_direct && (is_of_origin(&parts.headers, open) || !is_cross_site(parts, DIRECT_SCHEMES))
}

/// Whether a page of this server itself has sent a request: its `Origin` is the host that the request names, and that host
/// is this server.
pub(crate) fn is_own_page(parts: &Parts, ends: ConnectionEnds, allowed: &[String]) -> bool {
    parts.headers.contains_key(ORIGIN)
        && !is_cross_site(parts, PROXIED_SCHEMES)
        && host(parts).is_some_and(|host| is_this_server(&host, ends, allowed))
}

/// Whether a page of one of these origins has sent a request. Browsers send this header themselves, and no page can change it.
pub(crate) fn is_of_origin(headers: &HeaderMap, origins: &[String]) -> bool {
    let given = headers.get(ORIGIN).map(HeaderValue::as_bytes);
    given.is_some_and(|given| origins.iter().any(|origin| origin.as_bytes() == given))
}

/// Whether a request comes from our own page, from a page of one of the `open` origins, or from a program. If a page of
/// another site sends it, its cookie does not count.
pub(crate) fn is_own_page_or_program(parts: &Parts, open: &[String]) -> bool {
    is_of_origin(&parts.headers, open) || !is_cross_site(parts, PROXIED_SCHEMES)
}

/// Whether a proxy has passed on a request.
pub(crate) fn is_proxied(headers: &HeaderMap) -> bool {
    let is_of_proxy = |name: &str| {
        name.starts_with(FORWARDED_BY) && name != FORWARDED_PROTO || PROXY_HEADERS.contains(&name)
    };
    headers.keys().any(|name| is_of_proxy(name.as_str()))
}

/// Whether a page of another site has sent a request. Our own page is loaded with one of `schemes`.
fn is_cross_site(parts: &Parts, schemes: &[&str]) -> bool {
    let site = header_text(&parts.headers, "sec-fetch-site");
    if site.is_some_and(|site| site != "same-origin" && site != "none") {
        return true;
    }
    match parts.headers.get(ORIGIN).map(HeaderValue::to_str) {
        None => false,
        Some(Err(_)) => true,
        Some(Ok(origin)) => {
            let (scheme, from) = origin.split_once("://").unwrap_or_default();
            !(schemes.contains(&scheme) && authority(parts).is_some_and(|to| to.eq_ignore_ascii_case(from)))
        }
    }
}

/// The host and port that a request names: to a trusted proxy, if there was one and it says so. The request line overrides
/// the `Host` header.
pub(crate) fn authority(parts: &Parts) -> Option<String> {
    if let Some(host) = parts.extensions.get::<Forwarded>().and_then(|forwarded| forwarded.host.clone()) {
        return Some(host);
    }
    direct_authority(parts).map(str::to_owned)
}

/// The host and port that the request itself names.
fn direct_authority(parts: &Parts) -> Option<&str> {
    match parts.uri.authority() {
        Some(authority) => Some(authority.as_str()),
        None => header_text(&parts.headers, HOST.as_str()),
    }
}

/// A header that is text and not empty.
pub(crate) fn header_text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok().filter(|value| !value.is_empty())
}

/// Cuts the port off: `[::1]:80` becomes `[::1]`, `a:80` becomes `a`.
pub(crate) fn without_port(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        Some(_) | None => authority,
    }
}

fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.ends_with(".localhost") || ip(host).is_some_and(|ip| ip.is_loopback())
}

fn ip(host: &str) -> Option<IpAddr> {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    bare.parse::<IpAddr>().ok().map(|ip| ip.to_canonical())
}

#[cfg(test)]
mod tests {
    use axum::http::Request;

    use super::*;

    const LOCAL: ConnectionEnds = ConnectionEnds {
        peer: IpAddr::V4(std::net::Ipv4Addr::LOCALHOST),
        local: IpAddr::V4(std::net::Ipv4Addr::LOCALHOST),
    };

    fn remote() -> ConnectionEnds {
        ConnectionEnds { peer: "192.0.2.9".parse().unwrap(), local: "192.0.2.1".parse().unwrap() }
    }

    fn parts(headers: &[(&str, &str)]) -> Parts {
        let mut request = Request::builder().uri("/api/supr/token");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn the_server_is_named_by_its_addresses_and_its_listed_names() {
        for host in
            ["localhost", "a.localhost", "127.0.0.1", "127.8.8.8", "[::1]", "192.0.2.1", "[::ffff:192.0.2.1]"]
        {
            assert!(is_this_server(host, remote(), &[]), "{host}");
        }
        for host in ["evil.example", "localhost.evil.example", "192.0.2.2", "", "notlocalhost", "2130706433"]
        {
            assert!(!is_this_server(host, remote(), &[]), "{host}");
        }
        let listed = ["Chat.example".to_owned()];
        assert!(
            is_this_server("chat.example", remote(), &listed)
                && !is_this_server("x.chat.example", remote(), &listed)
        );
        assert!(is_this_server("anything", remote(), &["*".to_owned()]));
    }

    #[test]
    fn the_host_is_read_without_its_port() {
        for (written, read) in
            [("LocalHost:80", "localhost"), ("[::1]:80", "[::1]"), ("[::1]", "[::1]"), ("a", "a")]
        {
            assert_eq!(host(&parts(&[("host", written)])).as_deref(), Some(read));
        }
        assert_eq!(host(&parts(&[])), None);
        let absolute = Request::builder().uri("http://evil.example/").header("host", "localhost");
        assert_eq!(host(&absolute.body(()).unwrap().into_parts().0).as_deref(), Some("evil.example"));
    }

    #[test]
    fn requests_of_proxies_other_sites_and_other_machines_are_not_local() {
        let local = |ends, headers: &[_]| is_local(&parts(headers), ends, &[]);
        let host = ("host", "localhost:18790");
        assert!(local(LOCAL, &[host]));
        assert!(local(LOCAL, &[host, ("origin", "http://localhost:18790")]));
        assert!(local(LOCAL, &[host, ("sec-fetch-site", "same-origin")]));
        assert!(local(LOCAL, &[host, ("x-forwarded-proto", "https")]));
        for foreign in [
            ("origin", "http://evil.example"),
            ("origin", "http://localhost:3000"),
            ("origin", "https://localhost:18790"),
            ("origin", "localhost:18790"),
            ("origin", "null"),
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-site", "same-site"),
            ("x-forwarded-for", "192.0.2.9"),
            ("x-forwarded-host", "localhost:18790"),
            ("X-Forwarded-Whatever", ""),
            ("forwarded", "for=192.0.2.9"),
            ("via", "1.1 proxy"),
            ("x-real-ip", "127.0.0.1"),
            ("x-client-ip", "127.0.0.1"),
            ("x-cluster-client-ip", "127.0.0.1"),
            ("true-client-ip", "127.0.0.1"),
            ("cf-connecting-ip", "127.0.0.1"),
            ("fastly-client-ip", "127.0.0.1"),
        ] {
            assert!(!local(LOCAL, &[host, foreign]), "{foreign:?}");
        }
        assert!(!local(LOCAL, &[("host", "evil.example")]) && !local(LOCAL, &[]));
        assert!(!local(remote(), &[("host", "192.0.2.1")]) && !local(remote(), &[host]));
    }

    #[test]
    fn requests_of_our_page_and_of_programs_are_told_from_those_of_other_sites() {
        let ours = |headers: &[_]| is_own_page_or_program(&parts(headers), &[]);
        let host = ("host", "chat.example");
        assert!(ours(&[host]) && ours(&[host, ("x-forwarded-for", "192.0.2.9")]));
        assert!(ours(&[host, ("origin", "http://chat.example")]));
        assert!(ours(&[host, ("origin", "https://chat.example"), ("sec-fetch-site", "same-origin")]));
        for foreign in [
            ("origin", "http://evil.example"),
            ("origin", "http://chat.example:8080"),
            ("origin", "null"),
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-site", "same-site"),
        ] {
            assert!(!ours(&[host, foreign]), "{foreign:?}");
        }
    }

    #[test]
    fn a_page_of_an_open_origin_is_like_our_own() {
        let open = ["https://app.example".to_owned()];
        let page =
            |site| [("host", "localhost:1"), ("origin", "https://app.example"), ("sec-fetch-site", site)];
        for site in ["cross-site", "same-site"] {
            assert!(is_local(&parts(&page(site)), LOCAL, &open), "{site}");
            assert!(is_own_page_or_program(&parts(&page(site)), &open), "{site}");
            assert!(!is_local(&parts(&page(site)), remote(), &open), "{site}");
        }
        let proxied = [("host", "localhost:1"), ("origin", "https://app.example"), ("via", "1.1 p")];
        assert!(!is_local(&parts(&proxied), LOCAL, &open));
        for other in ["http://app.example", "https://app.example:8443", "https://APP.example", "null"] {
            let request = [("host", "localhost:1"), ("origin", other)];
            assert!(!is_local(&parts(&request), LOCAL, &open), "{other}");
        }
        // Without `Origin`, as for an image in a page, it is not known which page has sent a request.
        let image = [("host", "localhost:1"), ("sec-fetch-site", "cross-site")];
        assert!(!is_local(&parts(&image), LOCAL, &open));
    }

    #[test]
    fn a_page_is_our_own_if_its_origin_is_this_server() {
        let own = |headers: &[_]| is_own_page(&parts(headers), remote(), &["chat.example".to_owned()]);
        assert!(own(&[("host", "chat.example"), ("origin", "https://chat.example")]));
        assert!(own(&[("host", "192.0.2.1:7"), ("origin", "http://192.0.2.1:7")]));
        assert!(!own(&[("host", "chat.example")]) && !own(&[("origin", "http://chat.example")]));
        assert!(!own(&[("host", "evil.example"), ("origin", "http://evil.example")]));
        assert!(!own(&[("host", "chat.example"), ("origin", "https://chat.example:8443")]));
    }
}
