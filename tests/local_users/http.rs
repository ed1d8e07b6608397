//! HTTP requests of another user, to all addresses of the server.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};

use crate::server::Server;
use crate::users::{OTHER_USER, ROOT, as_user};

/// An HTTP response.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

/// The text of a request. Each line of `headers` ends with CR LF.
pub(crate) fn request(to: SocketAddr, line: &str, headers: &str, body: &str) -> String {
    request_of(&to.to_string(), line, headers, body)
}

fn request_of(host: &str, line: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "{line} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n{body}"
    )
}

/// Sends a request as the user of this thread.
pub(crate) fn send_request(to: SocketAddr, line: &str, headers: &str, body: &str) -> Response {
    send_request_to_host(to, &to.to_string(), line, headers, body)
}

/// The same, with this `Host` header.
pub(crate) fn send_request_to_host(
    to: SocketAddr,
    host: &str,
    line: &str,
    headers: &str,
    body: &str,
) -> Response {
    let mut stream = TcpStream::connect(to).unwrap();
    stream.write_all(request_of(host, line, headers, body).as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Response { status, head: head.to_owned(), body: body.to_owned() }
}

/// The body of a request to start a process that creates the file `marker`.
pub(crate) fn touch(marker: &std::path::Path) -> String {
    serde_json::json!({"command": ["/usr/bin/touch", marker]}).to_string()
}

/// Every request that reads or changes data of the owner.
pub(crate) const REQUESTS: [&str; 15] = [
    "GET /api/supr/token",
    "POST /api/supr/token",
    "GET /api/pico/token",
    "POST /api/pico/token",
    "POST /api/supr/setup",
    "GET /api/sessions",
    "GET /api/sessions/a",
    "DELETE /api/sessions/a",
    "GET /api/processes",
    "GET /api/config",
    "GET /api/choices",
    "GET /api/mcp/servers",
    "GET /api/nodes",
    "GET /api/usage",
    "GET /metrics",
];

/// The addresses at which sockets of both families reach a server that listens on `ip`.
fn addresses_of(ip: IpAddr) -> Vec<IpAddr> {
    let v4 = Ipv4Addr::LOCALHOST;
    match ip {
        IpAddr::V4(_) => vec![v4.into(), v4.to_ipv6_mapped().into()],
        IpAddr::V6(ip) if ip.is_unspecified() => {
            vec![v4.into(), v4.to_ipv6_mapped().into(), Ipv6Addr::LOCALHOST.into()]
        }
        IpAddr::V6(_) => vec![Ipv6Addr::LOCALHOST.into()],
    }
}

#[test]
fn every_request_of_another_user_without_the_token_is_refused() {
    let Some(server) = Server::start("") else { return };
    let before = server.token();
    for line in REQUESTS {
        let response = as_user(OTHER_USER, || send_request(server.http, line, "", ""));
        assert_eq!(response.status, 401, "{line}: {response:?}");
        assert!(!response.body.contains(&before), "{line}: {response:?}");
    }
    let marker = server.marker("http");
    let response =
        as_user(OTHER_USER, || send_request(server.http, "POST /api/processes", "", &touch(&marker)));
    assert_eq!(response.status, 401, "{response:?}");
    assert!(!marker.exists());
    assert_eq!(server.token(), before);
}

#[test]
fn another_user_is_recognized_over_ipv4_and_ipv6() {
    for ip in [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()] {
        let Some(server) = Server::listening(ip, "") else { return };
        for address in addresses_of(ip) {
            let to = SocketAddr::new(address, server.http.port());
            let status = |user| as_user(user, || send_request(to, "GET /api/supr/token", "", "").status);
            assert_eq!(status(OTHER_USER), 401, "{to}");
            assert_eq!(status(crate::users::OWNER), 200, "{to}");
            assert_eq!(status(ROOT), 200, "{to}");
        }
    }
}

#[test]
fn another_user_with_the_token_is_served() {
    let Some(server) = Server::start("") else { return };
    let bearer = format!("Authorization: Bearer {}\r\n", server.token());
    let response = as_user(OTHER_USER, || send_request(server.http, "GET /api/sessions", &bearer, ""));
    assert_eq!(response.status, 200, "{response:?}");
}
