//! `parlor replay --as synaps` prints what the parent got.

use serde_json::{Value, json};
use tokio::process::Command;

use crate::child::{Home, text, within_timeout};

/// The frames with the pieces of each text joined, and without the ids of prompts, which the log does not have.
fn comparable(frames: Vec<Value>) -> Vec<Value> {
    let mut joined: Vec<Value> = Vec::new();
    for mut frame in frames {
        if let Some(frame) = frame.as_object_mut() {
            frame.remove("id");
        }
        let is_same_text = |last: &&mut Value| {
            let (one, two) = (&last["event"], &frame["event"]);
            two["delta"].is_string() && one["type"] == two["type"] && one["tool_id"] == two["tool_id"]
        };
        match joined.last_mut().filter(is_same_text) {
            Some(last) => {
                let whole = text(&last["event"]["delta"]) + &text(&frame["event"]["delta"]);
                last["event"]["delta"] = Value::from(whole);
            }
            None => joined.push(frame),
        }
    }
    joined
}

#[tokio::test]
async fn a_replay_has_the_frames_that_the_parent_got() {
    let home = Home::new();
    let mut child = home.child(&["--model", "local"]).await;
    let mut sent = vec![
        json!({"type": "ready", "session_id": child.session, "model": child.model, "protocol_version": 1}),
    ];
    for (id, prompt) in [("1", "/say one"), ("2", "!echo two"), ("3", "/think three"), ("4", "/fail four")] {
        child.prompt(id, prompt).await;
        sent.extend(child.until_response(id).await);
    }
    child.start_turn("5", "/wait 300").await;
    child.send(json!({"type": "abort", "id": "a"})).await;
    let aborted = child.until_response("5").await;
    assert_eq!(aborted.last().map(|frame| &frame["cancelled"]), Some(&json!(true)));

    let mut replay = Command::new(crate::child::PARLOR);
    replay.args(["replay", &child.session, "--as", "synaps"]);
    replay.env("PARLOR_HOME", home.state()).env("HOME", home.folder());
    let output = within_timeout("the replay", replay.output()).await.expect("the program starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let printed = String::from_utf8(output.stdout).expect("frames are UTF-8");
    let frames = printed.lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect();
    let mut frames = comparable(frames);
    let sent = comparable(sent);
    let last = frames.split_off(sent.len());
    assert_eq!(frames, sent);
    let ends: Vec<&str> = last.iter().filter_map(|frame| frame["type"].as_str()).collect();
    assert_eq!(ends.last(), Some(&"response"), "{last:?}");
    assert_eq!(last.last().map(|frame| &frame["cancelled"]), Some(&json!(true)));
}
