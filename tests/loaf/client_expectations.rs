//! What the original loaf client relies on in the events of a turn.

use serde_json::{Value, json};

use crate::server::{Home, Server, appended, event_types, is_ready, streamed, text};

const SCRIPT: &str = "default_agent = \"s\"\n[agents.s]\nkind = \"script\"\nfile = \"s.toml\"\n";

/// A server whose agent runs these script steps for every prompt.
async fn server_with_steps(steps: &str) -> (Home, Server) {
    let home = Home::with(SCRIPT);
    std::fs::write(home.state().join("s.toml"), format!("[otherwise]\nsteps = {steps}\n")).unwrap();
    let server = home.server().await;
    (home, server)
}

#[tokio::test]
async fn the_final_message_equals_the_streamed_text_and_precedes_the_end_of_the_turn() {
    let (_home, mut server) = server_with_steps(
        r#"[{ say = " one " }, { tool = "shell", args = { command = "true" } }, { think = "hm" }, { say = "\n\ntwo\U0001F600" }]"#,
    )
    .await;
    let session = server.session().await;
    for _ in 0..3 {
        let events = server.turn(&session, "go").await;
        let answers = appended(&events, "assistant");
        assert_eq!(answers, [" one \n\ntwo\u{1f600}"]);
        assert_eq!(answers[0], streamed(&events));
        let position = |kind: &str| event_types(&events).iter().rposition(|known| known == kind).unwrap();
        assert!(position("session.stream.chunk") < position("session.message.appended"));
        assert!(position("session.message.appended") < position("session.completed"));
        assert_eq!(position("session.completed") + 1, events.len() - 1, "only the ready status follows");
        let length = events[position("session.completed")]["payload"]["answer_length"].clone();
        assert_eq!(length, answers[0].encode_utf16().count());
        // The event before each chunk is the status that announces it.
        for (index, event) in
            events.iter().enumerate().filter(|(_, event)| event["type"] == "session.stream.chunk")
        {
            let label = text(&events[index - 1]["payload"]["status_label"]);
            let segment = &event["payload"]["chunk"]["segments"][0];
            let expected = if segment["kind"] == "answer" { "drafting response..." } else { "thinking: " };
            assert!(label.starts_with(expected), "{label}");
        }
    }
}

#[tokio::test]
async fn events_of_concurrent_tools_do_not_interleave() {
    let (home, mut server) = server_with_steps(
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
            _ => assert_eq!(open, 0, "the results come after all tools have ended"),
        }
        assert!((0..=1).contains(&open), "the events of two tools interleave");
    }
    let results = tools.last().unwrap();
    assert_eq!(results["type"], "session.tool.results");
    let executed = results["payload"]["data"]["executed"].as_array().unwrap();
    assert_eq!((executed.len(), &executed[0]["ok"], &executed[1]["ok"]), (2, &json!(true), &json!(false)));
}

#[tokio::test]
async fn the_startup_sequence_of_the_original_client_works() {
    let home = Home::new();
    let mut server = home.server().await;
    let params = json!({"client_name": "loaf_tui", "client_version": "dev"});
    server.call("rpc.handshake", params).await;
    let session = text(&server.call("session.create", json!({"title": "tui"})).await["session_id"]);
    server.write(b"{\"jsonrpc\":\"2.0\",\"id\":900,\"method\":\"state.get\"}\n").await;
    let state = server.response(900).await["result"].clone();
    let models = server.call("model.list", json!({})).await;
    let chosen = &state["model"]["selectedModel"];
    assert!(models["models"].as_array().unwrap().iter().any(|model| model["id"] == *chosen), "{models}");
    assert!(state["auth"].is_object() && state["onboarding"]["completed"] == false);
    let session_state = server.call("session.get", json!({"session_id": session})).await;
    for key in
        ["pending", "statusLabel", "messages", "history", "contextTokenEstimate", "contextTokenBreakdown"]
    {
        assert!(session_state.get(key).is_some(), "{key} in {session_state}");
    }
    let send = json!({"session_id": session, "text": "/say hi", "images": [], "enqueue": false});
    server.call("session.send", send).await;
    let events = server.events(&session, is_ready).await;
    assert_eq!(appended(&events, "assistant"), ["hi"]);
    server.send_request("system.shutdown", json!({"reason": "tui_exit"})).await;
    let (_, status) = server.wait_for_exit().await;
    assert!(status.success());
}

#[tokio::test]
async fn a_steer_during_a_tool_round_is_applied_in_the_next_round() {
    let (home, mut server) = server_with_steps(
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
    let position = |wanted: &str| {
        events
            .iter()
            .position(|event| event["type"] == wanted || event["payload"]["status_label"] == wanted)
            .unwrap()
    };
    assert!(position("session.tool.results") < position("session.message.appended"));
    assert!(position("session.message.appended") < position("steer applied; continuing..."));
    assert!(position("steer applied; continuing...") < position("session.stream.chunk"));
}
