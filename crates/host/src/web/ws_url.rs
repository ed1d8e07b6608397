//! The address of the socket, as a client is told it.

use std::net::SocketAddr;

use axum::http::request::Parts;

use super::guard::{host, value};

/// `ws://HOST:PORT/supr/ws`, as far as can be known from behind a proxy. Never has a query: clients append theirs.
pub(super) fn ws_url(parts: &Parts, bound: SocketAddr) -> String {
    let forwarded = |name| value(&parts.headers, name).and_then(|list| list.split(',').next()).map(str::trim);
    let scheme = match forwarded("x-forwarded-proto").map(str::to_ascii_lowercase).as_deref() {
        Some("https" | "wss") => "wss",
        Some(_) | None => "ws",
    };
    let usual = if scheme == "wss" { 443 } else { 80 };
    let outside = forwarded("x-forwarded-host").filter(|host| is_host(host));
    let forwarded_port = forwarded("x-forwarded-port").and_then(|port| port.parse::<u16>().ok());
    let (host, port) = match outside {
        // The name under which it is seen from outside has that side's port.
        Some(outside) => match outside.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => {
                (host.to_owned(), forwarded_port.or(port.parse().ok()))
            }
            Some(_) | None => (outside.to_owned(), Some(forwarded_port.unwrap_or(usual))),
        },
        None => (own_host(parts, bound), forwarded_port),
    };
    format!("{scheme}://{host}:{}/supr/ws", port.unwrap_or(bound.port()))
}

/// The address that is listened at, unless that is all there are.
fn own_host(parts: &Parts, bound: SocketAddr) -> String {
    if bound.ip().is_unspecified() {
        return host(parts).filter(|host| is_host(host)).unwrap_or_else(|| "127.0.0.1".to_owned());
    }
    match bound {
        SocketAddr::V4(bound) => bound.ip().to_string(),
        SocketAddr::V6(bound) => format!("[{}]", bound.ip()),
    }
}

fn is_host(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte))
}

#[cfg(test)]
mod tests {
    use axum::http::Request;

    use super::*;

    fn url(bound: &str, headers: &[(&str, &str)]) -> String {
        let mut request = Request::builder().uri("/api/supr/token");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        ws_url(&request.body(()).unwrap().into_parts().0, bound.parse().unwrap())
    }

    #[test]
    fn the_address_is_the_one_that_is_listened_at() {
        assert_eq!(url("127.0.0.1:18790", &[("host", "localhost:1")]), "ws://127.0.0.1:18790/supr/ws");
        assert_eq!(url("[::1]:7", &[]), "ws://[::1]:7/supr/ws");
        assert_eq!(url("0.0.0.0:7", &[("host", "box.lan:9")]), "ws://box.lan:7/supr/ws");
        assert_eq!(url("0.0.0.0:7", &[]), "ws://127.0.0.1:7/supr/ws");
        assert_eq!(url("[::]:7", &[("host", "[fe80::1]:9")]), "ws://[fe80::1]:7/supr/ws");
        assert_eq!(url("0.0.0.0:7", &[("host", "a?b/c")]), "ws://127.0.0.1:7/supr/ws");
    }

    #[test]
    fn a_proxy_is_believed() {
        let near = "127.0.0.1:18790";
        assert_eq!(url(near, &[("x-forwarded-proto", "HTTPS, http")]), "wss://127.0.0.1:18790/supr/ws");
        assert_eq!(url(near, &[("x-forwarded-proto", "ftp")]), "ws://127.0.0.1:18790/supr/ws");
        let proto = ("x-forwarded-proto", "https");
        let host = |host| [proto, ("x-forwarded-host", host)];
        assert_eq!(url(near, &host("chat.example")), "wss://chat.example:443/supr/ws");
        assert_eq!(url(near, &host("chat.example:8443")), "wss://chat.example:8443/supr/ws");
        assert_eq!(url(near, &host("[::1]")), "wss://[::1]:443/supr/ws");
        assert_eq!(url(near, &host("a b")), "wss://127.0.0.1:18790/supr/ws");
        assert_eq!(url(near, &[("x-forwarded-port", "99")]), "ws://127.0.0.1:99/supr/ws");
        let all = [proto, ("x-forwarded-host", "chat.example"), ("x-forwarded-port", "99")];
        assert_eq!(url(near, &all), "wss://chat.example:99/supr/ws");
    }
}
