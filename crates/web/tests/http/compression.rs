//! The compression of messages that a handshake agrees on.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::client::{bearer, handshake};
use crate::server::Server;

#[tokio::test]
async fn compression_is_agreed_on_if_a_client_offers_it() {
    let server = Server::start().await;
    for (offer, agreed) in [
        ("", None),
        ("\nSec-WebSocket-Extensions: x-other", None),
        ("\nSec-WebSocket-Extensions: permessage-deflate; server_max_window_bits=99", None),
        (
            "\nSec-WebSocket-Extensions: permessage-deflate; client_max_window_bits",
            Some("permessage-deflate; server_no_context_takeover; client_no_context_takeover"),
        ),
    ] {
        let answer = server.handshake("/supr/ws", &format!("{}{offer}", bearer())).await;
        assert_eq!((answer.status, answer.header("sec-websocket-extensions")), (101, agreed), "{offer}");
    }
    // A handshake that is refused agrees on nothing.
    let offer = "Sec-WebSocket-Extensions: permessage-deflate";
    let refused = server.handshake("/supr/ws", offer).await;
    assert_eq!((refused.status, refused.header("sec-websocket-extensions")), (401, None));
}

/// The messages right behind a handshake are read together with it.
#[tokio::test]
async fn a_compressed_message_right_behind_the_handshake_is_understood() {
    let server = Server::start().await;
    let request = handshake(
        "/supr/ws",
        &format!("Host: localhost\nSec-WebSocket-Extensions: permessage-deflate\n{}", bearer()),
    );
    let (line, headers) = request.split_once('\n').unwrap();
    let mut bytes = format!("{line} HTTP/1.1\r\n{}\r\n\r\n", headers.replace('\n', "\r\n")).into_bytes();
    // {"type":"ping","id":"early"}, in one block without compression. The mask is zero.
    let text = br#"{"type":"ping","id":"early"}"#;
    let length = u8::try_from(text.len()).unwrap();
    let payload = [&[0, length, 0, !length, 0xff][..], text, &[0]].concat();
    bytes.extend([0xc1, 0x80 | u8::try_from(payload.len()).unwrap(), 0, 0, 0, 0]);
    bytes.extend(payload);
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(&bytes).await.unwrap();
    let mut received = Vec::new();
    let is_answered = |received: &[u8]| received.windows(7).any(|window| window == b"\"early\"");
    while !is_answered(&received) {
        let read = stream.read_buf(&mut received).await.unwrap();
        assert_ne!(read, 0, "{}", String::from_utf8_lossy(&received));
    }
    assert!(String::from_utf8_lossy(&received).contains("\"pong\""));
}
