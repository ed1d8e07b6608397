//! Tests with several sessions, two servers, or more chats than a transcript should have.

use serde_json::json;

use crate::server::{Home, appended, event_types, is_ready, text, within_timeout};

#[tokio::test]
async fn a_chat_is_found_by_an_id_prefix_unless_two_chats_share_it() {
    let home = Home::new();
    let mut server = home.server().await;
    // Of seventeen hexadecimal ids, at least two have the same first digit.
    let mut chats: Vec<String> = Vec::new();
    for _ in 0..17 {
        let session = server.session().await;
        server.turn(&session, "/say x").await;
        let state = server.call("session.get", json!({"session_id": session})).await;
        chats.push(text(&state["activeSessionId"]));
    }
    let first = |chat: &String| chat.chars().next().unwrap();
    let shared =
        chats.iter().find(|chat| chats.iter().filter(|other| first(other) == first(chat)).count() > 1);
    let prefix = first(shared.unwrap()).to_string();
    let error = server.call_error("history.get", json!({"id": prefix})).await;
    assert_eq!(
        (&error["code"], &error["message"]),
        (&json!(-32603), &json!(format!("no saved chat matched id: {prefix}")))
    );
    let (chat, long) = (&chats[3], chats[3].split_at(30).0.to_uppercase());
    for params in [json!({"id": long}), json!({"id": chat})] {
        assert_eq!(server.call("history.get", params).await["id"], json!(chat));
    }
    let listed = server.call("history.list", json!({"limit": 5, "cursor": 14})).await;
    assert_eq!((&listed["total"], &listed["next_cursor"]), (&json!(17), &json!(null)));
    assert_eq!(listed["sessions"].as_array().unwrap().len(), 3);
    let path = &listed["sessions"][0]["rolloutPath"];
    let by_path = server.call("history.get", json!({"rollout_path": path})).await;
    assert_eq!(by_path["id"], listed["sessions"][0]["id"]);
    let path = text(path);
    let error =
        server.call_error("history.get", json!({"rollout_path": path.split_at(path.len() - 3).0})).await;
    assert!(text(&error["message"]).starts_with("failed to load chat: "), "{error}");
}

#[tokio::test]
async fn turns_of_two_sessions_run_concurrently() {
    let home = Home::new();
    let mut server = home.server().await;
    let (one, two) = (server.session().await, server.session().await);
    // Each turn ends only if the other one runs.
    let meet = |mine: &str, other: &str| {
        format!("!touch {mine}; until [ -e {other} ]; do sleep 0.02; done; echo met")
    };
    server.send(&one, &meet("a", "b")).await;
    server.send(&two, &meet("b", "a")).await;
    let mut open = 2;
    while open > 0 {
        open -= usize::from(is_ready(&server.line().await["params"]));
    }
    for session in [one, two] {
        let state = server.call("session.get", json!({"session_id": session})).await;
        assert_eq!(state["history"][1]["text"], "met\n[exit code 0]");
    }
}

#[tokio::test]
async fn an_interrupt_right_after_its_prompt_interrupts_the_turn_once() {
    let home = Home::new();
    let mut server = home.server().await;
    let session = server.session().await;
    for _ in 0..20 {
        let send =
            server.send_request("session.send", json!({"session_id": session, "text": "/wait 60"})).await;
        let interrupted = server.call("session.interrupt", json!({"session_id": session})).await;
        assert_eq!(interrupted["interrupted"], true);
        assert_eq!(server.response(send).await["result"]["accepted"], true);
        let events = server.events(&session, is_ready).await;
        let ends = event_types(&events).iter().filter(|kind| *kind == "session.interrupted").count();
        assert_eq!(ends, 1, "{:?}", event_types(&events));
        assert_eq!(appended(&events, "user"), ["/wait 60"]);
    }
}

#[tokio::test]
async fn a_chat_that_another_server_has_open_is_continued_there() {
    let home = Home::new();
    let mut first = home.server().await;
    let session = first.session().await;
    first.turn(&session, "/say mine").await;
    let mut second = home.server().await;
    let other = second.session().await;
    let resume = json!({"session_id": other, "raw_command": "/history last"});
    assert!(second.call("command.execute", resume).await["output"]["resumed"].is_string());
    let events = second.turn(&other, "/say yours").await;
    assert_eq!(appended(&events, "assistant"), ["yours"]);
}

#[tokio::test]
async fn a_chat_that_another_server_has_open_can_be_read_but_not_continued_if_the_settings_say_so() {
    let home = Home::with("[sessions]\njoin = false\n");
    let mut first = home.server().await;
    let session = first.session().await;
    first.turn(&session, "/say mine").await;
    let mut second = home.server().await;
    let other = second.session().await;
    let resume = json!({"session_id": other, "raw_command": "/history last"});
    assert!(second.call("command.execute", resume).await["output"]["resumed"].is_string());
    let state = second.call("session.get", json!({"session_id": other})).await;
    assert_eq!(state["messages"][1]["text"], "mine");
    let events = second.turn(&other, "/say no").await;
    assert!(event_types(&events).contains(&"session.error".to_owned()), "{events:?}");
    assert!(appended(&events, "system")[0].contains("in use by"), "{events:?}");
    // After the first server has stopped, the second can continue the chat.
    first.call("session.close", json!({"session_id": session})).await;
    first.call("system.shutdown", json!({})).await;
    first.wait_for_exit().await;
    let events = second.turn(&other, "/say yes").await;
    assert_eq!(appended(&events, "assistant"), ["yes"]);
}

#[tokio::test]
async fn two_sessions_cannot_run_turns_in_one_chat_at_the_same_time() {
    let home = Home::new();
    let mut server = home.server().await;
    let one = server.session().await;
    server.turn(&one, "/say first").await;
    let two = server.session().await;
    server.call("command.execute", json!({"session_id": two, "raw_command": "/history last"})).await;
    server.send(&one, "/wait 60").await;
    let events = server.turn(&two, "/say no").await;
    assert!(appended(&events, "system")[0].contains("another session is at work in this chat"), "{events:?}");
    server.call("session.interrupt", json!({"session_id": one})).await;
    server.events(&one, is_ready).await;
    let events = server.turn(&two, "/say yes").await;
    assert_eq!(appended(&events, "assistant"), ["yes"]);
}

#[tokio::test]
async fn a_key_is_stored_for_its_owner_alone_and_is_in_no_frame() {
    use std::os::unix::fs::PermissionsExt;

    let home = Home::new();
    let mut server = home.server().await;
    server.call("debug.set", json!({"super_debug": true})).await;
    server.call("auth.set.openrouter_key", json!({"api_key": "sk-s3cret"})).await;
    server.call("auth.status", json!({})).await;
    let session = server.session().await;
    server.send(&session, "/say hi").await;
    server.call("state.get", json!({})).await;
    server.close_stdin();
    let (lines, _) = server.wait_for_exit().await;
    assert!(lines.iter().all(|line| !line.to_string().contains("s3cret")));
    let file = home.state().join("secrets/key-openrouter");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let mut server = home.server().await;
    assert_eq!(server.call("auth.status", json!({})).await["has_openrouter_key"], true);
}

#[tokio::test]
async fn an_interrupted_command_shows_the_output_that_it_had() {
    let home = Home::new();
    let mut server = home.server().await;
    let session = server.session().await;
    server.send(&session, "!echo half; touch written; sleep 600").await;
    server.event("session.tool.call.started").await;
    within_timeout("the output", async {
        while !home.folder().join("written").exists() {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    })
    .await;
    server.call("session.interrupt", json!({"session_id": session})).await;
    let completed = server.event("session.tool.call.completed").await;
    let executed = &completed["data"]["executed"];
    assert_eq!(
        (&executed["ok"], &executed["result"]["aborted"]),
        (&json!(false), &json!(true)),
        "{executed}"
    );
    assert_eq!(executed["result"]["stdout"], "half\n", "{executed}");
    assert_eq!(executed["error"], "process aborted (no exit code)");
}

#[tokio::test]
async fn a_command_for_the_agent_is_refused_while_a_turn_is_running() {
    let home = Home::new();
    let mut server = home.server().await;
    let session = server.session().await;
    server.send(&session, "/wait 600").await;
    let say = json!({"session_id": session, "raw_command": "/say now"});
    let busy = server.call_error("command.execute", say).await;
    assert_eq!(busy["data"]["reason"], "session_busy");
    server.call("session.interrupt", json!({"session_id": session})).await;
    server.event("session.interrupted").await;
}

#[tokio::test]
async fn the_title_of_a_chat_is_its_latest_prompt_until_somebody_gives_it_one() {
    let home = Home::new();
    let mut server = home.server().await;
    let session = server.session().await;
    let long = format!("/say {}\n  end", "x".repeat(100));
    let cut = format!("/say {}...", "x".repeat(72));
    for (prompt, title) in
        [("/say first", "/say first"), ("/say  second\nline", "/say second line"), (&long, &cut)]
    {
        server.turn(&session, prompt).await;
        let chats = server.call("history.list", json!({})).await;
        assert_eq!(chats["sessions"][0]["title"], title);
    }
    server.call("session.rename", json!({"session_id": session, "title": "Mine"})).await;
    server.turn(&session, "/say third").await;
    let chats = server.call("history.list", json!({})).await;
    assert_eq!(chats["sessions"][0]["title"], "Mine");
    assert_eq!(server.call("history.get", json!({"last": true})).await["title"], "Mine");
}
