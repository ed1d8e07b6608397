//! How the MCP servers of agents are, as clients of the HTTP API see it.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use reqwest::Method;
use serde_json::{Value, json};

use crate::server::{PARLOR, Server};

#[tokio::test]
async fn the_api_shows_how_servers_are_and_what_they_returned() {
    let scripts = tempfile::tempdir().unwrap();
    let script = scripts.path().join("demo.toml");
    let steps = "[otherwise]\nsteps = [{ tool = \"good__rich\", args = {} }]\n";
    std::fs::write(&script, steps).unwrap();
    let fake = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tools/tests/fake_mcp_server.py");
    let server = Server::start(&format!(
        "default_agent = \"demo\"\n[agents.demo]\nkind = \"script\"\nfile = {script:?}\n\
         [mcp.good]\ncommand = \"python3\"\nargs = [{fake:?}]\n[mcp.dead]\ncommand = \"python3\"\nargs = [{fake:?}, \"dead\"]\n"
    ));
    let servers = async || {
        let listed = server.request(Method::GET, "/api/mcp/servers").bearer_auth(&server.token).send().await;
        let listed: Value = listed.unwrap().json().await.unwrap();
        listed["servers"].as_array().unwrap().clone()
    };
    let idle = |name: &str| json!({"name": name, "state": "idle"});
    assert_eq!(servers().await, [idle("dead"), idle("good")]);
    let call = |id: u64, name: &str, arguments: Value| {
        let params = json!({"name": name, "arguments": arguments});
        json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})
    };
    let started = server.post(&call(1, "session_start", json!({"message": "go"}))).send().await.unwrap();
    let started: Value = started.json().await.unwrap();
    let session = started["result"]["structuredContent"]["session_id"].clone();
    let waited = server.post(&call(2, "session_wait", json!({"session_id": session}))).send().await.unwrap();
    let waited = waited.text().await.unwrap();
    assert!(waited.contains("completed"), "{waited}");
    let known = servers().await;
    assert_eq!((&known[0]["name"], &known[0]["state"]), (&json!("dead"), &json!("failed")));
    assert!(known[0]["reason"].as_str().unwrap().contains("no configuration found"), "{known:?}");
    assert_eq!(
        (&known[1]["state"], &known[1]["description"]),
        (&json!("running"), &json!("fake 1, MCP 2025-11-25"))
    );
    assert!(known[1]["tools"].as_u64().unwrap() > 5, "{known:?}");
    // What the result has beside its text is in the log.
    let read = server.post(&call(3, "session_read", json!({"session_id": session}))).send().await.unwrap();
    let read: Value = read.json().await.unwrap();
    let items = read["result"]["structuredContent"]["items"].as_array().unwrap();
    let result = items.iter().find(|item| item["kind"] == "tool_result").expect("the result");
    let details = &result["details"];
    assert_eq!(details["structured_content"], json!({"answer": 42}), "{result}");
    assert_eq!(details["resources"], json!([{"uri": "file:///x", "name": "x"}]));
    assert_eq!(details["annotations"]["readOnlyHint"], false);
    let image = details["images"][0]["id"].as_str().unwrap();
    let image =
        server.request(Method::GET, &format!("/api/media/{image}")).bearer_auth(&server.token).send().await;
    assert_eq!(image.unwrap().bytes().await.unwrap().as_ref(), b"hi");
}

/// A server that was restarted knows its sessions no more. The call was not made then, so it is made in the new one.
#[test]
fn a_session_that_a_server_has_forgotten_is_opened_anew() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/mcp/session_server.py");
    let mut server = Command::new("python3").arg(script).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines().map(Result::unwrap);
    let port = lines.next().unwrap();
    let home = tempfile::tempdir().unwrap();
    let call = "{ tool = \"web__count\", args = {} }";
    std::fs::write(home.path().join("demo.toml"), format!("[otherwise]\nsteps = [{call}, {call}]\n"))
        .unwrap();
    let settings = format!(
        "[agents.demo]\nkind = \"script\"\nfile = \"demo.toml\"\n[mcp.web]\nurl = \"http://127.0.0.1:{port}/mcp\"\n"
    );
    std::fs::write(home.path().join("parlor.toml"), settings).unwrap();
    let mut chat = Command::new(PARLOR);
    chat.args(["chat", "--agent", "demo", "--json", "go"]).env("PARLOR_HOME", home.path());
    let output = String::from_utf8(chat.output().unwrap().stdout).unwrap();
    server.kill().unwrap();
    server.wait().unwrap();
    assert!(output.contains("\"output\":\"call 1\"") && output.contains("\"output\":\"call 2\""), "{output}");
    let asked: Vec<String> = lines.collect();
    let opened = asked.iter().filter(|line| line.starts_with("initialize")).count();
    assert_eq!(opened, 2, "{asked:?}");
    assert_eq!(asked.last().unwrap(), "tools/call session-2", "{asked:?}");
}
