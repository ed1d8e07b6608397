//! The HTTP API that the page uses: sessions with their state, their events, and the usage report.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

use parlor_web::MAX_EVENTS_BYTES;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::client::{Client, within_timeout};
use crate::server::{PARLOR, Server};

/// Sends a request without a token, as a program on this machine may, and returns the status and the body: JSON if it
/// parses, else the text.
pub(crate) async fn send_request(
    server: &Server,
    method: Method,
    path: &str,
    body: Value,
) -> (StatusCode, Value) {
    let request = reqwest::Client::new().request(method, format!("http://{}{path}", server.http));
    let request = if body.is_null() { request } else { request.body(body.to_string()) };
    let answer = within_timeout(request.send()).await.unwrap();
    let status = answer.status();
    let text = within_timeout(answer.text()).await.unwrap();
    (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
}

/// The JSON at a path. Panics unless the status is 200.
pub(crate) async fn get(server: &Server, path: &str) -> Value {
    let (status, value) = send_request(server, Method::GET, path, Value::Null).await;
    assert_eq!(status, StatusCode::OK, "{path}: {value}");
    value
}

/// All events of a session in order, requested in pages of `limit` from the end backwards.
async fn all_events(server: &Server, session: &str, limit: usize) -> Vec<Value> {
    let (mut all, mut before) = (Vec::new(), String::new());
    loop {
        let page = get(server, &format!("/api/sessions/{session}/events?limit={limit}{before}")).await;
        let events = page["events"].as_array().unwrap().clone();
        assert!(events.len() <= limit);
        all.splice(0..0, events);
        match page["before"].as_u64() {
            Some(seq) => before = format!("&before={seq}"),
            None => return all,
        }
    }
}

#[tokio::test]
async fn pages_of_events_equal_the_replay_of_a_websocket() {
    let server = Server::start();
    let mut client = Client::connect(server.http, "session_id=a&stream=1").await;
    for text in ["/say one", "!echo two", "/think three", "/fail four"] {
        client.send_text(text).await;
    }
    client.send_to_script("subagent").await;
    let mut ended = 0;
    while ended < 5 {
        let frame = client.next().await.unwrap();
        let is_end = matches!(frame["event_type"].as_str(), Some("run.completed" | "run.failed"));
        ended += usize::from(is_end && frame["parent_run_id"].is_null());
    }
    let last = client.last_event.clone().unwrap();
    let newest = get(&server, "/api/sessions/a/events?limit=3").await;
    assert_eq!(newest["last_event_id"], last.as_str());
    // Frames that are not events of a run get a new timestamp each time they are sent.
    let without_timestamps = |frames: Vec<Value>| -> Vec<Value> {
        let strip = |mut frame: Value| {
            if frame["event_type"].is_null() {
                frame["timestamp"] = Value::Null;
            }
            frame
        };
        frames.into_iter().map(strip).collect()
    };
    let mut other = Client::connect(server.http, "session_id=b&watch=a&stream=1").await;
    other.until("agent.list").await;
    let mut replayed = Vec::new();
    let mut again = Client::connect(server.http, "session_id=a&stream=1&after=").await;
    while again.last_event.as_deref() != Some(&*last) {
        let frame = again.next().await.unwrap();
        if !matches!(
            frame["type"].as_str(),
            Some("agent.list" | "message.delta" | "reasoning.delta" | "tool.output")
        ) {
            replayed.push(frame);
        }
    }
    assert!(replayed.iter().any(|frame| frame["type"] == "run.queued"), "{replayed:?}");
    let replayed = without_timestamps(replayed);
    for limit in [1, 7, 1000] {
        assert_eq!(without_timestamps(all_events(&server, "a", limit).await), replayed, "pages of {limit}");
    }
    let (status, _) = send_request(&server, Method::GET, "/api/sessions/nobody/events", Value::Null).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn the_session_list_distinguishes_a_stopped_run_from_a_failed_one() {
    let server = Server::start();
    let mut client = Client::connect(server.http, "session_id=one").await;
    let last_event = async || get(&server, "/api/sessions").await[0]["last_event"].clone();
    client.send_text("/say done").await;
    client.until("run.completed").await;
    assert_eq!(last_event().await.get("error_code"), None);
    client.send_text("/fail no").await;
    let failed = client.until("run.failed").await;
    let code = failed["data"]["error_code"].clone();
    let event = last_event().await;
    assert_eq!([&event["event_type"], &event["error_code"]], [&json!("run.failed"), &code]);
    client.send_text("/wait 60").await;
    client.until("run.started").await;
    client.send(&json!({"type": "run.stop"})).await;
    client.until("run.failed").await;
    assert_ne!(code, "RUN_CANCELLED");
    assert_eq!(last_event().await["error_code"], "RUN_CANCELLED");
}

#[tokio::test]
async fn the_session_list_shows_states_searches_and_renames() {
    let server = Server::start();
    let mut busy = Client::connect(server.http, "session_id=busy").await;
    busy.send_to_script("quiet").await;
    busy.until("run.started").await;
    busy.send_text("/say later").await;
    busy.ping().await;
    let mut idle = Client::connect(server.http, "session_id=idle").await;
    idle.send_text("/say Ärger").await;
    idle.until("run.completed").await;
    let list = get(&server, "/api/sessions").await;
    let entry = |id: &str| list.as_array().unwrap().iter().find(|entry| entry["id"] == id).unwrap().clone();
    let state = |entry: Value| json!([entry["door"], entry["running"], entry["queued"], entry["here"]]);
    assert_eq!(state(entry("busy")), json!(["supr", true, 1, true]));
    assert_eq!(state(entry("idle")), json!(["supr", false, 0, true]));
    assert_eq!(entry("busy")["last_event"]["event_type"], "run.queued");
    assert_eq!(entry("idle")["last_event"]["event_type"], "run.completed");
    let search = async |query: &str| {
        let list = get(&server, &format!("/api/sessions?q={query}")).await;
        list.as_array()
            .unwrap()
            .iter()
            .map(|entry| entry["id"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(search("%C3%A4rger").await, ["idle"]);
    assert_eq!(search("BUSY").await, ["busy"]);
    assert!(search("nothing").await.is_empty());
    let path = "/api/sessions/idle";
    let (status, renamed) = send_request(&server, Method::PATCH, path, json!({"title": " new\nname "})).await;
    assert_eq!((status, &renamed["title"]), (StatusCode::OK, &json!("new name")));
    assert_eq!(search("New+Name").await, ["idle"]);
    let long = "x".repeat(200);
    let (_, renamed) = send_request(&server, Method::PATCH, path, json!({"title": long})).await;
    assert_eq!(renamed["title"], format!("{}...", "x".repeat(60)));
    assert_eq!(renamed["full_title"], long);
    let (status, error) = send_request(&server, Method::PATCH, path, json!({"title": "x".repeat(201)})).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{error}");
    let (_, renamed) =
        send_request(&server, Method::PATCH, path, json!({"title": "\u{202e}\u{7}a\u{200b}b"})).await;
    assert_eq!(renamed["title"], "ab");
    let (status, error) =
        send_request(&server, Method::PATCH, path, json!({"title": "\u{202e}\u{feff} "})).await;
    assert_eq!(
        (status, &error),
        (StatusCode::BAD_REQUEST, &json!("a title needs at least a letter that can be seen\n"))
    );
    // A session with a run cannot be deleted, and the error says what to do.
    let (status, error) = send_request(&server, Method::DELETE, "/api/sessions/busy", Value::Null).await;
    let expected = "a run is under way in this session: stop it first, then delete the session\n";
    assert_eq!((status, &error), (StatusCode::CONFLICT, &json!(expected)));
    // A limit of 0, and offsets beyond the end.
    for query in ["limit=0", "offset=2", "offset=18446744073709551615", "q=idle&offset=1", "q=idle&limit=0"] {
        assert_eq!(get(&server, &format!("/api/sessions?{query}")).await, json!([]), "{query}");
    }
}

/// `parlor stdio loaf` on the server's state folder.
struct LoafProcess {
    child: Child,
    stdout: BufReader<std::process::ChildStdout>,
}

impl LoafProcess {
    fn start(server: &Server) -> Self {
        let mut child = Command::new(PARLOR)
            .args(["stdio", "loaf"])
            .env("PARLOR_HOME", &server.home)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Self { child, stdout }
    }

    /// Sends a request and returns its result.
    fn call(&mut self, id: u64, method: &str, params: Value) -> Value {
        let request = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        writeln!(self.child.stdin.as_mut().unwrap(), "{request}").unwrap();
        loop {
            let mut line = String::new();
            assert!(self.stdout.read_line(&mut line).unwrap() > 0, "the process has ended");
            let frame: Value = serde_json::from_str(&line).unwrap();
            if frame["id"] == id {
                return frame["result"].clone();
            }
        }
    }
}

impl Drop for LoafProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn the_server_joins_a_session_of_another_process_and_takes_it_over() {
    let server = Server::start();
    let mut loaf = LoafProcess::start(&server);
    let session = loaf.call(1, "session.create", json!({}))["session_id"].as_str().unwrap().to_owned();
    loaf.call(2, "session.send", json!({"session_id": session, "text": "/wait 600"}));
    let stored_id = get(&server, "/api/sessions").await[0]["id"].as_str().unwrap().to_owned();
    let watch = format!("session_id=mine&stream=1&watch={stored_id}");
    let mut watching = Client::connect(server.http, &watch).await;
    watching.until("message.delta").await;
    let mut own = Client::connect(server.http, &format!("session_id={stored_id}&after=")).await;
    let started = own.until("run.started").await;
    assert_eq!(started["data"]["by"]["door"], "loaf", "{started}");
    let path = format!("/api/sessions/{stored_id}");
    let (status, error) = send_request(&server, Method::PATCH, &path, json!({"title": "ours"})).await;
    assert_eq!(status, StatusCode::OK, "{error}");
    // It is busy.
    let (status, _) = send_request(&server, Method::DELETE, &path, Value::Null).await;
    assert_eq!(status, StatusCode::CONFLICT);
    drop(loaf);
    for client in [&mut watching, &mut own] {
        let failed = client.until("run.failed").await;
        assert_eq!(failed["data"]["error_code"], "RUN_INTERRUPTED", "{failed}");
    }
    let list = get(&server, "/api/sessions").await;
    assert_eq!(json!([list[0]["title"], list[0]["running"]]), json!(["ours", false]));
}

#[tokio::test]
async fn the_server_shows_the_sessions_of_another_process_that_it_may_not_join() {
    let server = Server::with("[sessions]\njoin = false\n");
    let mut loaf = LoafProcess::start(&server);
    let session = loaf.call(1, "session.create", json!({}))["session_id"].as_str().unwrap().to_owned();
    loaf.call(2, "session.send", json!({"session_id": session, "text": "/wait 600"}));
    // The log has the session as soon as the turn is accepted, under another id than the loaf door's.
    let list = get(&server, "/api/sessions").await;
    let stored_id = list[0]["id"].as_str().unwrap().to_owned();
    let mut watching = Client::connect(server.http, &format!("session_id=mine&watch={stored_id}")).await;
    watching.until("agent.list").await;
    watching.ping().await;
    let state = async || {
        let list = get(&server, &format!("/api/sessions?q={stored_id}")).await;
        let entry = list[0].clone();
        json!([entry["door"], entry["running"], entry["here"]])
    };
    assert_eq!(state().await, json!(["loaf", true, false]));
    // The server refuses to change a session of another process and names that process.
    let path = format!("/api/sessions/{stored_id}");
    let (status, error) = send_request(&server, Method::PATCH, &path, json!({"title": "mine"})).await;
    assert_eq!(status, StatusCode::CONFLICT, "{error}");
    assert!(error.as_str().unwrap().contains("process"), "{error}");
    let (status, _) = send_request(&server, Method::DELETE, &path, Value::Null).await;
    assert_eq!(status, StatusCode::CONFLICT);
    // A client can also connect to it as its own session.
    let mut own = Client::connect(server.http, &format!("session_id={stored_id}&after=")).await;
    own.until("run.started").await;
    loaf.call(3, "session.interrupt", json!({"session_id": session}));
    for client in [&mut watching, &mut own] {
        let failed = client.until("run.failed").await;
        assert_eq!((&failed["session_id"], &failed["replay"]), (&json!(stored_id), &json!(false)));
    }
    loaf.call(4, "session.send", json!({"session_id": session, "text": "/wait 600"}));
    watching.until("run.started").await;
    drop(loaf);
    // The process was killed: its run is cut off, and the session belongs to no process.
    assert_eq!(state().await, json!(["loaf", false, true]));
}

#[tokio::test]
async fn usage_is_reported_by_day() {
    let server = Server::start();
    let mut client = Client::connect(server.http, "session_id=a").await;
    client.send_to_script("usage").await;
    client.until("run.completed").await;
    client.send_text("/fail on purpose").await;
    client.until("run.failed").await;
    let usage = get(&server, "/api/usage?days=7").await;
    let days = usage["days"].as_array().unwrap();
    assert_eq!(days.len(), 7);
    let today = days.last().unwrap();
    assert_eq!((&today["runs"], &today["failed"]), (&json!(2), &json!(1)), "{usage}");
    assert!(today["output_tokens"].as_u64().unwrap() > 0, "{usage}");
    // The report has at least today.
    let least = get(&server, "/api/usage?days=0").await;
    assert_eq!(least["days"], json!([today]));
    // Deleting a session does not change the usage.
    send_request(&server, Method::DELETE, "/api/sessions/a", Value::Null).await;
    assert_eq!(get(&server, "/api/usage?days=7").await, usage);
}

#[tokio::test]
async fn a_page_of_large_events_is_cut_and_the_next_pages_have_the_rest() {
    let server = Server::start();
    let mut client = Client::connect(server.http, "session_id=a").await;
    let text = "x".repeat(MAX_EVENTS_BYTES / 3);
    for _ in 0..3 {
        client.send_text(&format!("/say {text}")).await;
        client.until("run.completed").await;
    }
    let newest = get(&server, "/api/sessions/a/events?limit=1000").await;
    assert!(newest["before"].is_u64(), "the next page has the older events");
    assert!(newest["events"].to_string().len() <= MAX_EVENTS_BYTES + 1024);
    let (large, small) = (all_events(&server, "a", 1000).await, all_events(&server, "a", 1).await);
    assert!(large == small, "{} events, but {} when requested one by one", large.len(), small.len());
}
