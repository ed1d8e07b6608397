//! Large messages: the server frees their memory, and clients that stop halfway through one do not block others.

use futures_util::{SinkExt, StreamExt};
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::task::JoinSet;
use tokio_tungstenite::tungstenite::Message;

use crate::client::{Client, Ended, within_timeout};
use crate::server::{Server, soak};

const MIB: usize = 1 << 20;

/// The size of a message with attached files.
const LARGE: usize = 15 * MIB;

/// How much memory `parlor serve` may have after large messages, in KiB. It starts with less than a third of this (in
/// the debug build, with its page and its log), and the database caches some.
const AFTER_KIB: u64 = 96 << 10;

/// The highest memory it may have had while 40 clients sent half a message each, in KiB: the budget and one more message,
/// twice, since buffers grow and texts are copied. Without a budget the halves alone take more.
const HALVES_KIB: u64 = 224 << 10;

/// Sends a message of about `bytes` bytes and waits for the end of its run.
async fn send_large_text(client: &mut Client, bytes: usize) {
    let text = format!("/say {}", "x".repeat(bytes));
    client.send(&json!({"type": "message.send", "payload": {"content": text}})).await;
    client.until("run.completed").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_of_large_messages_is_freed() {
    // Clients that this test does not read from answer no pings.
    let (server, messages) = (Server::with("read_timeout = 3600"), soak(5, 60));
    let mut clients = Vec::new();
    for number in 0..messages {
        let mut client = Client::connect(server.http, &format!("session_id=large{number}")).await;
        within_timeout(send_large_text(&mut client, LARGE)).await;
        client.ping().await;
        clients.push(client);
    }
    let after = server.status_kib("VmRSS");
    assert!(after < AFTER_KIB, "{messages} messages of {LARGE} bytes left {after} KiB behind");
    for mut client in clients {
        client.ping().await;
    }
}

/// The first half of a WebSocket message of `bytes` bytes, with a mask of zeros.
fn half(bytes: usize) -> Vec<u8> {
    let mut half = [&[0x81, 0xff][..], &(bytes as u64).to_be_bytes(), &[0; 4]].concat();
    half.resize(half.len() + bytes / 2, b'x');
    half
}

#[tokio::test(flavor = "multi_thread")]
async fn halves_of_large_messages_do_not_block_other_clients() {
    let server = Server::with("read_timeout = 3600\n[serve]\nmax_frame_memory = \"64MiB\"");
    let (close_sender, mut closed) = tokio::sync::mpsc::channel(40);
    let mut stalled = JoinSet::new();
    for number in 0..40 {
        let mut client = Client::connect(server.http, &format!("session_id=half{number}")).await;
        let close_sender = close_sender.clone();
        stalled.spawn(async move {
            // The server does not read most of these halves, since it has no memory for them.
            let _ = client.socket.get_mut().write_all(&half(LARGE)).await;
            while let Some(Ok(message)) = client.socket.next().await {
                if let Message::Close(Some(close)) = message {
                    let _ = close_sender.send((u16::from(close.code), close.reason.to_string())).await;
                    return;
                }
            }
        });
    }
    // The server serves another client meanwhile, also once the budget is used up.
    let mut other = Client::connect(server.http, "session_id=other").await;
    for _ in 0..5 {
        other.ping().await;
        other.send_text("/say hello").await;
        other.until("run.completed").await;
        other.send_text("/wait 60").await;
        other.until("run.started").await;
        other.send(&json!({"type": "run.stop"})).await;
        assert_eq!(other.until("run.failed").await["data"]["error_code"], "RUN_CANCELLED");
    }
    // A client that stalls while others wait is closed with that reason.
    let (code, reason) = within_timeout(closed.recv()).await.unwrap();
    assert_eq!((code, reason.contains("others wait")), (1013, true), "{reason}");
    let most = server.status_kib("VmHWM");
    assert!(most < HALVES_KIB, "halves took {most} KiB");
    stalled.shutdown().await;
    // Their memory is available again.
    within_timeout(send_large_text(&mut other, LARGE)).await;
    other.socket.close(None).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_larger_than_the_memory_budget_closes_with_1009() {
    let server = Server::with("[serve]\nmax_frame_memory = \"2MiB\"");
    let mut client = Client::connect(server.http, "session_id=one").await;
    within_timeout(send_large_text(&mut client, MIB)).await;
    let _ = client.socket.send(Message::text("x".repeat(3 * MIB))).await;
    assert!(matches!(within_timeout(client.ended()).await, Ended::Closed(1009, _)));
}

/// How much frames of many tiny values may add to the server's memory, in KiB: each frame once, and twice while it is
/// parsed.
const TINY_VALUES_KIB: u64 = 64 << 10;

#[tokio::test(flavor = "multi_thread")]
async fn frames_of_many_tiny_values_take_little_more_than_their_bytes() {
    let server = Server::with("read_timeout = 3600");
    let before = server.status_kib("VmRSS");
    let items = vec!["[0]"; 6 * MIB / 4].join(",");
    let mut attackers = JoinSet::new();
    for number in 0..3 {
        let frame = format!(r#"{{"type":"ping","id":"last","payload":{{"a":[{items}]}}}}"#);
        let mut client = Client::connect(server.http, &format!("session_id=tiny{number}")).await;
        attackers.spawn(async move {
            client.socket.send(Message::text(frame)).await.unwrap();
            assert_eq!(client.until("pong").await["id"], "last");
        });
    }
    let mut other = Client::connect(server.http, "session_id=other").await;
    while !attackers.is_empty() {
        other.ping().await;
        while let Some(ended) = attackers.try_join_next() {
            ended.unwrap();
        }
    }
    let growth = server.status_kib("VmHWM").saturating_sub(before);
    assert!(growth < TINY_VALUES_KIB, "three frames of 6 MiB took {growth} KiB");
}
