//! The MCP door over HTTP, and parlor as the client of its own server, against the real program.

#![expect(clippy::disallowed_methods, reason = "these tests start the program as a shell would")]

mod login;
mod server;
mod servers;
mod stdio;

use std::io::{BufRead, BufReader, Write};
use std::time::Duration;

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use server::Server;

/// A request of the modern era, and its headers.
fn modern(method: &str, mut params: Value) -> (Value, Vec<(&'static str, String)>) {
    let mut headers =
        vec![("mcp-protocol-version", "2026-07-28".to_owned()), ("mcp-method", method.to_owned())];
    if let Some(name) = params["name"].as_str() {
        headers.push(("mcp-name", name.to_owned()));
    }
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    (json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}), headers)
}

fn header_map(headers: &[(&'static str, String)]) -> HeaderMap {
    let pair = |(name, value): &(&'static str, String)| {
        (HeaderName::from_static(name), HeaderValue::from_str(value).expect("a header"))
    };
    headers.iter().map(pair).collect()
}

#[tokio::test]
async fn the_token_is_always_needed_and_there_is_no_login() {
    let server = Server::start("");
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
    let without = server.request(Method::POST, "/mcp").json(&ping).send().await.unwrap();
    assert_eq!(without.status(), StatusCode::UNAUTHORIZED);
    let in_query = format!("/mcp?token={}", server.token);
    let in_query = server.request(Method::POST, &in_query).json(&ping).send().await.unwrap();
    assert_eq!(in_query.status(), StatusCode::UNAUTHORIZED);
    for path in ["/.well-known/oauth-protected-resource", "/.well-known/oauth-protected-resource/mcp"] {
        let answer = server.request(Method::GET, path).send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::NOT_FOUND, "{path}");
    }
    let with = server.post(&ping).send().await.unwrap();
    assert_eq!(with.status(), StatusCode::OK);
    assert_eq!(with.json::<Value>().await.unwrap(), json!({"jsonrpc": "2.0", "id": 1, "result": {}}));
}

#[tokio::test]
async fn pages_of_other_sites_and_foreign_hosts_are_refused() {
    let server = Server::start("");
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
    let own = format!("http://{}", server.address);
    for (origin, status) in [("http://evil.example", 403), ("null", 403), (own.as_str(), 200)] {
        let answer = server.post(&ping).header("origin", origin).send().await.unwrap();
        assert_eq!(answer.status(), status, "{origin}");
    }
    let answer = server.post(&ping).header("host", "evil.example").send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn both_eras_are_served_each_in_its_own_way() {
    let server = Server::start("");
    let open = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18"}});
    let opened = server.post(&open).send().await.unwrap();
    let session = opened.headers()["mcp-session-id"].to_str().unwrap().to_owned();
    assert!(session.len() >= 32, "{session}");
    assert_eq!(opened.json::<Value>().await.unwrap()["result"]["protocolVersion"], "2025-06-18");
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
    let listed = server.post(&list).header("mcp-session-id", "from-before-a-restart").send().await.unwrap();
    let listed: Value = listed.json().await.unwrap();
    let tools: Vec<&str> = listed["result"]["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| tool["name"].as_str().unwrap())
        .collect();
    assert!(tools.contains(&"session_start") && tools.contains(&"read_file"));
    assert!(!tools.contains(&"shell") && !tools.contains(&"write_file"), "{tools:?}");
    let old = server.post(&list).header("mcp-protocol-version", "1900-01-01").send().await.unwrap();
    assert_eq!(old.status(), StatusCode::BAD_REQUEST);

    let (request, headers) = modern("tools/list", json!({}));
    let answer = server.post(&request).headers(header_map(&headers)).send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    assert_eq!(answer.json::<Value>().await.unwrap()["result"]["resultType"], "complete");
    for missing in 0..headers.len() {
        let mut headers = headers.clone();
        headers.remove(missing);
        let answer = server.post(&request).headers(header_map(&headers)).send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::BAD_REQUEST);
        let error = answer.json::<Value>().await.unwrap();
        assert_eq!((&error["id"], &error["error"]["code"]), (&json!(1), &json!(-32020)));
    }
    let (unknown, headers) = modern("prompts/list", json!({}));
    let answer = server.post(&unknown).headers(header_map(&headers)).send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::NOT_FOUND);
    assert_eq!(answer.json::<Value>().await.unwrap()["error"]["code"], -32601);
    let legacy = json!({"jsonrpc": "2.0", "id": 1, "method": "prompts/list"});
    assert_eq!(server.post(&legacy).send().await.unwrap().status(), StatusCode::OK);
}

#[tokio::test]
async fn methods_types_and_sizes_are_checked() {
    let server = Server::start("");
    for method in [Method::GET, Method::PUT] {
        let answer = server.request(method, "/mcp").bearer_auth(&server.token).send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::METHOD_NOT_ALLOWED);
        assert_eq!(answer.headers()["allow"], "POST, DELETE");
    }
    let delete = server.request(Method::DELETE, "/mcp").bearer_auth(&server.token);
    assert_eq!(delete.header("mcp-session-id", "any").send().await.unwrap().status(), StatusCode::ACCEPTED);
    let notification = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    let answer = server.post(&notification).send().await.unwrap();
    assert_eq!((answer.status(), answer.bytes().await.unwrap().len()), (StatusCode::ACCEPTED, 0));
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
    let accept = |accept: &'static str| server.post(&ping).header("accept", accept).send();
    assert_eq!(accept("text/html").await.unwrap().status(), StatusCode::NOT_ACCEPTABLE);
    let json = accept("application/json").await.unwrap();
    assert_eq!(json.headers()["content-type"], "application/json");
    let stream = accept("text/event-stream").await.unwrap();
    assert_eq!(stream.headers()["content-type"], "text/event-stream");
    assert_eq!(stream.headers()["x-accel-buffering"], "no");
    assert!(stream.text().await.unwrap().starts_with("event: message\ndata: {\"jsonrpc\""));
    let raw = |body: String| server.request(Method::POST, "/mcp").bearer_auth(&server.token).body(body);
    let typed = raw(ping.to_string()).header("content-type", "application/json; charset=utf-8");
    assert_eq!(typed.send().await.unwrap().status(), StatusCode::OK);
    let typed = raw(ping.to_string()).header("content-type", "text/plain");
    assert_eq!(typed.send().await.unwrap().status(), StatusCode::UNSUPPORTED_MEDIA_TYPE);
    assert_eq!(raw("[]".to_owned()).send().await.unwrap().status(), StatusCode::BAD_REQUEST);
    let long = raw(" ".repeat((4 << 20) + 1)).send().await.unwrap();
    assert_eq!(long.status(), StatusCode::PAYLOAD_TOO_LARGE);
}

#[tokio::test]
async fn a_modern_client_that_leaves_cancels_its_call_and_a_legacy_one_does_not() {
    let server = Server::start("[channels.mcp]\ntools = [\"shell\"]\n");
    let command = |name: &str| {
        format!("echo $$ > {name}.pid; while [ ! -e go ]; do sleep 0.02; done; touch {name}.done")
    };
    let arguments = |name: &str| json!({"name": "shell", "arguments": {"command": command(name)}});
    let (request, headers) = modern("tools/call", arguments("modern"));
    let modern = tokio::spawn(server.post(&request).headers(header_map(&headers)).send());
    let legacy = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": arguments("legacy")});
    let legacy = tokio::spawn(server.post(&legacy).send());
    let pid = server.wait_for_file("modern.pid").await;
    server.wait_for_file("legacy.pid").await;
    modern.abort();
    legacy.abort();
    while std::path::Path::new("/proc").join(pid.trim()).exists() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    std::fs::write(server.folder.path().join("go"), "").unwrap();
    server.wait_for_file("legacy.done").await;
    assert!(!server.folder.path().join("modern.done").exists());
}

#[tokio::test]
async fn a_legacy_cancel_concerns_the_client_that_sends_it_only() {
    let server = Server::start("[channels.mcp]\ntools = [\"shell\"]\n");
    let call = |session: &'static str| {
        let command =
            format!("touch {session}.begun; while [ ! -e go ]; do sleep 0.02; done; echo {session}");
        let params = json!({"name": "shell", "arguments": {"command": command}});
        let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
        tokio::spawn(server.post(&call).header("mcp-session-id", session).send())
    };
    let (one, two) = (call("one"), call("two"));
    server.wait_for_file("one.begun").await;
    server.wait_for_file("two.begun").await;
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}});
    server.post(&cancel).header("mcp-session-id", "one").send().await.unwrap();
    // The cancelled request has no answer.
    let ended = one.await.unwrap().unwrap().text().await.unwrap();
    assert!(!ended.contains("result"), "{ended}");
    std::fs::write(server.folder.path().join("go"), "").unwrap();
    assert!(two.await.unwrap().unwrap().text().await.unwrap().contains("two"));
}

#[tokio::test]
async fn a_task_outlives_the_connection_and_its_progress_is_streamed() {
    let server = Server::start("");
    let call = |id: u64, name: &str, arguments: Value| {
        let params = json!({"name": name, "arguments": arguments, "_meta": {"progressToken": "p"}});
        json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})
    };
    let task = "!while [ ! -e go ]; do sleep 0.02; done; echo over";
    let started = server.post(&call(1, "session_start", json!({"message": task}))).send().await.unwrap();
    let started: Value = started.json().await.unwrap();
    let session = started["result"]["structuredContent"]["session_id"].as_str().unwrap().to_owned();
    let wait = call(2, "session_wait", json!({"session_id": session}));
    // A client that leaves in the middle loses nothing.
    let left = tokio::spawn(server.post(&wait).send());
    tokio::task::yield_now().await;
    left.abort();
    let waiting = server.post(&wait).header("accept", "text/event-stream").send().await.unwrap();
    std::fs::write(server.folder.path().join("go"), "").unwrap();
    let events = waiting.text().await.unwrap();
    assert!(events.contains("notifications/progress") && events.contains("completed"), "{events}");
    let read = server.post(&call(3, "session_read", json!({"session_id": session}))).send().await.unwrap();
    assert!(read.text().await.unwrap().contains("over"));
}

#[test]
fn tools_on_stdio_are_under_the_policy() {
    let folder = tempfile::tempdir().unwrap();
    let (home, project) = (folder.path().join("home"), folder.path().join("project"));
    for folder in [&home, &project] {
        std::fs::create_dir(folder).unwrap();
    }
    let settings = "[policy]\nmode = \"read-only\"\ndeny = [{ path = \"secrets\" }]\n";
    std::fs::write(home.join("parlor.toml"), settings).unwrap();
    std::fs::write(project.join("secrets"), "s3cret").unwrap();
    std::fs::write(project.join("open"), "visible").unwrap();
    let calls = [
        ("write_file", json!({"path": "new", "content": "x"})),
        ("shell", json!({"command": "touch new"})),
        ("read_file", json!({"path": "secrets"})),
        ("shell", json!({"command": "cat secrets"})),
        ("read_file", json!({"path": "open"})),
    ];
    let mut child = std::process::Command::new(server::PARLOR)
        .args(["stdio", "mcp"])
        .env("PARLOR_HOME", &home)
        .current_dir(&project)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let (mut stdin, stdout) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
    let open = json!({"jsonrpc": "2.0", "id": "open", "method": "initialize", "params": {"protocolVersion": "2025-11-25"}});
    writeln!(stdin, "{open}").unwrap();
    for (id, (name, arguments)) in calls.iter().enumerate() {
        let params = json!({"name": name, "arguments": arguments});
        let call = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params});
        writeln!(stdin, "{call}").unwrap();
    }
    let answers = stdout.lines().map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap());
    let mut answers: Vec<Value> =
        answers.take(calls.len() + 1).filter(|answer| answer["id"].is_u64()).collect();
    drop(stdin);
    child.wait().unwrap();
    answers.sort_by_key(|answer| answer["id"].as_u64());
    let text = |id: usize| answers[id]["result"]["content"][0]["text"].as_str().unwrap().to_owned();
    for id in [0, 2] {
        assert!(
            answers[id]["result"]["isError"] == true && text(id).contains("the policy refuses"),
            "{}",
            text(id)
        );
    }
    assert!(!project.join("new").exists(), "{}", text(1));
    assert!(!text(3).contains("s3cret"), "{}", text(3));
    assert!(text(4).contains("visible"), "{}", text(4));
}

#[tokio::test]
async fn parlor_uses_its_own_door_over_http_and_stdio() {
    let server = Server::start("");
    let settings = format!(
        "[mcp.web]\nurl = \"http://{}/mcp\"\nheaders = {{ Authorization = \"Bearer {}\" }}\n\
         [mcp.child]\ncommand = {:?}\nargs = [\"stdio\", \"mcp\"]\nenv = {{ PARLOR_HOME = {:?} }}\n",
        server.address,
        server.token,
        server::PARLOR,
        server.folder.path().join("other"),
    );
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("parlor.toml"), settings).unwrap();
    let run = |args: &[&str]| {
        let output =
            std::process::Command::new(server::PARLOR).args(args).env("PARLOR_HOME", home.path()).output();
        let output = output.unwrap();
        (output.status.success(), String::from_utf8(output.stdout).unwrap())
    };
    let (is_ok, tested) = run(&["mcp", "test"]);
    assert!(is_ok, "{tested}");
    for line in ["child  ok  parlor", "web  ok  parlor", "MCP 2026-07-28", "session_start"] {
        assert!(tested.contains(line), "{tested}");
    }
    assert!(run(&["mcp", "add", "more", "echo", "a b"]).0);
    let (_, listed) = run(&["mcp", "list"]);
    assert!(listed.contains("more  echo a b") && !listed.contains(&server.token), "{listed}");
    assert!(!run(&["settings"]).1.contains(&server.token));
    let (is_ok, tested) = run(&["mcp", "test", "more"]);
    assert!(!is_ok && tested.contains("more  failed"), "{tested}");
    assert!(run(&["mcp", "remove", "more"]).0);
    assert!(!run(&["mcp", "list"]).1.contains("more"));
}
