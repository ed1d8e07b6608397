//! What the real client relies on, turn by turn.

use serde_json::{Value, json};

use crate::server::{Home, Server, appended, is_ready, kinds, streamed, text};

const SCRIPT: &str = "default_agent = \"s\"\n[agents.s]\nkind = \"script\"\nfile = \"s.toml\"\n";

/// A server whose agent performs these steps, whatever is said.
async fn scripted(steps: &str) -> (Home, Server) {
    let home = Home::with(SCRIPT);
    std::fs::write(home.state().join("s.toml"), format!("[otherwise]\nsteps = {steps}\n")).unwrap();
    let server = home.server().await;
    (home, server)
}

#[tokio::test]
async fn the_answer_is_what_was_streamed_and_comes_before_the_end() {
    let (_home, mut server) = scripted(
        r#"[{ say = " one " }, { tool = "shell", args = { command = "true" } }, { think = "hm" }, { say = "\n\ntwo\U0001F600" }]"#,
    )
    .await;
    let session = server.session().await;
    for _ in 0..3 {
        let events = server.turn(&session, "go").await;
        let answers = appended(&events, "assistant");
        assert_eq!(answers, [" one \n\ntwo\u{1f600}"]);
        assert_eq!(answers[0], streamed(&events));
        let place = |kind: &str| kinds(&events).iter().rposition(|known| known == kind).unwrap();
        assert!(place("session.stream.chunk") < place("session.message.appended"));
        assert!(place("session.message.appended") < place("session.completed"));
        assert_eq!(place("session.completed") + 1, events.len() - 1, "the last one says that it is ready");
        let length = events[place("session.completed")]["payload"]["answer_length"].clone();
        assert_eq!(length, answers[0].encode_utf16().count());
        // Each piece is announced, and nothing else stands between.
        for (at, event) in
            events.iter().enumerate().filter(|(_, event)| event["type"] == "session.stream.chunk")
        {
            let label = text(&events[at - 1]["payload"]["status_label"]);
            let segment = &event["payload"]["chunk"]["segments"][0];
            let expected = if segment["kind"] == "answer" { "drafting response..." } else { "thinking: " };
            assert!(label.starts_with(expected), "{label}");
        }
    }
}

#[tokio::test]
async fn tools_that_work_side_by_side_are_told_one_after_another() {
    let (home, mut server) = scripted(
        r#"[{ tool = "read_file", args = { path = "a" } }, { tool = "read_file", args = { path = "none" } }, { say = "done" }]"#,
    )
    .await;
    std::fs::write(home.folder().join("a"), "text").unwrap();
    let session = server.session().await;
    let events = server.turn(&session, "go").await;
    let tools: Vec<&Value> =
        events.iter().filter(|event| text(&event["type"]).starts_with("session.tool.")).collect();
    let mut open = 0;
    for event in &tools {
        match event["type"].as_str().unwrap() {
            "session.tool.call.started" => open += 1,
            "session.tool.call.completed" => open -= 1,
            _ => assert_eq!(open, 0, "results come when all are done"),
        }
        assert!((0..=1).contains(&open), "rows interleave");
    }
    let results = tools.last().unwrap();
    assert_eq!(results["type"], "session.tool.results");
    let executed = results["payload"]["data"]["executed"].as_array().unwrap();
    assert_eq!((executed.len(), &executed[0]["ok"], &executed[1]["ok"]), (2, &json!(true), &json!(false)));
}

#[tokio::test]
async fn the_start_of_the_real_client_works() {
    let home = Home::new();
    let mut server = home.server().await;
    let params = json!({"client_name": "loaf_tui", "client_version": "dev"});
    server.call("rpc.handshake", params).await;
    let session = text(&server.call("session.create", json!({"title": "tui"})).await["session_id"]);
    server.write(b"{\"jsonrpc\":\"2.0\",\"id\":900,\"method\":\"state.get\"}\n").await;
    let state = server.answer(900).await["result"].clone();
    let models = server.call("model.list", json!({})).await;
    let chosen = &state["model"]["selectedModel"];
    assert!(models["models"].as_array().unwrap().iter().any(|model| model["id"] == *chosen), "{models}");
    assert!(state["auth"].is_object() && state["onboarding"]["completed"] == false);
    let told = server.call("session.get", json!({"session_id": session})).await;
    for key in
        ["pending", "statusLabel", "messages", "history", "contextTokenEstimate", "contextTokenBreakdown"]
    {
        assert!(told.get(key).is_some(), "{key} in {told}");
    }
    let send = json!({"session_id": session, "text": "/say hi", "images": [], "enqueue": false});
    server.call("session.send", send).await;
    let events = server.events(&session, is_ready).await;
    assert_eq!(appended(&events, "assistant"), ["hi"]);
    server.ask("system.shutdown", json!({"reason": "tui_exit"})).await;
    let (_, status) = server.end().await;
    assert!(status.success());
}

#[tokio::test]
async fn a_steer_in_a_tool_round_is_applied_in_the_next() {
    let (home, mut server) = scripted(
        r#"[{ tool = "shell", args = { command = "until [ -e go ]; do sleep 0.02; done" } }, { say = "done" }]"#,
    )
    .await;
    let session = server.session().await;
    server.send(&session, "go").await;
    server.event("session.tool.call.started").await;
    let steered = server.call("session.steer", json!({"session_id": session, "text": "left"})).await;
    assert_eq!(steered["accepted"], true);
    std::fs::write(home.folder().join("go"), "").unwrap();
    let events = server.events(&session, is_ready).await;
    assert_eq!(appended(&events, "user"), ["left"]);
    let place = |wanted: &str| {
        events
            .iter()
            .position(|event| event["type"] == wanted || event["payload"]["status_label"] == wanted)
            .unwrap()
    };
    assert!(place("session.tool.results") < place("session.message.appended"));
    assert!(place("session.message.appended") < place("steer applied; continuing..."));
    assert!(place("steer applied; continuing...") < place("session.stream.chunk"));
}
