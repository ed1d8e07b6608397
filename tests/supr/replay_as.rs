//! `parlor replay --as supr` prints what a socket got.

use std::process::Command;

use serde_json::Value;

use crate::client::Client;
use crate::server::{PARLOR, Server};

/// Frames with the pieces of each text joined, and without the times of frames that are not in the log.
fn comparable(frames: impl IntoIterator<Item = Value>) -> Vec<Value> {
    let mut joined: Vec<Value> = Vec::new();
    for mut frame in frames {
        if frame["event_type"].is_null() {
            frame["timestamp"] = Value::Null;
        }
        let text = |frame: &Value| frame["payload"]["text"].as_str().map(str::to_owned);
        let is_delta = matches!(frame["type"].as_str(), Some("message.delta" | "reasoning.delta"));
        match joined.last_mut().filter(|last| is_delta && last["type"] == frame["type"]) {
            Some(last) => {
                let whole = text(last).unwrap() + &text(&frame).unwrap();
                last["payload"]["text"] = Value::from(whole);
            }
            None => joined.push(frame),
        }
    }
    joined
}

#[tokio::test]
async fn a_replay_has_the_frames_that_a_socket_got() {
    let server = Server::start();
    let mut client = Client::connect(server.http, "session_id=a&stream=1").await;
    let mut sent = Vec::new();
    for text in ["/say one", "!echo two", "/think three", "/fail four"] {
        client.send_text(text).await;
        loop {
            let frame = client.next().await.unwrap();
            let is_end = matches!(frame["event_type"].as_str(), Some("run.completed" | "run.failed"));
            sent.push(frame);
            if is_end {
                break;
            }
        }
    }
    // The output of a tool while it runs is not in the log.
    sent.retain(|frame| frame["type"] != "tool.output");
    let replay =
        Command::new(PARLOR).args(["replay", "a", "--as", "supr"]).env("PARLOR_HOME", &server.home).output();
    let output = replay.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = String::from_utf8(output.stdout).unwrap();
    let frames = lines.lines().map(|line| serde_json::from_str(line).unwrap());
    assert_eq!(comparable(frames), comparable(sent));
}
