//! The exec door of `parlor serve --exec`: the handshake, today's transcripts over a WebSocket, and clients that lose their
//! connections.
#![expect(clippy::disallowed_methods, reason = "these tests start the program as a shell would")]
#![expect(clippy::unwrap_used, reason = "a test helper that cannot go on panics, as the test would")]

mod client;
mod cuts;
mod handshake;
mod http;
mod recorded;
mod rust_client;
mod server;

use std::path::Path;

use parlor_testkit::{Exec, PlayedIn, play_cases};
use serde_json::json;

use client::{Client, TranscriptPeer};
use server::Server;

#[test]
fn transcripts_of_today_over_a_websocket() {
    let all = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/transcripts/exec");
    let folder = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(all).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap();
        if name.to_str().unwrap().starts_with("today_") {
            std::fs::copy(&path, folder.path().join(name)).unwrap();
        }
    }
    let server = Server::start();
    let report = play_cases(folder.path(), &Exec, PlayedIn::Wire, |_| Ok(TranscriptPeer::new(server.exec)));
    assert!(report.passed > 10);
}

#[tokio::test]
async fn messages_may_be_binary_and_broken_ones_are_answered() {
    let server = Server::start();
    let mut client = Client::connect(server.exec).await;
    client.open(None).await.unwrap();
    client.send_binary(br#"{"id":"b","method":"environment/status","params":null}"#.to_vec()).await;
    assert_eq!(client.frame().await, json!({"id": "b", "result": {"status": "ready"}}));
    for (broken, is_binary) in [(&b"not-json"[..], false), (b"", false), (b"\xff", true)] {
        match is_binary {
            true => client.send_binary(broken.to_vec()).await,
            false => client.send_text(std::str::from_utf8(broken).unwrap()).await,
        }
        let error = client.frame().await;
        assert_eq!((&error["id"], &error["error"]["code"]), (&json!(-1), &json!(-32600)));
        let text = error["error"]["message"].as_str().unwrap();
        let prefix = "failed to parse websocket JSON-RPC message from exec-server websocket";
        assert!(text.starts_with(prefix), "{text}");
    }
}

#[tokio::test]
async fn a_message_may_come_in_many_frames_and_have_many_values() {
    let server = Server::start();
    let mut client = Client::connect(server.exec).await;
    client.open(None).await.unwrap();
    let message = json!({"id": 7, "method": "environment/status", "ignored": "x".repeat(40 << 20)});
    client.send_fragments(&message.to_string(), 1 << 20).await;
    assert_eq!(client.frame().await, json!({"id": 7, "result": {"status": "ready"}}));
    assert_eq!(client.call("process/start", vec![0; 300_000].into()).await, Err(-32602));
    assert_eq!(client.call("environment/status", json!(null)).await, Ok(json!({"status": "ready"})));
}

#[tokio::test]
async fn a_large_file_is_written_and_read() {
    let server = Server::start();
    let mut client = Client::connect(server.exec).await;
    client.open(None).await.unwrap();
    let path = format!("file://{}/large", server.home().display());
    let content: Vec<u8> = (0..3_000_000_u32).map(|number| (number % 251) as u8).collect();
    let encoded = base64_simd::STANDARD.encode_to_string(&content);
    let written = client.call("fs/writeFile", json!({"path": path, "dataBase64": encoded})).await;
    assert_eq!(written, Ok(json!({})));
    assert_eq!(std::fs::read(server.home().join("large")).unwrap(), content);
    let read = client.call("fs/readFile", json!({"path": path})).await.unwrap();
    assert_eq!(read["dataBase64"], encoded);
}

#[tokio::test]
async fn the_end_of_the_server_ends_the_processes_of_all_sessions() {
    let mut server = Server::start();
    let (mut lost, mut attached) = (Client::connect(server.exec).await, Client::connect(server.exec).await);
    let mut pids = Vec::new();
    for client in [&mut lost, &mut attached] {
        client.open(None).await.unwrap();
        client.start("p", "echo $$; exec sleep 300").await;
        pids.push(client.output("p", 0, "\n").await.trim().to_owned());
    }
    drop(lost);
    assert!(server.stop().success());
    for pid in pids {
        assert!(!Path::new("/proc").join(pid).exists());
    }
    assert_eq!(attached.close_code().await, Some(1001));
    assert!(!server.home().join("serve.json").exists());
}
