//! Pings, and clients that say nothing.

use futures_util::StreamExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_tungstenite::tungstenite::Message;

use crate::client::{Client, patiently};
use crate::server::Server;

/// Pings come this often, and silence may last twice as long, in seconds.
const SHORT: &str = "ping_interval = 1\nread_timeout = 2";

#[tokio::test]
async fn pings_come_and_whoever_answers_them_stays() {
    let server = Server::with(SHORT);
    let mut client = Client::connect(server.http, "session_id=a").await;
    let mut pings = 0;
    // Four intervals are twice as long as silence may last.
    while pings < 4 {
        // Reading answers pings.
        if let Message::Ping(payload) = client.socket.next().await.unwrap().unwrap() {
            assert!(payload.is_empty());
            pings += 1;
        }
    }
    client.ping().await;
}

#[tokio::test]
async fn whoever_does_not_answer_is_dropped_and_pings_of_its_own_do_not_save_it() {
    let server = Server::with(SHORT);
    for pings in [false, true] {
        let mut client = Client::connect(server.http, "session_id=a").await;
        // Below the protocol nobody answers a ping.
        let stream = client.socket.get_mut();
        let (mut bytes, mut all) = ([0; 4096], Vec::new());
        patiently(async {
            while !pings || stream.write_all(b"\x89\x80\0\0\0\0").await.is_ok() {
                match stream.read(&mut bytes).await {
                    Ok(0) | Err(_) => break,
                    Ok(count) => all.extend_from_slice(&bytes[..count]),
                }
            }
        })
        .await;
        assert!(all.windows(2).any(|frame| frame == b"\x89\0"), "it was pinged before");
        assert!(!all.windows(2).any(|frame| frame[0] == 0x88), "it is dropped without a goodbye");
    }
}

#[tokio::test]
async fn any_message_counts_as_a_sign_of_life() {
    // Pings would save it, if there were any.
    let server = Server::with("ping_interval = 3600\nread_timeout = 2");
    let (mut alive, mut silent) = (
        Client::connect(server.http, "session_id=a").await,
        Client::connect(server.http, "session_id=b").await,
    );
    let mut rounds = 0;
    let silence = silent.ended();
    tokio::pin!(silence);
    patiently(async {
        loop {
            tokio::select! {
                _ = &mut silence => break,
                () = alive.ping() => rounds += 1,
            }
        }
    })
    .await;
    // It came first and has outlived the other.
    alive.ping().await;
    assert!(rounds > 0);
}
