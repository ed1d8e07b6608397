//! How the server ends, and what is left of a turn.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::server::{Home, Server, signal, text};

/// A server with a turn that would take ten minutes.
async fn busy(home: &Home) -> (Server, String, String) {
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
async fn signals_interrupt_turns_and_are_told_last() {
    for (number, told) in [(Signal::TERM, "sigterm"), (Signal::INT, "sigint")] {
        let home = Home::new();
        let (mut server, _, turn) = busy(&home).await;
        signal(server.pid(), number);
        let (lines, status) = server.end().await;
        assert!(status.success(), "{status}");
        let types = types(&lines);
        assert_eq!(types.iter().filter(|kind| *kind == "session.interrupted").count(), 1, "{types:?}");
        assert!(lines.iter().any(|line| line["params"]["payload"]["turn_id"] == turn));
        assert_eq!(reason(lines.last().unwrap()), Some(told), "{types:?}");
    }
}

#[tokio::test]
async fn a_signal_while_idle_is_told() {
    let home = Home::new();
    let mut server = home.server().await;
    server.call("system.ping", Value::Null).await;
    signal(server.pid(), Signal::TERM);
    let (lines, status) = server.end().await;
    assert_eq!((lines.len(), reason(&lines[0])), (1, Some("sigterm")));
    assert!(status.success());
}

#[tokio::test]
async fn hanging_up_ends_it_without_a_word() {
    let home = Home::new();
    let mut server = home.server().await;
    server.call("system.ping", Value::Null).await;
    signal(server.pid(), Signal::HUP);
    let (lines, status) = server.end().await;
    assert!(lines.is_empty() && status.success(), "{lines:?}");
}

#[tokio::test]
async fn the_end_of_stdin_ends_tools_and_the_turn_is_saved() {
    let home = Home::new();
    let (mut server, _, _) = busy(&home).await;
    let pid = crate::server::soon("the tool's pid", async {
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
    let (lines, status) = server.end().await;
    assert!(status.success() && types(&lines).contains(&"session.interrupted".to_owned()));
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let is_gone = stat.rsplit_once(')').is_none_or(|(_, rest)| rest.trim_start().starts_with(['Z', 'X']));
    assert!(is_gone, "the tool lives on");
    let mut server = home.server().await;
    let chat = server.call("history.get", json!({"last": true})).await;
    assert_eq!(chat["messages"][0]["role"], "user");
}

#[tokio::test]
async fn a_shutdown_is_the_last_thing_that_is_heard() {
    let home = Home::new();
    let mut server = home.server().await;
    let both = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"system.shutdown\"}\n{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"system.ping\"}\n";
    server.write(both.as_bytes()).await;
    let (lines, status) = server.end().await;
    let ids: Vec<&Value> = lines.iter().filter_map(|line| line.get("id")).collect();
    assert_eq!((ids, status.success()), (vec![&json!(1)], true));
    assert_eq!(reason(&lines[0]), Some("shutdown"), "the event comes before the reply");
}

#[tokio::test]
async fn what_waits_is_not_begun_when_the_server_ends() {
    let home = Home::new();
    let (mut server, session, turn) = busy(&home).await;
    let send = json!({"session_id": session, "text": "/say no", "enqueue": true});
    server.call("session.send", send).await;
    server.ask("system.shutdown", json!({})).await;
    let (lines, _) = server.end().await;
    let last = lines.iter().rfind(|line| line["params"]["type"] == "session.status").unwrap();
    assert_eq!(last["params"]["payload"]["status_label"], "ready");
    let interrupted = lines.iter().find(|line| line["params"]["type"] == "session.interrupted").unwrap();
    assert_eq!(interrupted["params"]["payload"]["turn_id"], turn);
}

#[tokio::test]
async fn a_client_that_closes_stdout_has_left() {
    let home = Home::new();
    let mut command = home.command();
    let mut child =
        command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let status = crate::server::soon("the end", child.wait()).await.unwrap();
    assert!(status.success(), "{status}");
}

#[tokio::test]
async fn what_was_accepted_is_there_after_the_server_was_killed() {
    let home = Home::new();
    let prompts: Vec<String> = (0..8).map(|number| format!("/say number {number}")).collect();
    for prompt in &prompts {
        let mut server = home.server().await;
        let session = server.session().await;
        server.send(&session, prompt).await;
        signal(server.pid(), Signal::KILL);
        server.end().await;
    }
    let mut server = home.server().await;
    let chats = server.call("history.list", json!({})).await;
    let mut kept = Vec::new();
    for chat in chats["sessions"].as_array().unwrap() {
        let chat = server.call("history.get", json!({"id": chat["id"]})).await;
        kept.push(text(&chat["messages"][0]["text"]));
    }
    kept.sort();
    assert_eq!(kept, prompts);
}
