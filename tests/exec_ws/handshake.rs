//! Who may connect, and what other HTTP requests get.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use tokio_tungstenite::tungstenite::http::StatusCode;

use crate::client::Client;
use crate::server::Server;

const UPGRADE: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                       Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

/// The status of the answer to a request.
fn status(address: SocketAddr, line: &str, headers: &str) -> u16 {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(parlor_testkit::STEP_TIMEOUT)).unwrap();
    write!(stream, "{line} HTTP/1.1\r\nHost: {address}\r\n{headers}\r\n").unwrap();
    let mut head = [0; 12];
    stream.read_exact(&mut head).unwrap();
    std::str::from_utf8(&head).unwrap().strip_prefix("HTTP/1.1 ").unwrap().parse().unwrap()
}

#[test]
fn only_the_handshake_and_readyz_are_answered_and_never_to_pages() {
    let server = Server::start();
    let page = "Origin: http://localhost\r\n";
    for (line, headers, expected) in [
        ("GET /readyz", "", 200),
        ("HEAD /readyz", "", 200),
        ("POST /readyz", "", 405),
        ("GET /readyz", page, 403),
        ("GET /", page, 403),
        ("GET /x", "", 404),
        ("GET /", "", 400),
        ("GET /?x=1", UPGRADE, 101),
        ("POST /", UPGRADE, 405),
    ] {
        assert_eq!(status(server.exec, line, headers), expected, "{line} {headers}");
    }
    assert_eq!(status(server.exec, "GET /", &format!("{UPGRADE}{page}")), 403);
    let token = server.token(&[]);
    let with_token = format!("{UPGRADE}{page}Authorization: Bearer {token}\r\n");
    assert_eq!(status(server.exec, "GET /", &with_token), 403, "the token does not help a page");
}

#[tokio::test]
async fn clients_need_the_token_unless_they_are_of_this_user() {
    let server = Server::start();
    let token = server.token(&[]);
    let invalid = (StatusCode::UNAUTHORIZED, "invalid websocket bearer token\n".to_owned());
    for given in [None, Some(token.as_str())] {
        let mut client = Client::connect_with(server.exec, given).await.unwrap();
        client.open(None).await.unwrap();
    }
    assert_eq!(Client::connect_with(server.exec, Some("wrong")).await.err(), Some(invalid.clone()));

    let server = Server::with_settings("[serve]\nallow_local = \"token\"\n");
    let missing = (StatusCode::UNAUTHORIZED, "missing websocket bearer token\n".to_owned());
    assert_eq!(Client::connect_with(server.exec, None).await.err(), Some(missing));
    assert_eq!(Client::connect_with(server.exec, Some(&token)).await.err(), Some(invalid));
    assert_eq!(status(server.exec, "GET /readyz", ""), 200);
    let token = server.token(&[]);
    let mut client = Client::connect_with(server.exec, Some(&token)).await.unwrap();
    let session = client.open(None).await.unwrap();

    // Whoever has the old token is evicted, and cannot resume.
    let new_token = server.token(&["--rotate", "--evict"]);
    assert_eq!(client.close_code().await, Some(4002));
    assert!(Client::connect_with(server.exec, Some(&token)).await.is_err());
    drop(client);
    let mut client = Client::connect_with(server.exec, Some(&new_token)).await.unwrap();
    let resumed = loop {
        match client.open(Some(&session)).await {
            // The server has not noticed yet that the old connection is gone.
            Err(-32010) => {}
            opened => break opened,
        }
    };
    assert_eq!(resumed, Ok(session));
}
