//! The web side: what another user asks for, and in which ways.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};

use crate::server::Server;
use crate::users::{ROOT, STRANGER, as_user};

/// What a server answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

/// A request as it goes over the wire; `headers` is lines, each with its end.
pub(crate) fn request(to: SocketAddr, line: &str, headers: &str, body: &str) -> String {
    request_of(&to.to_string(), line, headers, body)
}

fn request_of(host: &str, line: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "{line} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n{body}"
    )
}

/// Asks as the user that this thread is.
pub(crate) fn ask(to: SocketAddr, line: &str, headers: &str, body: &str) -> Answer {
    ask_host(to, &to.to_string(), line, headers, body)
}

/// The same, where the server is called `host`.
pub(crate) fn ask_host(to: SocketAddr, host: &str, line: &str, headers: &str, body: &str) -> Answer {
    let mut stream = TcpStream::connect(to).unwrap();
    stream.write_all(request_of(host, line, headers, body).as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Answer { status, head: head.to_owned(), body: body.to_owned() }
}

/// The order to run a command that leaves a file behind.
pub(crate) fn touch(marker: &std::path::Path) -> String {
    serde_json::json!({"command": ["/usr/bin/touch", marker]}).to_string()
}

/// Every request that reads or changes what is the owner's.
pub(crate) const REQUESTS: [&str; 13] = [
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
    "GET /api/usage",
    "GET /metrics",
];

/// How the doors of a server at `ip` are reached by a socket of either family.
fn ways_to(ip: IpAddr) -> Vec<IpAddr> {
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
fn another_user_gets_nothing_by_any_request() {
    let Some(server) = Server::start("") else { return };
    let before = server.token();
    for line in REQUESTS {
        let answer = as_user(STRANGER, || ask(server.http, line, "", ""));
        assert_eq!(answer.status, 401, "{line}: {answer:?}");
        assert!(!answer.body.contains(&before), "{line}: {answer:?}");
    }
    let marker = server.marker("http");
    let answer = as_user(STRANGER, || ask(server.http, "POST /api/processes", "", &touch(&marker)));
    assert_eq!(answer.status, 401, "{answer:?}");
    assert!(!marker.exists());
    assert_eq!(server.token(), before);
}

#[test]
fn another_user_is_told_apart_by_each_family_of_addresses() {
    for ip in [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()] {
        let Some(server) = Server::listening(ip, "") else { return };
        for way in ways_to(ip) {
            let to = SocketAddr::new(way, server.http.port());
            let status = |user| as_user(user, || ask(to, "GET /api/supr/token", "", "").status);
            assert_eq!(status(STRANGER), 401, "{to}");
            assert_eq!(status(crate::users::OWNER), 200, "{to}");
            assert_eq!(status(ROOT), 200, "{to}");
        }
    }
}

#[test]
fn another_user_who_knows_the_token_gets_in() {
    let Some(server) = Server::start("") else { return };
    let bearer = format!("Authorization: Bearer {}\r\n", server.token());
    let answer = as_user(STRANGER, || ask(server.http, "GET /api/sessions", &bearer, ""));
    assert_eq!(answer.status, 200, "{answer:?}");
}
