//! Attacks that send another protocol to the TCP doors: the door closes the connection and runs nothing that follows.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;

use parlor_doors::supex::HELLO_LINE_BYTES;
use parlor_testkit::STEP_TIMEOUT;
use serde_json::{Value, json};

use crate::server::{Client, Server, hello};

/// The first bytes of a browser, a scanner or a misdirected client.
const OPENINGS: [(&str, &[u8]); 16] = [
    ("GET", b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: "),
    (
        "POST of a form",
        b"POST /x HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: text/plain\r\nContent-Length: 999\r\n\r\n",
    ),
    ("PUT", b"PUT /x HTTP/1.1\r\nContent-Length: 999\r\n\r\n"),
    ("HEAD", b"HEAD / HTTP/1.0\r\n\r\n"),
    ("DELETE", b"DELETE /x HTTP/1.1\r\n\r\n"),
    ("OPTIONS", b"OPTIONS * HTTP/1.1\r\nOrigin: http://evil.example\r\n\r\n"),
    ("TRACE", b"TRACE / HTTP/1.1\r\n\r\n"),
    ("CONNECT", b"CONNECT 127.0.0.1:4433 HTTP/1.1\r\n\r\n"),
    ("a method of its own", b"purge http://127.0.0.1/ http/1.1\r\n\r\n"),
    ("HTTP/0.9", b"GET /\r\n"),
    ("the HTTP/2 preface", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    ("a lone header", b"Host: 127.0.0.1\r\n"),
    ("lines that end in LF alone", b"POST / HTTP/1.1\nHost: x\n\n"),
    ("a TLS hello", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"),
    ("an SSH banner", b"SSH-2.0-OpenSSH_9.2p1\r\n"),
    ("a TURN request of a browser", b"\x00\x03\x00\x50\x21\x12\xa4\x42aaaaaaaaaaaa\x00\x06\x00\x40"),
];

/// Openings that do not begin with `{` and that the door does not recognize. Browsers can send the first few, followed
/// by bytes that a page chooses.
const UNKNOWN_OPENINGS: [(&str, &[u8]); 12] = [
    ("framed STUN of ICE over TCP", b"\x00\x64\x00\x01\x00\x50\x21\x12\xa4\x42aaaaaaaaaaaa\x00\x06\x00\x40"),
    ("framed DTLS", b"\x00\x40\x16\xfe\xff\x00"),
    ("TURN channel data", b"\x40\x00\x00\x80"),
    ("SOCKS 5", b"\x05\x01\x00\x05\x01\x00\x03\x20"),
    ("SOCKS 4", b"\x04\x01\x00\x50\x7f\x00\x00\x01user"),
    ("SSL 2", b"\x80\x2e\x01\x00\x02"),
    ("the line of a proxy", b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n"),
    ("SMTP", b"EHLO x\r\n"),
    ("FTP", b"USER x\r\nPASS y\r\n"),
    ("IRC", b"NICK x\r\n"),
    ("LDAP", b"\x30\x0c\x02\x01"),
    ("a word", b"x\r\n"),
];

/// The lines that a real client of the REPL and the bridge would send to have `code` evaluated.
fn payload(code: &str) -> String {
    let eval = json!({"jsonrpc": "2.0", "method": "eval", "params": {"code": code}, "id": 2});
    let call = json!({"name": "eval_ruby", "arguments": {"code": code}});
    let call = json!({"jsonrpc": "2.0", "method": "tools/call", "params": call, "id": 3});
    format!("\r\n{}\n{eval}\n{call}\n", hello(1))
}

/// Sends bytes and returns all that the server sends until it closes the connection. Panics if it does not.
fn received(address: SocketAddr, sent: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(4 * STEP_TIMEOUT)).unwrap();
    // The door may close the connection before all is written.
    let _ = stream.write_all(sent);
    let mut received = Vec::new();
    match stream.read_to_end(&mut received) {
        Ok(_) => {}
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::ConnectionReset, "the door does not close the connection")
        }
    }
    received
}

/// Whether Ruby has written `file`. Ruby itself checks, after all evaluations that were queued before.
fn was_written(server: &Server, file: &Path) -> bool {
    let mut client = server.client_after_hello(7);
    client.eval(1, &format!("File.exist?({:?})", file.to_str().unwrap())).unwrap() == "true"
}

#[test]
fn another_protocol_closes_the_connection_and_nothing_that_follows_is_run() {
    let server = Server::start();
    for (door, address) in [("bridge", server.supex), ("repl", server.repl)] {
        for (number, (name, opening)) in OPENINGS.iter().enumerate() {
            let file = server.home.join(format!("{door}-{number}"));
            let attack = payload(&format!("File.write({:?}, 'in')", file.to_str().unwrap()));
            let received = received(address, &[opening, attack.as_bytes()].concat());
            assert!(received.is_empty(), "{door}, {name}: {}", String::from_utf8_lossy(&received));
            assert!(!was_written(&server, &file), "{door}, {name}: the code was run");
        }
    }
}

#[test]
fn another_protocol_closes_the_connection_before_the_end_of_its_first_line() {
    let server = Server::start();
    for address in [server.supex, server.repl] {
        for opening in [&b"\x16\x03\x01\x02\x00"[..], b"GET /", b"Host: x", b"SSH-2.0-x"] {
            assert!(received(address, opening).is_empty(), "{opening:?}");
        }
    }
}

#[test]
fn an_http_line_after_hello_closes_the_connection_too() {
    let server = Server::start();
    for (door, address) in [("bridge", server.supex), ("repl", server.repl)] {
        let file = server.home.join(format!("{door}-late"));
        let mut client = Client::connect(address);
        assert_eq!(client.request(&hello(1))["result"]["success"], true);
        let attack = payload(&format!("File.write({:?}, 'in')", file.to_str().unwrap()));
        client.send(format!("POST / HTTP/1.1\r\n{attack}").as_bytes());
        assert_eq!(client.line(), None);
        assert!(!was_written(&server, &file), "{door}");
    }
}

#[test]
fn a_line_that_cannot_be_json_before_hello_closes_the_connection_and_nothing_that_follows_is_run() {
    let server = Server::start();
    for (door, address) in [("bridge", server.supex), ("repl", server.repl)] {
        for (number, (name, opening)) in UNKNOWN_OPENINGS.iter().enumerate() {
            let file = server.home.join(format!("{door}-unknown-{number}"));
            let attack = payload(&format!("File.write({:?}, 'in')", file.to_str().unwrap()));
            let received = received(address, &[opening, attack.as_bytes()].concat());
            // The bridge sends an error before it closes the connection, as its clients expect.
            assert!(
                received.is_empty() || door == "bridge",
                "{name}: {}",
                String::from_utf8_lossy(&received)
            );
            assert!(!was_written(&server, &file), "{door}, {name}: the code was run");
        }
    }
}

#[test]
fn the_repl_closes_the_connection_at_the_first_byte_that_cannot_be_json() {
    let server = Server::start();
    for (name, opening) in UNKNOWN_OPENINGS {
        assert!(received(server.repl, &opening[..1]).is_empty(), "{name}");
    }
    // Also after lines that were answered.
    let mut client = Client::connect(server.repl);
    assert_eq!(client.request("{bad")["error"]["code"], -32700);
    client.send(b" \x05");
    assert_eq!(client.line(), None);
}

#[test]
fn the_line_limit_is_lower_before_hello() {
    let server = Server::start();
    for address in [server.supex, server.repl] {
        let line = format!("{{\"a\":\"{}", "x".repeat(2 * HELLO_LINE_BYTES));
        let reply = received(address, line.as_bytes());
        let reply = String::from_utf8_lossy(&reply);
        assert!(reply.contains("-32600") && reply.contains("maximum size (65536 bytes)"), "{reply}");
        // After hello a client may send longer lines, also in the same write.
        let mut client = Client::connect(address);
        let ping = json!({"jsonrpc": "2.0", "method": "ping", "params": {"x": "x".repeat(2 * HELLO_LINE_BYTES)}, "id": 2});
        client.send(format!("{}\n{ping}\n", hello(1)).as_bytes());
        for _ in 0..2 {
            let reply: Value = serde_json::from_str(&client.line().unwrap()).unwrap();
            assert!(reply.get("error").is_none(), "{reply}");
        }
    }
}

#[test]
fn broken_json_is_answered_with_a_parse_error() {
    let server = Server::start();
    let mut client = Client::connect(server.repl);
    let assert_parse_error = |client: &mut Client, broken: &str| {
        let reply: Value = client.request(broken);
        assert_eq!(reply["error"]["code"], -32700, "{broken:?}: {reply}");
    };
    for broken in ["{bad", "", "  ", " {\"a\": \"GET / HTTP/1.1\""] {
        assert_parse_error(&mut client, broken);
    }
    assert_eq!(client.request(&hello(1))["result"]["success"], true);
    for broken in ["{bad", "not json", "", "  ", "\"a\": 1", "\u{feff}{}", "5 5"] {
        assert_parse_error(&mut client, broken);
    }
    let code = json!({"jsonrpc": "2.0", "method": "eval", "params": {"code": "\"Host: GET / HTTP/1.1\".size"}, "id": 2});
    assert_eq!(client.request(&code.to_string())["result"]["output"], "=> 20\n");
}

#[test]
fn nothing_is_run_before_hello() {
    let server = Server::start();
    let mut repl = Client::connect(server.repl);
    let eval = json!({"jsonrpc": "2.0", "method": "eval", "params": {"code": "1"}, "id": 2});
    assert_eq!(repl.request(&eval.to_string())["error"]["code"], -32600);
    let call = json!({"name": "eval_ruby", "arguments": {"code": "1"}});
    let call = json!({"jsonrpc": "2.0", "method": "tools/call", "params": call, "id": 3});
    assert_eq!(Client::connect(server.supex).request(&call.to_string())["error"]["code"], -32600);
}
