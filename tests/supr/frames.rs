//! WebSocket frames that a transcript cannot express.

use parlor_doors::supr::MAX_FRAME_BYTES;
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{CloseCode, Data, OpCode};

use crate::client::{Client, Ended};
use crate::server::Server;

/// A client that has received the server's first frame.
async fn connected(server: &Server, session: &str) -> Client {
    let mut client = Client::connect(server.http, &format!("session_id={session}")).await;
    client.until("agent.list").await;
    client
}

fn fragment(text: &str, code: Data, is_final: bool) -> Message {
    Message::Frame(Frame::message(text.to_owned(), OpCode::Data(code), is_final))
}

#[tokio::test]
async fn a_binary_message_is_handled_like_a_text_message() {
    let server = Server::start();
    let mut client = connected(&server, "a").await;
    client.send_message(Message::binary(r#"{"type":"ping","id":"b"}"#.as_bytes().to_vec())).await;
    assert_eq!(client.until("pong").await["id"], "b");
}

#[tokio::test]
async fn a_fragmented_message_with_a_ping_in_between_is_handled_once() {
    let server = Server::start();
    let mut client = connected(&server, "a").await;
    client.send_message(fragment(r#"{"type":"pi"#, Data::Text, false)).await;
    client.send_message(Message::Ping(b"are you there".to_vec().into())).await;
    client.send_message(fragment(r#"ng","id":"#, Data::Continue, false)).await;
    client.send_message(fragment(r#""in three"}"#, Data::Continue, true)).await;
    client.send(&json!({"type": "ping", "id": "after"})).await;
    let mut answers = Vec::new();
    while answers.len() < 3 {
        match futures_util::StreamExt::next(&mut client.socket).await.unwrap().unwrap() {
            Message::Pong(payload) => answers.push(String::from_utf8(payload.to_vec()).unwrap()),
            Message::Text(text) => {
                let pong: serde_json::Value = serde_json::from_str(text.as_str()).unwrap();
                answers.push(pong["id"].as_str().unwrap().to_owned());
            }
            other @ (Message::Binary(_) | Message::Ping(_) | Message::Close(_) | Message::Frame(_)) => {
                panic!("{other:?}")
            }
        }
    }
    assert_eq!(answers, ["are you there", "in three", "after"]);
}

#[tokio::test]
async fn a_text_that_is_not_utf8_closes_with_1007() {
    let server = Server::start();
    let mut client = connected(&server, "a").await;
    let frame = Frame::message(vec![b'"', 0xff, b'"'], OpCode::Data(Data::Text), true);
    client.send_message(Message::Frame(frame)).await;
    assert!(matches!(client.ended().await, Ended::Closed(1007, _)));
}

#[tokio::test]
async fn a_protocol_violation_closes_with_1002() {
    let server = Server::start();
    // An unmasked frame, and a masked frame with a reserved opcode.
    for bytes in [&b"\x81\x02{}"[..], &b"\x83\x80\0\0\0\0"[..]] {
        let mut client = connected(&server, "a").await;
        client.socket.get_mut().write_all(bytes).await.unwrap();
        assert!(matches!(client.ended().await, Ended::Closed(1002, _)), "{bytes:?}");
    }
}

#[tokio::test]
async fn a_close_frame_is_answered_with_its_code() {
    let server = Server::start();
    for code in [1000, 4321] {
        let mut client = connected(&server, "a").await;
        let close = CloseFrame { code: CloseCode::from(code), reason: "bye".into() };
        client.send_message(Message::Close(Some(close))).await;
        assert!(matches!(client.ended().await, Ended::Closed(answered, _) if answered == code));
    }
}

#[tokio::test]
async fn a_message_of_the_largest_allowed_size_is_handled() {
    let server = Server::start();
    let mut client = connected(&server, "a").await;
    let mut message = r#"{"type":"ping","id":"large"}"#.to_owned();
    message.push_str(&" ".repeat(MAX_FRAME_BYTES - message.len()));
    client.send_message(Message::text(message)).await;
    assert_eq!(client.until("pong").await["id"], "large");
}

#[tokio::test]
async fn a_message_that_is_too_large_closes_with_1009_and_does_not_affect_other_clients() {
    let server = Server::start();
    let mut other = connected(&server, "b").await;
    // One byte over the limit, and far over it.
    for size in [MAX_FRAME_BYTES + 1, 100 << 20] {
        let mut client = connected(&server, "a").await;
        let _ = futures_util::SinkExt::send(&mut client.socket, Message::text(" ".repeat(size))).await;
        assert!(matches!(client.ended().await, Ended::Closed(1009, _)), "{size}");
        other.ping().await;
    }
}
