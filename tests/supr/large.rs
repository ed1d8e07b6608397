//! Large messages: the memory that they take is given back, and those that stop halfway take it from nobody.

use futures_util::{SinkExt, StreamExt};
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::task::JoinSet;
use tokio_tungstenite::tungstenite::Message;

use crate::client::{Client, Ended, patiently};
use crate::server::{Server, soak};

const MIB: usize = 1 << 20;

/// A message as large as files that come along make it.
const LARGE: usize = 15 * MIB;

/// What `parlor serve` may have after large messages, in KiB: it starts with less than a third of this (the debug build,
/// its page and its log included), and the database keeps some.
const AFTER_KIB: u64 = 96 << 10;

/// What it may have had at most while 40 clients sent halves, in KiB: the budget, one message more, and each twice, since
/// buffers grow and texts are copied; without a budget the halves alone are more.
const HALVES_KIB: u64 = 224 << 10;

/// Says something so large that it is `bytes` long, and waits for the answer.
async fn say_large(client: &mut Client, bytes: usize) {
    let text = format!("/say {}", "x".repeat(bytes));
    client.send(&json!({"type": "message.send", "payload": {"content": text}})).await;
    client.until("run.completed").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_large_messages_took_is_given_back() {
    // Clients that wait for their turn here answer no ping.
    let (server, messages) = (Server::with("read_timeout = 3600"), soak(5, 60));
    let mut clients = Vec::new();
    for number in 0..messages {
        let mut client = Client::connect(server.http, &format!("session_id=large{number}")).await;
        patiently(say_large(&mut client, LARGE)).await;
        client.ping().await;
        clients.push(client);
    }
    let after = server.status_kib("VmRSS");
    assert!(after < AFTER_KIB, "{messages} messages of {LARGE} bytes left {after} KiB behind");
    for mut client in clients {
        client.ping().await;
    }
}

/// The beginning of a message of `bytes`, from a client whose mask changes nothing.
fn half(bytes: usize) -> Vec<u8> {
    let mut half = [&[0x81, 0xff][..], &(bytes as u64).to_be_bytes(), &[0; 4]].concat();
    half.resize(half.len() + bytes / 2, b'x');
    half
}

#[tokio::test(flavor = "multi_thread")]
async fn halves_of_large_messages_take_memory_from_nobody() {
    let server = Server::with("read_timeout = 3600\n[serve]\nmax_frame_memory = \"64MiB\"");
    let (told, mut closed) = tokio::sync::mpsc::channel(40);
    let mut stalled = JoinSet::new();
    for number in 0..40 {
        let (mut client, told) =
            (Client::connect(server.http, &format!("session_id=half{number}")).await, told.clone());
        stalled.spawn(async move {
            // Most of them are not read to here: there is no memory for them.
            let _ = client.socket.get_mut().write_all(&half(LARGE)).await;
            while let Some(Ok(message)) = client.socket.next().await {
                if let Message::Close(Some(close)) = message {
                    let _ = told.send((u16::from(close.code), close.reason.to_string())).await;
                    return;
                }
            }
        });
    }
    // Others go on meanwhile, also once it is used up.
    let mut other = Client::connect(server.http, "session_id=other").await;
    for _ in 0..5 {
        other.ping().await;
        other.say("/say hello").await;
        other.until("run.completed").await;
        other.say("/wait 60").await;
        other.until("run.started").await;
        other.send(&json!({"type": "run.stop"})).await;
        assert_eq!(other.until("run.failed").await["data"]["error_code"], "RUN_CANCELLED");
    }
    // Whoever stalls while others wait is told so.
    let (code, reason) = patiently(closed.recv()).await.unwrap();
    assert_eq!((code, reason.contains("others wait")), (1013, true), "{reason}");
    let most = server.status_kib("VmHWM");
    assert!(most < HALVES_KIB, "halves took {most} KiB");
    stalled.shutdown().await;
    // What they held is there again.
    patiently(say_large(&mut other, LARGE)).await;
    other.socket.close(None).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_larger_than_the_budget_is_too_large() {
    let server = Server::with("[serve]\nmax_frame_memory = \"2MiB\"");
    let mut client = Client::connect(server.http, "session_id=one").await;
    patiently(say_large(&mut client, MIB)).await;
    let _ = client.socket.send(Message::text("x".repeat(3 * MIB))).await;
    assert!(matches!(patiently(client.ended()).await, Ended::Closed(1009, _)));
}

/// What frames of many tiny values may add to what the server has, in KiB: each is there once, and twice while it is read.
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
    let taken = server.status_kib("VmHWM").saturating_sub(before);
    assert!(taken < TINY_VALUES_KIB, "three frames of 6 MiB took {taken} KiB");
}
