//! What a client runs is the work of a session, which other doors show and stop.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use parlor_testkit::STEP_TIMEOUT;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use crate::client::Client;
use crate::server::Server;

const THREAD: &str = "0199a1b2-7c3d-7e4f-8a5b-6c7d8e9f0a1b";

/// Starts a shell command for a tool call of [`THREAD`].
async fn start(client: &mut Client, process: &str, command: &str) {
    let params = json!({
        "processId": process, "argv": ["/bin/sh", "-c", command], "cwd": "file:///", "env": {}, "tty": false,
        "metadata": {"threadId": THREAD, "toolCallId": "call_0_0"},
    });
    client.call("process/start", params).await.unwrap();
}

/// The body of a GET request to the API, which is JSON.
async fn get(server: &Server, path: &str) -> Value {
    let address = server.http.expect("the API is open");
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    if !head.starts_with("HTTP/1.1 200") {
        return Value::Null;
    }
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer}"))
}

/// Waits until the events of the session, as text, contain all of `texts`.
async fn wait_for_events(server: &Server, texts: &[&str]) -> String {
    let deadline = Instant::now() + STEP_TIMEOUT;
    loop {
        let events = get(server, &format!("/api/sessions/{THREAD}/events")).await.to_string();
        if texts.iter().all(|text| events.contains(text)) {
            return events;
        }
        assert!(Instant::now() < deadline, "{texts:?} are not all in {events}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn processes_and_changed_files_are_in_the_session_of_their_thread() {
    let server = Server::with_http();
    let mut client = Client::connect(server.exec).await;
    client.open(None).await.unwrap();
    // A change before the first process belongs to its thread too.
    let file = server.home().join("made-by-codex");
    let write = json!({"path": format!("file://{}", file.display()), "dataBase64": "aGk="});
    client.call("fs/writeFile", write).await.unwrap();
    start(&mut client, "p1", "echo from-codex; exit 3").await;
    let run = ["run.started", "made-by-codex", "echo from-codex; exit 3", "[exit code 3]", "run.completed"];
    let events = wait_for_events(&server, &run).await;
    assert!(events.contains("from-codex\\n[exit code 3]") && events.contains("write_file"), "{events}");
    let listed = get(&server, "/api/sessions").await.to_string();
    assert!(listed.contains(THREAD), "{listed}");

    // A failed request changes nothing, so it is not recorded; neither is a process that no thread started.
    let gone = json!({"path": "file:///no/such/folder/unwritten", "dataBase64": ""});
    assert_eq!(client.call("fs/writeFile", gone).await, Err(-32004));
    let other = json!({
        "processId": "mcp", "argv": ["/bin/echo", "unrecorded"], "cwd": "file:///", "env": {}, "tty": false,
    });
    client.call("process/start", other).await.unwrap();
    start(&mut client, "p2", "echo again").await;
    let events = wait_for_events(&server, &["echo again", "[exit code 0]"]).await;
    assert!(!events.contains("unrecorded") && !events.contains("unwritten"), "{events}");
}

#[tokio::test]
async fn an_editor_watches_a_running_process_and_stops_it() {
    let server = Server::with_http();
    let mut client = Client::connect(server.exec).await;
    client.open(None).await.unwrap();
    start(&mut client, "p1", "echo begun; sleep 600").await;
    wait_for_events(&server, &["tool.called"]).await;

    let mut editor = tokio::process::Command::from(Command::new(env!("CARGO_BIN_EXE_parlor")))
        .args(["stdio", "acp"])
        .env("PARLOR_HOME", server.home())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let (mut stdin, stdout) = (editor.stdin.take().unwrap(), editor.stdout.take().unwrap());
    for request in [
        json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": 1}}),
        json!({"jsonrpc": "2.0", "id": 1, "method": "session/load", "params": {"sessionId": THREAD, "cwd": "/", "mcpServers": []}}),
    ] {
        stdin.write_all(format!("{request}\n").as_bytes()).await.unwrap();
    }
    let mut lines = BufReader::new(stdout).lines();
    let mut replay = String::new();
    let answer = loop {
        let line =
            tokio::time::timeout(STEP_TIMEOUT, lines.next_line()).await.unwrap().unwrap().expect("a line");
        let frame: Value = serde_json::from_str(&line).unwrap();
        if frame["id"] == 1 {
            break frame;
        }
        replay.push_str(&line);
    };
    assert!(answer["result"].is_object(), "{answer}");
    assert!(replay.contains("echo begun; sleep 600") && replay.contains("in_progress"), "{replay}");
    let cancel = json!({"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": THREAD}});
    stdin.write_all(format!("{cancel}\n").as_bytes()).await.unwrap();

    // The client of the door sees its process end.
    loop {
        let frame = match client.events.is_empty() {
            true => client.frame().await,
            false => client.events.remove(0),
        };
        if frame["method"] == "process/exited" {
            assert_eq!(frame["params"]["exitCode"], 137, "{frame}");
            break;
        }
    }
    wait_for_events(&server, &["begun\\n[terminated]", "Stopped by user."]).await;
}
