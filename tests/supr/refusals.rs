//! The log on stderr names refused requests, but no tokens or queries of them.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::server::{Server, TOKEN};

/// Sends a GET request and returns the connection and the status of the response.
fn get_status(server: &Server, path: &str, headers: &str) -> (TcpStream, String) {
    let mut stream = TcpStream::connect(server.http).unwrap();
    let text = format!("GET {path} HTTP/1.1\nHost: {}\n{headers}\n\n", server.http);
    stream.write_all(text.replace('\n', "\r\n").as_bytes()).unwrap();
    let mut status = [0; "HTTP/1.1 101".len()];
    stream.read_exact(&mut status).unwrap();
    (stream, String::from_utf8_lossy(&status).replace("HTTP/1.1 ", ""))
}

#[test]
fn the_log_has_each_refused_request_and_no_token() {
    let mut server = Server::with("max_connections = 1\nallow_origins = [\"http://here\"]");
    let upgrade = "Connection: Upgrade\nUpgrade: websocket\nSec-WebSocket-Version: 13\n\
                   Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==";
    let handshake = |path: &str, token: &str, origin: &str| {
        let headers = format!("{upgrade}\nOrigin: {origin}\nAuthorization: Bearer {token}");
        get_status(&server, path, &headers)
    };
    assert_eq!(handshake("/supr/ws?token=s3nt-in-a-query", "wr0ng", "http://here").1, "401");
    assert_eq!(handshake("/api/processes/1-1/ws", "wr0ng", "http://here").1, "401");
    assert_eq!(handshake("/supr/ws", TOKEN, "http://there").1, "403");
    let (_open, status) = handshake("/supr/ws", TOKEN, "http://here");
    assert_eq!(status, "101");
    assert_eq!(handshake("/supr/ws?session_id=other", TOKEN, "http://here").1, "503");
    assert_eq!(get_status(&server, "/api/sessions", "Via: 1.1 proxy\nAuthorization: Bearer wr0ng").1, "401");
    assert_eq!(get_status(&server, "http://evil.example/api/sessions?x=s3nt-in-a-query", "X: y").1, "403");
    let log = server.stop_and_read_log();
    for refused in [
        r#"refused reason="unauthorized" peer="127.0.0.1" path="/supr/ws" left_out=0"#,
        r#"refused reason="unauthorized" peer="127.0.0.1" path="/api/processes/1-1/ws" left_out=0"#,
        r#"refused reason="origin" peer="127.0.0.1" path="/supr/ws" left_out=0"#,
        r#"refused reason="too_many_connections" peer="127.0.0.1" path="/supr/ws" left_out=0"#,
        r#"refused reason="token" peer="127.0.0.1" path="/api/sessions" left_out=0"#,
        r#"refused reason="host" peer="127.0.0.1" path="/api/sessions" left_out=0"#,
    ] {
        assert_eq!(log.matches(refused).count(), 1, "{refused} is not exactly once in\n{log}");
    }
    for secret in [TOKEN, "wr0ng", "s3nt-in-a-query"] {
        assert!(!log.contains(secret), "{secret} is in\n{log}");
    }
}
