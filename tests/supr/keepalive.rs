//! Pings of the server, and clients that send nothing.

use futures_util::StreamExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_tungstenite::tungstenite::Message;

use crate::client::{Client, within_timeout};
use crate::server::Server;

/// The server pings every second and drops a client after two seconds without an answer.
const SHORT: &str = "ping_interval = 1\nread_timeout = 2";

#[tokio::test]
async fn a_client_that_answers_pings_stays_connected() {
    let server = Server::with(SHORT);
    let mut client = Client::connect(server.http, "session_id=a").await;
    let mut pings = 0;
    // Four intervals are twice the read timeout.
    while pings < 4 {
        // tungstenite answers pings when it reads.
        if let Message::Ping(payload) = client.socket.next().await.unwrap().unwrap() {
            assert!(payload.is_empty());
            pings += 1;
        }
    }
    client.ping().await;
}

#[tokio::test]
async fn a_client_that_does_not_answer_pings_is_dropped_even_if_it_sends_pings() {
    let server = Server::with(SHORT);
    for sends_pings in [false, true] {
        let mut client = Client::connect(server.http, "session_id=a").await;
        // The raw stream below the WebSocket does not answer pings.
        let stream = client.socket.get_mut();
        let (mut bytes, mut received) = ([0; 4096], Vec::new());
        within_timeout(async {
            while !sends_pings || stream.write_all(b"\x89\x80\0\0\0\0").await.is_ok() {
                match stream.read(&mut bytes).await {
                    Ok(0) | Err(_) => break,
                    Ok(count) => received.extend_from_slice(&bytes[..count]),
                }
            }
        })
        .await;
        assert!(received.windows(2).any(|frame| frame == b"\x89\0"), "the server pinged it first");
        assert!(!received.windows(2).any(|frame| frame[0] == 0x88), "the server sends no close frame");
    }
}

#[tokio::test]
async fn any_message_resets_the_read_timeout() {
    // No pings: answering them would also reset the timeout.
    let server = Server::with("ping_interval = 3600\nread_timeout = 2");
    let (mut active, mut silent) = (
        Client::connect(server.http, "session_id=a").await,
        Client::connect(server.http, "session_id=b").await,
    );
    let mut rounds = 0;
    let silent_ended = silent.ended();
    tokio::pin!(silent_ended);
    within_timeout(async {
        loop {
            tokio::select! {
                _ = &mut silent_ended => break,
                () = active.ping() => rounds += 1,
            }
        }
    })
    .await;
    // The active client connected first and is still connected.
    active.ping().await;
    assert!(rounds > 0);
}
