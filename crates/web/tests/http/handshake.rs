//! Who is let in, and what the others are answered: each row of the table, in its order.

use crate::support::{Server, TOKEN, bearer, handshake, text};
use serde_json::Value;

#[tokio::test]
async fn a_handshake_without_or_with_a_wrong_token_is_refused() {
    let server = Server::start().await;
    for headers in
        ["", "Authorization: Bearer wrong", "Sec-WebSocket-Protocol: token.wrong", "Authorization: Basic x"]
    {
        let answer = server.shake("/supr/ws", headers).await;
        answer.assert_text(401, "unauthorized");
        assert_eq!(answer.header("www-authenticate"), None);
    }
}

#[tokio::test]
async fn the_header_lets_in_and_nothing_is_echoed() {
    let server = Server::start().await;
    let answer = server.shake("/supr/ws", &bearer()).await;
    assert_eq!(answer.status, 101, "{answer:?}");
    assert_eq!(answer.header("sec-websocket-accept"), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
    assert_eq!(answer.header("sec-websocket-protocol"), None);
    assert_eq!(answer.header("sec-websocket-extensions"), None);
}

#[tokio::test]
async fn the_subprotocol_lets_in_and_is_echoed_alone() {
    let server = Server::start().await;
    let offered = format!(
        "Sec-WebSocket-Protocol: foo, token.{TOKEN}, bar\nSec-WebSocket-Extensions: permessage-deflate"
    );
    for headers in
        [offered.clone(), format!("{offered}\n{}", bearer()), format!("{offered}\nAuthorization: Bearer no")]
    {
        let answer = server.shake("/supr/ws", &headers).await;
        assert_eq!(answer.status, 101);
        assert_eq!(answer.header("sec-websocket-protocol"), Some(format!("token.{TOKEN}").as_str()));
        assert_eq!(answer.header("sec-websocket-extensions"), None);
    }
    let other = format!("Sec-WebSocket-Protocol: token.bad\n{}", bearer());
    let answer = server.shake("/supr/ws", &other).await;
    assert_eq!((answer.status, answer.header("sec-websocket-protocol")), (101, None));
}

#[tokio::test]
async fn the_query_lets_in_only_where_that_is_allowed() {
    let path = format!("/supr/ws?token={TOKEN}");
    Server::start().await.shake(&path, "").await.assert_text(401, "unauthorized");
    let server = Server::with(|wanted| wanted.settings.allow_token_query = true).await;
    let answer = server.shake(&path, "").await;
    assert_eq!((answer.status, answer.header("sec-websocket-protocol")), (101, None));
    server.shake(&format!("/supr/ws?token=wrong&token={TOKEN}"), "").await.assert_text(401, "unauthorized");
}

#[tokio::test]
async fn a_wrong_token_goes_before_a_wrong_origin_and_a_wrong_upgrade() {
    let server = Server::with(|wanted| wanted.configured.allow_origins = vec!["http://a:1".to_owned()]).await;
    server
        .shake("/supr/ws", "Origin: http://a:2\nAuthorization: Bearer no")
        .await
        .assert_text(401, "unauthorized");
    server.ask("POST /supr/ws").await.assert_text(401, "unauthorized");
    for (origin, status) in [
        ("\nOrigin: http://a:1", 101),
        ("\nOrigin: http://a:2", 403),
        ("", 403),
        ("\nOrigin: HTTP://a:1", 403),
    ] {
        let answer = server.shake("/supr/ws", &format!("{}{origin}", bearer())).await;
        assert_eq!(answer.status, status, "{origin}");
        if status == 403 {
            answer.assert_text(403, "Forbidden");
        }
    }
}

#[tokio::test]
async fn what_is_no_handshake_is_told_so_in_order() {
    let server = Server::with(|wanted| wanted.configured.allow_origins = vec!["http://a:1".to_owned()]).await;
    let bearer = bearer();
    let good = handshake("/supr/ws", &format!("{bearer}\nOrigin: http://a:1"));
    assert_eq!(server.ask(&good).await.status, 101);
    let answer = server.ask(&format!("GET /supr/ws\n{bearer}")).await;
    answer.assert_text(400, "Bad Request");
    assert_eq!(answer.header("sec-websocket-version"), Some("13"));
    // A wrong method, version, origin and key at once: each mended one shows the next.
    let mut request =
        good.replace("GET", "POST").replace(": 13", ": 12").replace("a:1", "a:2").replace("==", "");
    server.ask(&request).await.assert_text(405, "Method Not Allowed");
    request = request.replace("POST", "GET");
    let answer = server.ask(&request).await;
    answer.assert_text(400, "Bad Request");
    assert_eq!(answer.header("sec-websocket-version"), None);
    request = request.replace(": 12", ": 13");
    server.ask(&request).await.assert_text(403, "Forbidden");
    request = request.replace("a:2", "a:1");
    server.ask(&request).await.assert_text(400, "Bad Request");
    let refused = server.ask(&format!("GET /metrics\n{bearer}")).await.body;
    for line in ["no_upgrade\"} 1", "method\"} 1", "version\"} 1", "origin\"} 1", "key\"} 1"] {
        assert!(refused.contains(line), "{line} is not in\n{refused}");
    }
}

#[tokio::test]
async fn the_door_has_its_paths_and_no_others() {
    let server = Server::start().await;
    for path in ["/supr/ws", "/supr/ws/", "/pico/ws"] {
        assert_eq!(server.shake(path, &bearer()).await.status, 101, "{path}");
    }
    for path in ["/supr/xyz", "/supr", "/supr/ws/x", "/pico/wsx"] {
        server.shake(path, &bearer()).await.assert_text(404, "404 page not found");
    }
    let off = Server::with(|wanted| wanted.settings.is_enabled = false).await;
    off.shake("/supr/ws", &bearer()).await.assert_text(404, "404 page not found");
}

async fn hello(server: &Server, query: &str) -> Value {
    let mut client = server.connect(query).await;
    serde_json::from_str(&text(&mut client).await).expect("the greeting is JSON")
}

#[tokio::test]
async fn a_session_is_what_the_client_calls_it_or_a_new_one() {
    let server = Server::start().await;
    let session = "%20A%2FB%00%C3%A9%26+x";
    assert_eq!(hello(&server, &format!("session_id={session}")).await["session"], " A/B\0é& x");
    let [first, second] = [hello(&server, "").await, hello(&server, "session_id=").await];
    assert_eq!(first["session"], "00000000-0000-4000-8000-000000000001");
    assert_eq!((first["chosen"].as_bool(), second["chosen"].as_bool()), (Some(false), Some(false)));
    assert_ne!(first["session"], second["session"]);
    let long = "x".repeat(256);
    assert_eq!(hello(&server, &format!("session_id={long}")).await["session"], long.as_str());
    let answer = server.shake(&format!("/supr/ws?session_id={long}x"), &bearer()).await;
    answer.assert_text(400, "session_id is longer than 256 bytes");
    let answer = server.shake(&format!("/supr/ws?session_id={long}x"), "").await;
    answer.assert_text(401, "unauthorized");
    server.shake("/supr/ws?session_id=%ff", &bearer()).await.assert_text(400, "session_id is not UTF-8");
}

#[tokio::test]
async fn replay_watching_and_the_trace_reach_the_reception() {
    let server = Server::start().await;
    let said = hello(&server, "session_id=a&after=evt_1&watch=b&watch=c").await;
    assert_eq!((&said["after"], &said["watch"]), (&"evt_1".into(), &serde_json::json!(["b", "c"])));
    assert_eq!(hello(&server, "last_event_id=").await["after"], "");
    assert_eq!(hello(&server, "").await["after"], Value::Null);
    let many: String = (0..17).map(|n| format!("&watch={n}")).collect();
    let answer = server.shake(&format!("/supr/ws?x{many}"), &bearer()).await;
    answer.assert_text(400, "watch is there more than 16 times");
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    for (parent, expected) in [
        (format!("00-{trace}-00f067aa0ba902b7-01"), Value::from(trace)),
        ("nonsense".to_owned(), Value::Null),
    ] {
        let mut client = server.connect_with("", &[("traceparent", &parent)]).await.unwrap();
        let said: Value = serde_json::from_str(&text(&mut client).await).unwrap();
        assert_eq!(said["trace"], expected);
    }
}

#[tokio::test]
async fn what_is_sent_right_behind_the_handshake_is_not_lost() {
    use tokio::io::AsyncWriteExt;
    use tokio_tungstenite::tungstenite::protocol::Role;
    let server = Server::start().await;
    let mut stream = tokio::net::TcpStream::connect(server.address).await.unwrap();
    let request = handshake("/supr/ws", &bearer()).replacen('\n', " HTTP/1.1\n", 1).replace('\n', "\r\n");
    let mut bytes = format!("{request}\r\nHost: {}\r\n\r\n", server.address).into_bytes();
    // "hasty", masked with zeros.
    bytes.extend_from_slice(&[0x81, 0x85, 0, 0, 0, 0]);
    bytes.extend_from_slice(b"hasty");
    stream.write_all(&bytes).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(tokio::io::AsyncReadExt::read_u8(&mut stream).await.unwrap());
    }
    let mut client = crate::support::Client::from_raw_socket(stream, Role::Client, None).await;
    assert!(text(&mut client).await.contains("session"));
    assert_eq!(text(&mut client).await, "hasty");
}
