//! `parlor replay --as loaf` prints the events that the client got.

use serde_json::{Value, json};
use tokio::process::Command;

use crate::server::{Home, PARLOR, text, within_timeout};

/// Events without times and the id of the chat, which the log does not have; the pieces of each text are joined.
fn comparable(events: Vec<Value>) -> Vec<Value> {
    let mut joined: Vec<Value> = Vec::new();
    for mut event in events {
        event["timestamp"] = Value::Null;
        event["payload"]["session_id"] = Value::Null;
        // Each piece of a text has such a status before it.
        let is_repeated = event["type"] == "session.status"
            && joined.iter().rev().find(|event| event["type"] == "session.status") == Some(&event);
        if is_repeated {
            continue;
        }
        let is_chunk = |event: &Value| event["type"] == "session.stream.chunk";
        match joined.last_mut().filter(|last| is_chunk(last) && is_chunk(&event)) {
            Some(last) => {
                let (one, two) = (&last["payload"]["chunk"], &event["payload"]["chunk"]);
                let whole = text(&one["answerText"]) + &text(&two["answerText"]);
                last["payload"]["chunk"]["segments"][0]["text"] = Value::from(whole.as_str());
                last["payload"]["chunk"]["answerText"] = Value::from(whole);
            }
            None => joined.push(event),
        }
    }
    joined
}

#[tokio::test]
async fn a_replay_has_the_events_that_the_client_got() {
    let home = Home::new();
    let mut server = home.server().await;
    let session = server.session().await;
    // The creation of the session is not an event of a turn.
    server.event("state.changed").await;
    let mut sent = Vec::new();
    for prompt in ["/say one", "!echo two", "/fail four", "/say five"] {
        sent.extend(server.turn(&session, prompt).await);
    }
    let state = server.call("session.get", json!({"session_id": session})).await;
    let stored = text(&state["activeSessionId"]);

    let mut replay = Command::new(PARLOR);
    replay.args(["replay", &stored, "--as", "loaf"]);
    replay.env("PARLOR_HOME", home.state()).env("HOME", home.folder()).current_dir(home.folder());
    for name in ["OPENAI_API_KEY", "ANTHROPIC_API_KEY", "OPENROUTER_API_KEY", "GEMINI_API_KEY"] {
        replay.env_remove(name);
    }
    let output = within_timeout("the replay", replay.output()).await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = String::from_utf8(output.stdout).unwrap();
    let lines = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let events = lines.map(|line| {
        assert_eq!(line["method"], "event");
        line["params"].clone()
    });
    assert_eq!(comparable(events.collect()), comparable(sent));
}
