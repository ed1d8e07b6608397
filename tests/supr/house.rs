//! What the page asks of the house over HTTP: sessions with their state, and what happened in them.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

use parlor_web::MAX_EVENTS_BYTES;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::client::{Client, patiently};
use crate::server::{PARLOR, Server};

/// Asks the server, as a program on this machine does.
pub(crate) async fn ask(server: &Server, method: Method, path: &str, body: Value) -> (StatusCode, Value) {
    let request = reqwest::Client::new().request(method, format!("http://{}{path}", server.http));
    let request = if body.is_null() { request } else { request.body(body.to_string()) };
    let answer = patiently(request.send()).await.unwrap();
    let status = answer.status();
    let text = patiently(answer.text()).await.unwrap();
    (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
}

/// What there is at a path.
pub(crate) async fn get(server: &Server, path: &str) -> Value {
    let (status, value) = ask(server, Method::GET, path, Value::Null).await;
    assert_eq!(status, StatusCode::OK, "{path}: {value}");
    value
}

/// All events of a session, from its end backwards, page by page.
async fn pages(server: &Server, session: &str, limit: usize) -> Vec<Value> {
    let (mut all, mut before) = (Vec::new(), String::new());
    loop {
        let page = get(server, &format!("/api/sessions/{session}/events?limit={limit}{before}")).await;
        let events = page["events"].as_array().unwrap().clone();
        assert!(events.len() <= limit);
        all.splice(0..0, events);
        match page["before"].as_u64() {
            Some(place) => before = format!("&before={place}"),
            None => return all,
        }
    }
}

#[tokio::test]
async fn pages_of_events_are_what_a_socket_replays() {
    let server = Server::start();
    let mut client = Client::connect(server.http, "session_id=a&stream=1").await;
    for words in ["/say one", "!echo two", "/think three", "/fail four"] {
        client.say(words).await;
    }
    client.say_to_script("subagent").await;
    let mut ended = 0;
    while ended < 5 {
        let frame = client.next().await.unwrap();
        let is_end = matches!(frame["event_type"].as_str(), Some("run.completed" | "run.failed"));
        ended += usize::from(is_end && frame["parent_run_id"].is_null());
    }
    let last = client.last_event.clone().unwrap();
    let newest = get(&server, "/api/sessions/a/events?limit=3").await;
    assert_eq!(newest["last_event_id"], last.as_str());
    // What happens beside runs has a time of its own in each telling.
    let told = |frames: Vec<Value>| -> Vec<Value> {
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
    let replayed = told(replayed);
    for limit in [1, 7, 1000] {
        assert_eq!(told(pages(&server, "a", limit).await), replayed, "pages of {limit}");
    }
    let (status, _) = ask(&server, Method::GET, "/api/sessions/nobody/events", Value::Null).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_list_tells_a_run_that_was_stopped_from_one_that_failed() {
    let server = Server::start();
    let mut client = Client::connect(server.http, "session_id=one").await;
    let last = async || get(&server, "/api/sessions").await[0]["last_event"].clone();
    client.say("/say done").await;
    client.until("run.completed").await;
    assert_eq!(last().await.get("error_code"), None);
    client.say("/fail no").await;
    let failed = client.until("run.failed").await;
    let code = failed["data"]["error_code"].clone();
    assert_eq!([&last().await["event_type"], &last().await["error_code"]], [&json!("run.failed"), &code]);
    client.say("/wait 60").await;
    client.until("run.started").await;
    client.send(&json!({"type": "run.stop"})).await;
    client.until("run.failed").await;
    assert_ne!(code, "RUN_CANCELLED");
    assert_eq!(last().await["error_code"], "RUN_CANCELLED");
}

#[tokio::test]
async fn a_list_says_what_each_session_does() {
    let server = Server::start();
    let mut busy = Client::connect(server.http, "session_id=busy").await;
    busy.say_to_script("quiet").await;
    busy.until("run.started").await;
    busy.say("/say later").await;
    busy.ping().await;
    let mut idle = Client::connect(server.http, "session_id=idle").await;
    idle.say("/say Ärger").await;
    idle.until("run.completed").await;
    let list = get(&server, "/api/sessions").await;
    let line = |id: &str| list.as_array().unwrap().iter().find(|line| line["id"] == id).unwrap().clone();
    let state = |line: Value| json!([line["door"], line["running"], line["queued"], line["here"]]);
    assert_eq!(state(line("busy")), json!(["supr", true, 1, true]));
    assert_eq!(state(line("idle")), json!(["supr", false, 0, true]));
    assert_eq!(line("busy")["last_event"]["event_type"], "run.queued");
    assert_eq!(line("idle")["last_event"]["event_type"], "run.completed");
    let found = async |words: &str| {
        let list = get(&server, &format!("/api/sessions?q={words}")).await;
        list.as_array()
            .unwrap()
            .iter()
            .map(|line| line["id"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(found("%C3%A4rger").await, ["idle"]);
    assert_eq!(found("BUSY").await, ["busy"]);
    assert!(found("nothing").await.is_empty());
    let path = "/api/sessions/idle";
    let (status, renamed) = ask(&server, Method::PATCH, path, json!({"title": " new\nname "})).await;
    assert_eq!((status, &renamed["title"]), (StatusCode::OK, &json!("new name")));
    assert_eq!(found("New+Name").await, ["idle"]);
    let long = "x".repeat(200);
    let (_, renamed) = ask(&server, Method::PATCH, path, json!({"title": long})).await;
    assert_eq!(renamed["title"], format!("{}...", "x".repeat(60)));
    assert_eq!(renamed["full_title"], long);
    let (status, why) = ask(&server, Method::PATCH, path, json!({"title": "x".repeat(201)})).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{why}");
    let (_, renamed) = ask(&server, Method::PATCH, path, json!({"title": "\u{202e}\u{7}a\u{200b}b"})).await;
    assert_eq!(renamed["title"], "ab");
    let (status, why) = ask(&server, Method::PATCH, path, json!({"title": "\u{202e}\u{feff} "})).await;
    assert_eq!(
        (status, &why),
        (StatusCode::BAD_REQUEST, &json!("a title needs at least a letter that can be seen\n"))
    );
    // What runs is not taken away from under somebody, who is told what to do.
    let (status, why) = ask(&server, Method::DELETE, "/api/sessions/busy", Value::Null).await;
    let what = "a run is under way in this session: stop it first, then delete the session\n";
    assert_eq!((status, &why), (StatusCode::CONFLICT, &json!(what)));
    // Nothing is asked for, and nothing is left.
    for query in ["limit=0", "offset=2", "offset=18446744073709551615", "q=idle&offset=1", "q=idle&limit=0"] {
        assert_eq!(get(&server, &format!("/api/sessions?{query}")).await, json!([]), "{query}");
    }
}

/// `parlor stdio loaf` on the state of a server.
struct Beside {
    child: Child,
    said: BufReader<std::process::ChildStdout>,
}

impl Beside {
    fn start(server: &Server) -> Self {
        let mut child = Command::new(PARLOR)
            .args(["stdio", "loaf"])
            .env("PARLOR_HOME", &server.home)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        Self { child, said }
    }

    /// Asks for something, and gives its result.
    fn ask(&mut self, id: u64, method: &str, params: Value) -> Value {
        let request = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        writeln!(self.child.stdin.as_mut().unwrap(), "{request}").unwrap();
        loop {
            let mut line = String::new();
            assert!(self.said.read_line(&mut line).unwrap() > 0, "it has ended");
            let frame: Value = serde_json::from_str(&line).unwrap();
            if frame["id"] == id {
                return frame["result"].clone();
            }
        }
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn what_another_process_does_is_seen_here() {
    let server = Server::start();
    let mut beside = Beside::start(&server);
    let session = beside.ask(1, "session.create", json!({}))["session_id"].as_str().unwrap().to_owned();
    beside.ask(2, "session.send", json!({"session_id": session, "text": "/wait 600"}));
    // What is accepted is in the log, under a name of its own.
    let list = get(&server, "/api/sessions").await;
    let kept = list[0]["id"].as_str().unwrap().to_owned();
    let mut watching = Client::connect(server.http, &format!("session_id=mine&watch={kept}")).await;
    watching.until("agent.list").await;
    watching.ping().await;
    let line = async || {
        let list = get(&server, &format!("/api/sessions?q={kept}")).await;
        let line = list[0].clone();
        json!([line["door"], line["running"], line["here"]])
    };
    assert_eq!(line().await, json!(["loaf", true, false]));
    // What it has cannot be changed here, and says who has it.
    let path = format!("/api/sessions/{kept}");
    let (status, why) = ask(&server, Method::PATCH, &path, json!({"title": "mine"})).await;
    assert_eq!(status, StatusCode::CONFLICT, "{why}");
    assert!(why.as_str().unwrap().contains("process"), "{why}");
    let (status, _) = ask(&server, Method::DELETE, &path, Value::Null).await;
    assert_eq!(status, StatusCode::CONFLICT);
    // As its own session it can be looked at too.
    let mut own = Client::connect(server.http, &format!("session_id={kept}&after=")).await;
    own.until("run.started").await;
    beside.ask(3, "session.interrupt", json!({"session_id": session}));
    for client in [&mut watching, &mut own] {
        let failed = client.until("run.failed").await;
        assert_eq!((&failed["session_id"], &failed["replay"]), (&json!(kept), &json!(false)));
    }
    beside.ask(4, "session.send", json!({"session_id": session, "text": "/wait 600"}));
    watching.until("run.started").await;
    drop(beside);
    // Killed: what it did is cut off, and the session is anybody's.
    assert_eq!(line().await, json!(["loaf", false, true]));
}

#[tokio::test]
async fn what_was_used_is_told_day_by_day() {
    let server = Server::start();
    let mut client = Client::connect(server.http, "session_id=a").await;
    client.say_to_script("usage").await;
    client.until("run.completed").await;
    client.say("/fail on purpose").await;
    client.until("run.failed").await;
    let usage = get(&server, "/api/usage?days=7").await;
    let days = usage["days"].as_array().unwrap();
    assert_eq!(days.len(), 7);
    let today = days.last().unwrap();
    assert_eq!((&today["runs"], &today["failed"]), (&json!(2), &json!(1)), "{usage}");
    assert!(today["output_tokens"].as_u64().unwrap() > 0, "{usage}");
    // Today is told of at least.
    let least = get(&server, "/api/usage?days=0").await;
    assert_eq!(least["days"], json!([today]));
    // What is deleted was used all the same.
    ask(&server, Method::DELETE, "/api/sessions/a", Value::Null).await;
    assert_eq!(get(&server, "/api/usage?days=7").await, usage);
}

#[tokio::test]
async fn a_page_of_large_events_is_cut_and_nothing_is_missing() {
    let server = Server::start();
    let mut client = Client::connect(server.http, "session_id=a").await;
    let text = "x".repeat(MAX_EVENTS_BYTES / 3);
    for _ in 0..3 {
        client.say(&format!("/say {text}")).await;
        client.until("run.completed").await;
    }
    let newest = get(&server, "/api/sessions/a/events?limit=1000").await;
    assert!(newest["before"].is_u64(), "what is older is left to the next page");
    assert!(newest["events"].to_string().len() <= MAX_EVENTS_BYTES + 1024);
    let (large, small) = (pages(&server, "a", 1000).await, pages(&server, "a", 1).await);
    assert!(large == small, "{} events, and one by one {}", large.len(), small.len());
}
