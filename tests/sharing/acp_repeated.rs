//! What must hold each time at the ACP door: the order of frames, exactly one answer, sessions that outlive their process.
//! `PARLOR_SOAK=1` repeats it more often.

use std::collections::HashMap;

use serde_json::{Value, json};

use crate::acp::Acp;
use crate::client::Client;
use crate::frames::text;
use crate::home::Home;
use crate::soak;

/// How many sessions are opened before one is closed: fewer than a connection may have.
const OPEN_SESSIONS: usize = 32;

fn session_of(frame: &Value) -> Option<&str> {
    frame["params"]["sessionId"].as_str()
}

#[tokio::test]
async fn no_update_comes_before_the_answer_of_a_new_session() {
    let home = Home::new();
    let mut editor = Acp::connect(&home).await;
    let mut opened = Vec::new();
    while opened.len() < soak(100, 1000) {
        let mut requests = Vec::new();
        for _ in 0..OPEN_SESSIONS {
            let new = json!({"cwd": home.folder(), "mcpServers": []});
            requests.push(editor.request("session/new", new).await);
        }
        let mut sessions = Vec::new();
        for request in requests {
            sessions.push(text(&editor.answer(request).await["result"]["sessionId"]));
        }
        for session in &sessions {
            editor.call("session/close", json!({"sessionId": session})).await;
        }
        opened.extend(sessions);
        editor.process.frames.skip_received();
    }
    let mut first_frames = HashMap::new();
    for frame in editor.process.frames.all() {
        let answered = frame["result"]["sessionId"].as_str().map(|session| (session, "answer"));
        if let Some((session, kind)) = answered.or(session_of(&frame).map(|session| (session, "update"))) {
            first_frames.entry(session.to_owned()).or_insert(kind);
        }
    }
    assert_eq!(first_frames.len(), opened.len());
    assert!(opened.iter().all(|session| first_frames[session] == "answer"));
}

#[tokio::test]
async fn a_cancellation_that_races_with_the_end_leaves_exactly_one_answer() {
    let home = Home::new();
    let mut editor = Acp::start(&home).await;
    let mut prompts = Vec::new();
    for round in 0..soak(200, 1000) {
        let prompt = json!([{"type": "text", "text": "/say x"}]);
        let id =
            editor.request("session/prompt", json!({"sessionId": editor.session, "prompt": prompt})).await;
        if round % 2 == 0 {
            editor.process.frames.find("an update", |frame| session_of(frame).is_some()).await;
        }
        editor.stop().await;
        let answer = editor.answer(id).await;
        let reason = text(&answer["result"]["stopReason"]);
        assert!(["end_turn", "cancelled"].contains(&reason.as_str()), "{answer}");
        editor.process.frames.skip_received();
        prompts.push(id);
    }
    // Nothing sticks to the next turn.
    assert_eq!(editor.turn("/say on").await, "end_turn");
    let mut answers = HashMap::new();
    for frame in editor.process.frames.all() {
        *answers.entry(frame["id"].as_u64().unwrap_or_default()).or_insert(0) += 1;
    }
    assert!(prompts.iter().all(|id| answers[id] == 1));
}

#[tokio::test]
async fn a_session_is_resumed_in_many_processes_in_turn() {
    let home = Home::new();
    let mut editor = Acp::start(&home).await;
    for _ in 0..soak(10, 100) {
        editor.process.close_stdin();
        assert!(editor.process.wait().await.success());
        let mut next = Acp::connect(&home).await;
        next.session = editor.session;
        let resume = json!({"sessionId": next.session, "cwd": home.folder()});
        next.call("session/resume", resume).await;
        assert_eq!(next.turn("/say again").await, "end_turn");
        editor = next;
    }
}

#[tokio::test]
async fn pages_of_sessions_have_each_session_once_and_are_never_empty() {
    let home = Home::new();
    let elsewhere = home.folder().join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    let mut editor = Acp::connect(&home).await;
    for number in 0..51 {
        let folder = if number % 25 == 0 { elsewhere.as_path() } else { home.folder() };
        let new = editor.call("session/new", json!({"cwd": folder, "mcpServers": []})).await;
        editor.call("session/close", json!({"sessionId": new["sessionId"]})).await;
    }
    let ids = |page: &Value| -> Vec<String> {
        page["sessions"].as_array().unwrap().iter().map(|session| text(&session["sessionId"])).collect()
    };
    let first = editor.call("session/list", json!({})).await;
    assert_eq!(ids(&first).len(), 50);
    // The last session of a page may be gone when the next page is asked for.
    let gone = ids(&first).pop().unwrap();
    editor.call("session/delete", json!({"sessionId": gone})).await;
    let second = editor.call("session/list", json!({"cursor": first["nextCursor"]})).await;
    assert_eq!((ids(&second).len(), second.get("nextCursor")), (1, None));
    assert!(!ids(&first).contains(&ids(&second)[0]));
    let filtered = editor.call("session/list", json!({"cwd": elsewhere})).await;
    assert!(ids(&filtered).len() == 3 && filtered.get("nextCursor").is_none(), "{filtered}");
}

#[tokio::test]
async fn a_choice_of_another_editor_is_shown_and_counts() {
    let home = Home::new();
    let script = "[otherwise]\nsteps = [{ say = \"from the script\" }]\n";
    home.configure("demo.toml", script);
    home.configure("parlor.toml", "[agents.demo]\nkind = \"script\"\nfile = \"demo.toml\"\n");
    let mut first = Acp::start(&home).await;
    let mut second = Acp::join(&home, &first.session).await;
    let choice = json!({"sessionId": first.session, "configId": "model", "value": "demo"});
    second.call("session/set_config_option", choice).await;
    let is_shown = |frame: &Value| {
        let update = &frame["params"]["update"];
        update["sessionUpdate"] == "config_option_update"
            && update["configOptions"][0]["currentValue"] == "demo"
    };
    first.process.frames.until("the choice", is_shown).await;
    first.send("hello").await;
    first.sees_text("from the script").await;
}

#[tokio::test]
async fn a_long_output_ends_in_a_display_terminal_as_it_ended() {
    let home = Home::new();
    let mut editor = Acp::connect_with(&home, json!({"_meta": {"terminal_output": true}})).await;
    let new = editor.call("session/new", json!({"cwd": home.folder(), "mcpServers": []})).await;
    editor.session = text(&new["sessionId"]);
    // More than the engine shows live, in frames that a client can read.
    assert_eq!(editor.turn("!seq 1 300000").await, "end_turn");
    let frames = editor.process.frames.all();
    let data = |frame: &Value| {
        Some(frame["params"]["update"]["_meta"]["terminal_output"]["data"].as_str()?.to_owned())
    };
    let shown: String = frames.iter().filter_map(data).collect();
    assert!(shown.starts_with("1\n2\n3\n") && shown.ends_with("\n299999\n300000\n"), "{}", shown.len());
    assert!(frames.iter().all(|frame| frame.to_string().len() < 1 << 20));
}
