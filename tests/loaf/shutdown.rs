//! How the server stops, and what it does with running and queued turns.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::kept_text::kept_text;
use crate::server::{Home, Server, is_ready, signal, text, within_timeout};

/// A server with a turn that would take ten minutes, its session and the turn's id.
async fn server_with_long_turn(home: &Home) -> (Server, String, String) {
    let mut server = home.server().await;
    let session = server.session().await;
    let turn = server.send(&session, "!sleep 600 & echo $! > pid; wait").await;
    server.event("session.tool.call.started").await;
    (server, session, turn)
}

fn types(lines: &[Value]) -> Vec<String> {
    lines.iter().filter(|line| line["method"] == "event").map(|line| text(&line["params"]["type"])).collect()
}

fn reason(line: &Value) -> Option<&str> {
    line["params"]["payload"]["reason"].as_str()
}

#[tokio::test]
async fn signals_interrupt_turns_and_are_reported_in_the_last_event() {
    for (number, expected) in [(Signal::TERM, "sigterm"), (Signal::INT, "sigint")] {
        let home = Home::new();
        let (mut server, _, turn) = server_with_long_turn(&home).await;
        signal(server.pid(), number);
        let (lines, status) = server.wait_for_exit().await;
        assert!(status.success(), "{status}");
        let types = types(&lines);
        assert_eq!(types.iter().filter(|kind| *kind == "session.interrupted").count(), 1, "{types:?}");
        assert!(lines.iter().any(|line| line["params"]["payload"]["turn_id"] == turn));
        assert_eq!(reason(lines.last().unwrap()), Some(expected), "{types:?}");
    }
}

#[tokio::test]
async fn a_signal_while_idle_is_reported() {
    let home = Home::new();
    let mut server = home.server().await;
    server.call("system.ping", Value::Null).await;
    signal(server.pid(), Signal::TERM);
    let (lines, status) = server.wait_for_exit().await;
    assert_eq!((lines.len(), reason(&lines[0])), (1, Some("sigterm")));
    assert!(status.success());
}

#[tokio::test]
async fn sighup_stops_the_server_without_an_event() {
    let home = Home::new();
    let mut server = home.server().await;
    server.call("system.ping", Value::Null).await;
    signal(server.pid(), Signal::HUP);
    let (lines, status) = server.wait_for_exit().await;
    assert!(lines.is_empty() && status.success(), "{lines:?}");
}

#[tokio::test]
async fn the_end_of_stdin_kills_tools_and_saves_the_turn() {
    let home = Home::new();
    let (mut server, _, _) = server_with_long_turn(&home).await;
    let pid = crate::server::within_timeout("the tool's pid", async {
        loop {
            let file = std::fs::read_to_string(home.folder().join("pid")).unwrap_or_default();
            if let Some(pid) = file.strip_suffix('\n') {
                return pid.to_owned();
            }
            tokio::task::yield_now().await;
        }
    });
    let pid = pid.await;
    server.close_stdin();
    let (lines, status) = server.wait_for_exit().await;
    assert!(status.success() && types(&lines).contains(&"session.interrupted".to_owned()));
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let has_ended = stat.rsplit_once(')').is_none_or(|(_, rest)| rest.trim_start().starts_with(['Z', 'X']));
    assert!(has_ended, "the tool still runs");
    let mut server = home.server().await;
    let chat = server.call("history.get", json!({"last": true})).await;
    assert_eq!(chat["messages"][0]["role"], "user");
}

#[tokio::test]
async fn requests_after_system_shutdown_are_not_read() {
    let home = Home::new();
    let mut server = home.server().await;
    let requests = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"system.shutdown\"}\n{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"system.ping\"}\n";
    server.write(requests.as_bytes()).await;
    let (lines, status) = server.wait_for_exit().await;
    let ids: Vec<&Value> = lines.iter().filter_map(|line| line.get("id")).collect();
    assert_eq!((ids, status.success()), (vec![&json!(1)], true));
    assert_eq!(reason(&lines[0]), Some("shutdown"), "the event comes before the reply");
}

#[tokio::test]
async fn queued_turns_do_not_start_when_the_server_stops() {
    let home = Home::new();
    let (mut server, session, turn) = server_with_long_turn(&home).await;
    let send = json!({"session_id": session, "text": "/say no", "enqueue": true});
    server.call("session.send", send).await;
    server.send_request("system.shutdown", json!({})).await;
    let (lines, _) = server.wait_for_exit().await;
    let last = lines.iter().rfind(|line| line["params"]["type"] == "session.status").unwrap();
    assert_eq!(last["params"]["payload"]["status_label"], "ready");
    let interrupted = lines.iter().find(|line| line["params"]["type"] == "session.interrupted").unwrap();
    assert_eq!(interrupted["params"]["payload"]["turn_id"], turn);
}

#[tokio::test]
async fn the_server_stops_when_the_client_closes_its_stdout() {
    let home = Home::new();
    let mut command = home.command();
    let mut child =
        command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let status = crate::server::within_timeout("the end", child.wait()).await.unwrap();
    assert!(status.success(), "{status}");
}

#[tokio::test]
async fn accepted_turns_are_in_the_history_after_the_server_was_killed() {
    let home = Home::new();
    let prompts: Vec<String> = (0..8).map(|number| format!("/say number {number}")).collect();
    for prompt in &prompts {
        let mut server = home.server().await;
        let session = server.session().await;
        server.send(&session, prompt).await;
        signal(server.pid(), Signal::KILL);
        server.wait_for_exit().await;
    }
    let mut server = home.server().await;
    let chats = server.call("history.list", json!({})).await;
    let mut saved = Vec::new();
    for chat in chats["sessions"].as_array().unwrap() {
        let chat = server.call("history.get", json!({"id": chat["id"]})).await;
        saved.push(text(&chat["messages"][0]["text"]));
    }
    saved.sort();
    assert_eq!(saved, prompts);
}

#[tokio::test]
async fn the_text_of_an_unfinished_message_survives_kill_9_and_is_shown_once() {
    let home = Home::new();
    let mut server = home.server().await;
    let session = server.session().await;
    server.send(&session, "/wait 300").await;
    server.event("session.stream.chunk").await;
    let state = server.call("session.get", json!({"session_id": session})).await;
    let chat = text(&state["activeSessionId"]);
    let kept = within_timeout("kept text", kept_text(&home.state(), &chat)).await;
    signal(server.pid(), Signal::KILL);
    server.wait_for_exit().await;

    let mut server = home.server().await;
    // Before anybody has opened the chat again.
    let saved = server.call("history.get", json!({"id": chat})).await;
    assert_eq!(saved["messages"].as_array().unwrap().len(), 2, "{saved}");
    let partial = text(&saved["messages"][1]["text"]);
    assert!(saved["messages"][1]["role"] == "assistant" && partial.starts_with(&kept), "{saved}");
    let session = server.session().await;
    let resume = json!({"session_id": session, "raw_command": format!("/history {chat}")});
    server.call("command.execute", resume).await;
    server.send(&session, "/say on").await;
    let events = server.events(&session, is_ready).await;
    let chunks = events.iter().filter(|event| event["type"] == "session.stream.chunk");
    let streamed: String = chunks.map(|event| text(&event["payload"]["chunk"]["answerText"])).collect();
    assert_eq!(streamed, "on", "the old text is not streamed again");
    let state = server.call("session.get", json!({"session_id": session})).await;
    let shown: Vec<String> =
        state["messages"].as_array().unwrap().iter().map(|message| text(&message["text"])).collect();
    assert_eq!(shown, ["/wait 300", &partial, "/say on", "on"]);
    // The next server reads what this one recorded.
    drop(server);
    let saved = home.server().await.call("history.get", json!({"id": chat})).await;
    let texts: Vec<String> =
        saved["messages"].as_array().unwrap().iter().map(|message| text(&message["text"])).collect();
    assert_eq!(texts, shown);
}
