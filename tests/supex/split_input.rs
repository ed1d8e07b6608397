//! The server answers the same however the client's bytes are split into writes, and spells its replies exactly.

use crate::server::{Server, eval, hello};

/// A session with replies of every kind.
fn session() -> Vec<u8> {
    let lines = [
        hello(1),
        eval(1, "\"Příliš\""),
        "{bad".to_owned(),
        r#"{"jsonrpc":"2.0","method":"ping","id":1.0}"#.to_owned(),
        r#"[1]"#.to_owned(),
        r#"{"command":"ping","id":{"a": 1}}"#.to_owned(),
        eval(2, "raise 'x'"),
    ];
    lines.map(|line| line + "\n").concat().into_bytes()
}

/// Sends the chunks one after another and returns all lines that the server sent.
fn replies(server: &Server, chunks: &[&[u8]]) -> Vec<String> {
    let mut client = server.client();
    for chunk in chunks {
        client.send(chunk);
    }
    client.half_close();
    std::iter::from_fn(|| client.line()).collect()
}

#[test]
fn requests_split_at_any_byte_get_the_same_replies() {
    let server = Server::start();
    let session = session();
    let whole = replies(&server, &[&session]);
    assert_eq!(whole.len(), 7, "{whole:#?}");
    assert!(whole[1].contains("Příliš") && whole[3].ends_with("\"id\":1.0}"), "{whole:#?}");
    let single_bytes: Vec<&[u8]> = session.chunks(1).collect();
    assert_eq!(replies(&server, &single_bytes), whole);
    for index in 1..session.len() {
        let (first, second) = session.split_at(index);
        assert_eq!(replies(&server, &[first, second]), whole, "split at {index}");
    }
}

#[test]
fn a_thousand_requests_in_one_write_are_answered_in_order() {
    let server = Server::start();
    let mut client = server.client_after_hello(1);
    let pings: String =
        (0..1000).map(|id| format!("{{\"method\":\"ping\",\"id\":\"{id:0>200}\"}}\n")).collect();
    client.send(pings.as_bytes());
    for id in 0..1000 {
        assert_eq!(client.reply()["id"], format!("{id:0>200}"));
    }
}

#[test]
fn replies_have_exactly_these_bytes() {
    let server = Server::start();
    let mut client = server.client();
    client.send_line(&hello(1));
    assert_eq!(
        client.line().unwrap(),
        r#"{"jsonrpc":"2.0","result":{"success":true,"message":"Client identified","server":{"name":"supex-runtime","version":"0.2.0"}},"id":"hello"}"#
    );
    for id in ["1.0", "1E+2", "123456789012345678901234567890", r#"{"a": [1 ] }"#, r#""é""#] {
        client.send_line(&format!(r#"{{"method":"ping","id":{id}}}"#));
        let line = client.line().unwrap();
        assert!(line.ends_with(&format!(",\"id\":{id}}}")), "{line}");
    }
    client.send_line(&eval(7, r#""é/\u2028\x7f\n""#));
    assert_eq!(
        client.line().unwrap(),
        "{\"jsonrpc\":\"2.0\",\"result\":{\"success\":true,\"result\":\"é/\u{2028}\u{7f}\\n\"},\"id\":7}"
    );
}
