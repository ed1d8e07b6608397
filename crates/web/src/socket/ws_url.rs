//! The address of the WebSocket that the token endpoints return.

use std::net::SocketAddr;

use axum::http::request::Parts;

use crate::auth::request_source::{authority, header_text, is_listed, is_proxied, without_port};

/// `ws://HOST:PORT/supr/ws`, as far as a server behind a proxy can know it. It has no query: clients append theirs.
///
/// The scheme and the port may come from the headers of a proxy. The name comes from `Host`, which `auth/screen.rs` has
/// checked. Any client can write `X-Forwarded-Host`, so that counts only if it is one of the names in `allowed`.
pub(crate) fn ws_url(parts: &Parts, bound: SocketAddr, allowed: &[String]) -> String {
    let forwarded =
        |name| header_text(&parts.headers, name).and_then(|list| list.split(',').next()).map(str::trim);
    let scheme = match forwarded("x-forwarded-proto").map(str::to_ascii_lowercase).as_deref() {
        Some("https" | "wss") => "wss",
        Some(_) | None => "ws",
    };
    let is_proxied = is_proxied(&parts.headers);
    let outside = forwarded("x-forwarded-host").filter(|outside| is_listed(without_port(outside), allowed));
    let named = outside.map(str::to_owned).or_else(|| authority(parts)).filter(|named| is_host(named));
    let port = match forwarded("x-forwarded-port").and_then(|port| port.parse::<u16>().ok()) {
        Some(port) => port,
        None => match named.as_deref().filter(|_| is_proxied) {
            Some(named) => port_of(named).unwrap_or(if scheme == "wss" { 443 } else { 80 }),
            None => bound.port(),
        },
    };
    let host = match (named.map(|named| without_port(&named).to_ascii_lowercase()), bound) {
        (Some(named), _) if is_proxied || bound.ip().is_unspecified() => named,
        (_, bound) if bound.ip().is_unspecified() => "127.0.0.1".to_owned(),
        (_, SocketAddr::V4(bound)) => bound.ip().to_string(),
        (_, SocketAddr::V6(bound)) => format!("[{}]", bound.ip()),
    };
    format!("{scheme}://{host}:{port}/supr/ws")
}

/// The port after a host.
fn port_of(authority: &str) -> Option<u16> {
    authority.strip_prefix(without_port(authority))?.strip_prefix(':')?.parse().ok()
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
        let allowed = ["chat.example".to_owned()];
        ws_url(&request.body(()).unwrap().into_parts().0, bound.parse().unwrap(), &allowed)
    }

    #[test]
    fn without_a_proxy_the_address_is_the_one_that_the_server_listens_at() {
        assert_eq!(url("127.0.0.1:18790", &[("host", "localhost:1")]), "ws://127.0.0.1:18790/supr/ws");
        assert_eq!(url("[::1]:7", &[]), "ws://[::1]:7/supr/ws");
        assert_eq!(url("0.0.0.0:7", &[("host", "box.lan:9")]), "ws://box.lan:7/supr/ws");
        assert_eq!(url("0.0.0.0:7", &[]), "ws://127.0.0.1:7/supr/ws");
        assert_eq!(url("[::]:7", &[("host", "[fe80::1]:9")]), "ws://[fe80::1]:7/supr/ws");
        assert_eq!(url("0.0.0.0:7", &[("host", "a?b/c")]), "ws://127.0.0.1:7/supr/ws");
    }

    #[test]
    fn the_headers_of_a_proxy_decide_the_scheme_and_the_port() {
        let near = "127.0.0.1:18790";
        assert_eq!(url(near, &[("x-forwarded-proto", "HTTPS, http")]), "wss://127.0.0.1:18790/supr/ws");
        assert_eq!(url(near, &[("x-forwarded-proto", "ftp")]), "ws://127.0.0.1:18790/supr/ws");
        assert_eq!(url(near, &[("x-forwarded-port", "99")]), "ws://127.0.0.1:99/supr/ws");
        let proto = ("x-forwarded-proto", "https");
        let host = |host| [proto, ("host", host), ("x-forwarded-for", "192.0.2.1")];
        assert_eq!(url(near, &host("chat.example")), "wss://chat.example:443/supr/ws");
        assert_eq!(url(near, &host("chat.example:8443")), "wss://chat.example:8443/supr/ws");
        assert_eq!(url(near, &host("[::1]")), "wss://[::1]:443/supr/ws");
        assert_eq!(url(near, &host("a b")), "wss://127.0.0.1:18790/supr/ws");
        let plain = [("x-real-ip", "192.0.2.1"), ("host", "chat.example")];
        assert_eq!(url(near, &plain), "ws://chat.example:80/supr/ws");
        let all = [proto, ("host", "chat.example"), ("x-forwarded-port", "99")];
        assert_eq!(url(near, &all), "wss://chat.example:99/supr/ws");
    }

    #[test]
    fn a_forwarded_host_counts_if_the_settings_list_it() {
        let outside =
            |name| [("x-forwarded-proto", "https"), ("x-forwarded-host", name), ("host", "localhost:7")];
        assert_eq!(url("127.0.0.1:7", &outside("Chat.example")), "wss://chat.example:443/supr/ws");
        assert_eq!(url("127.0.0.1:7", &outside("chat.example:8443, x")), "wss://chat.example:8443/supr/ws");
        assert_eq!(url("127.0.0.1:7", &outside("evil.example")), "wss://localhost:7/supr/ws");
        let evil = ("x-forwarded-host", "evil.example");
        assert_eq!(url("127.0.0.1:7", &[evil]), "ws://127.0.0.1:7/supr/ws");
        assert_eq!(url("0.0.0.0:7", &[evil, ("host", "box.lan:9")]), "ws://box.lan:9/supr/ws");
    }
}
