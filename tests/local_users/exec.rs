//! The exec door on WebSockets, which runs any program for its clients.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};

use crate::server::Server;
use crate::users::{OTHER_USER, OWNER, ROOT, as_user};

/// The status of the answer to a handshake with these headers, each of which ends with CR LF.
fn handshake_status(to: SocketAddr, headers: &str) -> u16 {
    let mut stream = TcpStream::connect(to).unwrap();
    let handshake = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                     Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    write!(stream, "GET / HTTP/1.1\r\nHost: {to}\r\n{handshake}{headers}\r\n").unwrap();
    let mut head = [0; 12];
    stream.read_exact(&mut head).unwrap();
    std::str::from_utf8(&head).unwrap().strip_prefix("HTTP/1.1 ").unwrap().parse().unwrap()
}

#[test]
fn another_user_needs_the_token_for_the_exec_door() {
    for ip in [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()] {
        let Some(server) = Server::listening(ip, "") else { return };
        let with_token = format!("Authorization: Bearer {}\r\n", server.token());
        let mut addresses = vec![server.exec];
        if let std::net::IpAddr::V4(v4) = ip {
            addresses.push(SocketAddr::new(v4.to_ipv6_mapped().into(), server.exec.port()));
        }
        for to in addresses {
            for (user, headers, status) in [
                (OTHER_USER, "", 401),
                (OTHER_USER, "Authorization: Bearer wrong\r\n", 401),
                (OTHER_USER, &with_token, 101),
                (OWNER, "", 101),
                (ROOT, "", 101),
            ] {
                let given = as_user(user, || handshake_status(to, headers));
                assert_eq!(given, status, "user {user} at {to} with {headers:?}");
            }
        }
    }
}
