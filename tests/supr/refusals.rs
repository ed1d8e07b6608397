//! Who is turned away is told of on stderr, and what they sent is not.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::server::{Server, TOKEN};

/// Asks for something, and gives the connection with the status of the answer.
fn ask(server: &Server, path: &str, headers: &str) -> (TcpStream, String) {
    let mut stream = TcpStream::connect(server.http).unwrap();
    let text = format!("GET {path} HTTP/1.1\nHost: {}\n{headers}\n\n", server.http);
    stream.write_all(text.replace('\n', "\r\n").as_bytes()).unwrap();
    let mut status = [0; "HTTP/1.1 101".len()];
    stream.read_exact(&mut status).unwrap();
    (stream, String::from_utf8_lossy(&status).replace("HTTP/1.1 ", ""))
}

#[test]
fn who_is_turned_away_is_in_the_log_and_no_token_is() {
    let mut server = Server::with("max_connections = 1\nallow_origins = [\"http://here\"]");
    let upgrade = "Connection: Upgrade\nUpgrade: websocket\nSec-WebSocket-Version: 13\n\
                   Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==";
    let shake = |path: &str, token: &str, origin: &str| {
        let headers = format!("{upgrade}\nOrigin: {origin}\nAuthorization: Bearer {token}");
        ask(&server, path, &headers)
    };
    assert_eq!(shake("/supr/ws?token=s3nt-in-a-query", "wr0ng", "http://here").1, "401");
    assert_eq!(shake("/api/processes/1-1/ws", "wr0ng", "http://here").1, "401");
    assert_eq!(shake("/supr/ws", TOKEN, "http://there").1, "403");
    let (_open, status) = shake("/supr/ws", TOKEN, "http://here");
    assert_eq!(status, "101");
    assert_eq!(shake("/supr/ws?session_id=other", TOKEN, "http://here").1, "503");
    assert_eq!(ask(&server, "/api/sessions", "Via: 1.1 proxy\nAuthorization: Bearer wr0ng").1, "401");
    assert_eq!(ask(&server, "http://evil.example/api/sessions?x=s3nt-in-a-query", "X: y").1, "403");
    let said = server.end_and_tell();
    for refused in [
        r#"refused reason="unauthorized" peer="127.0.0.1" path="/supr/ws" left_out=0"#,
        r#"refused reason="unauthorized" peer="127.0.0.1" path="/api/processes/1-1/ws" left_out=0"#,
        r#"refused reason="origin" peer="127.0.0.1" path="/supr/ws" left_out=0"#,
        r#"refused reason="too_many_connections" peer="127.0.0.1" path="/supr/ws" left_out=0"#,
        r#"refused reason="token" peer="127.0.0.1" path="/api/sessions" left_out=0"#,
        r#"refused reason="host" peer="127.0.0.1" path="/api/sessions" left_out=0"#,
    ] {
        assert_eq!(said.matches(refused).count(), 1, "{refused} is not once in\n{said}");
    }
    for secret in [TOKEN, "wr0ng", "s3nt-in-a-query"] {
        assert!(!said.contains(secret), "{secret} is in\n{said}");
    }
}
