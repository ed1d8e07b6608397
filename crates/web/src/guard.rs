//! Whom a request comes from: whether its `Host` is one of ours, and whether its sender needs a token.
//!
//! A page that a browser was lured to can send requests to this machine. It cannot forge `Host` or `Origin`, so
//! these two tell it from our own page and from programs.

use std::net::IpAddr;

use axum::http::header::{HOST, HeaderMap, HeaderValue, ORIGIN};
use axum::http::request::Parts;

/// What the headers begin with in which proxies tell what they have changed.
const FORWARDED_BY: &str = "x-forwarded";

/// The one of them that tells nothing of who asks. Clients of the protocol send it to learn a `wss` address.
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

/// What pages of this server are loaded by, without a proxy: it speaks no TLS.
const PLAIN: &[&str] = &["http"];

/// The same, with a proxy in front that may speak TLS.
const PROXIED: &[&str] = &["http", "https"];

/// The two ends of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ConnectionEnds {
    pub(crate) peer: IpAddr,
    pub(crate) local: IpAddr,
}

/// The host that a request names, without its port and in lower case; none if it names none.
pub(crate) fn host(parts: &Parts) -> Option<String> {
    authority(parts).map(|authority| without_port(&authority).to_ascii_lowercase())
}

/// Whether `host` is this server: this machine, the address that the peer connected to, or a name that the
/// settings list.
pub(crate) fn is_ours(host: &str, ends: ConnectionEnds, allowed: &[String]) -> bool {
    is_loopback(host) || ip(host) == Some(ends.local.to_canonical()) || is_listed(host, allowed)
}

/// Whether the settings list this name.
pub(crate) fn is_listed(host: &str, allowed: &[String]) -> bool {
    allowed.iter().any(|name| name == "*" || name.eq_ignore_ascii_case(host))
}

/// Whether a request comes from this machine, and neither from a page of another site nor through a proxy. Which user
/// of this machine has sent it is another question.
pub(crate) fn is_near(parts: &Parts, ends: ConnectionEnds) -> bool {
    let host = host(parts).unwrap_or_default();
    let is_near = ends.peer.to_canonical().is_loopback() && is_ours(&host, ends, &[]);
    // Whoever is behind a proxy is not who is connected.
    is_near && !is_proxied(&parts.headers) && !is_foreign(parts, PLAIN)
}

/// Whether a request comes from our own page or from a program, and not from a page of another site: then a cookie that
/// came along was meant to.
pub(crate) fn is_of_our_page(parts: &Parts) -> bool {
    !is_foreign(parts, PROXIED)
}

/// Whether a proxy has passed a request on.
pub(crate) fn is_proxied(headers: &HeaderMap) -> bool {
    let is_theirs = |name: &str| {
        name.starts_with(FORWARDED_BY) && name != FORWARDED_PROTO || PROXY_HEADERS.contains(&name)
    };
    headers.keys().any(|name| is_theirs(name.as_str()))
}

/// Whether a page of another site has made this request. Ours are loaded by one of `schemes`.
fn is_foreign(parts: &Parts, schemes: &[&str]) -> bool {
    let site = value(&parts.headers, "sec-fetch-site");
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

/// What the request line says goes before what the header says.
pub(crate) fn authority(parts: &Parts) -> Option<String> {
    match parts.uri.authority() {
        Some(authority) => Some(authority.as_str().to_owned()),
        None => value(&parts.headers, HOST.as_str()).map(str::to_owned),
    }
}

pub(crate) fn value<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok().filter(|value| !value.is_empty())
}

/// `[::1]:80` is `[::1]`, `a:80` is `a`.
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

    const NEAR: ConnectionEnds = ConnectionEnds {
        peer: IpAddr::V4(std::net::Ipv4Addr::LOCALHOST),
        local: IpAddr::V4(std::net::Ipv4Addr::LOCALHOST),
    };

    fn far() -> ConnectionEnds {
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
    fn hosts_are_ours_by_address_and_by_name() {
        for host in
            ["localhost", "a.localhost", "127.0.0.1", "127.8.8.8", "[::1]", "192.0.2.1", "[::ffff:192.0.2.1]"]
        {
            assert!(is_ours(host, far(), &[]), "{host}");
        }
        for host in ["evil.example", "localhost.evil.example", "192.0.2.2", "", "notlocalhost", "2130706433"]
        {
            assert!(!is_ours(host, far(), &[]), "{host}");
        }
        let listed = ["Chat.example".to_owned()];
        assert!(is_ours("chat.example", far(), &listed) && !is_ours("x.chat.example", far(), &listed));
        assert!(is_ours("anything", far(), &["*".to_owned()]));
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
    fn what_comes_from_elsewhere_is_not_near() {
        let near = |ends, headers: &[_]| is_near(&parts(headers), ends);
        let host = ("host", "localhost:18790");
        assert!(near(NEAR, &[host]));
        assert!(near(NEAR, &[host, ("origin", "http://localhost:18790")]));
        assert!(near(NEAR, &[host, ("sec-fetch-site", "same-origin")]));
        assert!(near(NEAR, &[host, ("x-forwarded-proto", "https")]));
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
            assert!(!near(NEAR, &[host, foreign]), "{foreign:?}");
        }
        assert!(!near(NEAR, &[("host", "evil.example")]) && !near(NEAR, &[]));
        assert!(!near(far(), &[("host", "192.0.2.1")]) && !near(far(), &[host]));
    }

    #[test]
    fn a_cookie_counts_where_no_other_site_is_the_sender() {
        let ours = |headers: &[_]| is_of_our_page(&parts(headers));
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
}
