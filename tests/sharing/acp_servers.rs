//! An editor brings MCP servers for its sessions.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::acp::Acp;
use crate::frames::text;
use crate::home::Home;
use crate::server::TOKEN;
use crate::supr::serve;
use crate::terminal::TIMEOUT;

const SECRET: &str = "a-value-that-nobody-may-see";

/// A state folder whose agent calls a tool of the server `mine`, and says so.
fn scripted() -> Home {
    let home = Home::new();
    let script = r#"
[[on]]
match = "^env (.*)$"
steps = [{ tool = "mine__env", args = { name = "$1" } }]

[[on]]
match = "^list$"
steps = [{ tool = "web__list_dir", args = { path = "." } }]
"#;
    home.configure("demo.toml", script);
    let agent = "default_agent = \"demo\"\n[agents.demo]\nkind = \"script\"\nfile = \"demo.toml\"\n";
    home.configure("parlor.toml", agent);
    home
}

/// A program that is found in `PATH`, writes its process id to `pids` and has a secret in its environment.
fn program(name: &str, pids: &Path) -> Value {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tools/tests/fake_mcp_server.py");
    let env = json!([{"name": "TOKEN", "value": SECRET}, {"name": "COLOUR", "value": "red"}]);
    let args = json!([script, format!("pid={}", pids.display())]);
    json!({"name": name, "command": "python3", "args": args, "env": env})
}

/// Opens a session with these servers in an editor without one.
async fn open(editor: &mut Acp, home: &Home, servers: Value) {
    let new = editor.call("session/new", json!({"cwd": home.folder(), "mcpServers": servers})).await;
    editor.session = text(&new["sessionId"]);
}

/// Lets the agent call a tool, and returns the last state of the call.
async fn call(editor: &mut Acp, prompt: &str) -> Value {
    assert_eq!(editor.turn(prompt).await, "end_turn");
    let frames = editor.process.frames.all();
    let ended = |frame: &&Value| {
        let status = &frame["params"]["update"]["status"];
        status == "completed" || status == "failed"
    };
    frames.iter().rfind(ended).expect("the call ended")["params"]["update"].clone()
}

/// The text that the agent and notices showed.
fn said(editor: &mut Acp) -> String {
    let frames = editor.process.frames.all();
    let texts =
        frames.iter().filter(|frame| frame["params"]["update"]["sessionUpdate"] == "agent_message_chunk");
    texts.map(|frame| text(&frame["params"]["update"]["content"]["text"])).collect()
}

/// The ids of the processes that servers have written down.
fn pids(file: &Path) -> Vec<u32> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    text.lines().map(|line| line.parse().unwrap()).collect()
}

/// Waits until a process has ended.
async fn wait_for_end(pid: u32) {
    let has_ended = || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit(')').next().is_none_or(|rest| rest.trim().is_empty() || rest.trim().starts_with('Z'))
    };
    let ended = async {
        while !has_ended() {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, ended).await.expect("the server ends");
}

/// Whether any file below `folder` contains `text`.
fn contains(folder: PathBuf, text: &str) -> bool {
    std::fs::read_dir(folder).unwrap().any(|entry| {
        let entry = entry.unwrap();
        match entry.file_type().unwrap() {
            kind if kind.is_dir() => contains(entry.path(), text),
            kind if kind.is_file() => {
                let content = std::fs::read(entry.path()).unwrap();
                content.windows(text.len()).any(|window| window == text.as_bytes())
            }
            _ => false,
        }
    })
}

#[tokio::test]
async fn servers_serve_one_session_show_no_secrets_and_end_with_it() {
    let home = scripted();
    let file = home.folder().join("pids");
    let mut editor = Acp::connect(&home).await;
    open(&mut editor, &home, json!([program("mine", &file)])).await;
    assert_eq!(pids(&file).len(), 1, "the server has started when the session is open");
    let found = call(&mut editor, "env COLOUR").await;
    assert!(found["status"] == "completed" && found.to_string().contains("red"), "{found}");
    let hidden = call(&mut editor, "env TOKEN").await;
    assert!(hidden["status"] == "completed" && hidden.to_string().contains("[secret]"), "{hidden}");

    // Another session of the same editor has no such tool.
    let with_servers = std::mem::take(&mut editor.session);
    open(&mut editor, &home, json!([])).await;
    let refused = call(&mut editor, "env COLOUR").await;
    assert_eq!(
        (&refused["status"], &refused["rawOutput"]["code"]),
        (&json!("failed"), &json!("UNKNOWN_TOOL"))
    );

    // The servers of `session/resume` replace those from before.
    let again =
        json!({"sessionId": with_servers, "cwd": home.folder(), "mcpServers": [program("mine", &file)]});
    editor.call("session/resume", again).await;
    let [first, second] = pids(&file)[..] else { panic!("two servers were started") };
    wait_for_end(first).await;
    editor.session = with_servers.clone();
    assert_eq!(call(&mut editor, "env COLOUR").await["status"], "completed");
    editor.call("session/close", json!({"sessionId": with_servers})).await;
    wait_for_end(second).await;
    let frames = editor.process.frames.all();
    assert!(frames.iter().all(|frame| !frame.to_string().contains(SECRET)));
    drop(editor);
    assert!(!contains(home.state(), SECRET), "a file of parlor contains a secret of a server");
}

#[tokio::test]
async fn a_server_that_does_not_start_costs_only_its_own_tools() {
    let home = scripted();
    let file = home.folder().join("pids");
    let mut editor = Acp::connect(&home).await;
    let missing = json!({"name": "gone", "command": "/no/such/program", "args": [], "env": []});
    let sse = json!({"type": "sse", "name": "old", "url": "http://127.0.0.1:1/", "headers": []});
    open(&mut editor, &home, json!([missing, program("mine", &file), sse])).await;
    assert_eq!(call(&mut editor, "env COLOUR").await["status"], "completed");
    let said = said(&mut editor);
    assert!(said.contains("\"gone\" are missing: it cannot be started") && said.contains("`sse`"), "{said}");
    // The end of the input ends the servers too.
    let [pid] = pids(&file)[..] else { panic!("one server was started") };
    editor.process.close_stdin();
    assert!(editor.process.wait().await.success());
    wait_for_end(pid).await;
}

#[tokio::test]
async fn a_web_service_serves_a_loaded_session() {
    let home = scripted();
    let mut editor = Acp::start(&home).await;
    assert_eq!(editor.turn("list").await, "end_turn");
    let session = editor.session.clone();
    editor.process.close_stdin();
    assert!(editor.process.wait().await.success());

    let other = Home::new();
    std::fs::write(other.folder().join("seen-over-http"), "").unwrap();
    let server = serve(&other);
    let headers = json!([{"name": "Authorization", "value": format!("Bearer {TOKEN}")}]);
    let url = format!("http://{}/mcp", server.http);
    let web = json!([{"type": "http", "name": "web", "url": url, "headers": headers}]);
    let mut next = Acp::connect(&home).await;
    let load = json!({"sessionId": session, "cwd": home.folder(), "mcpServers": web});
    next.call("session/load", load).await;
    next.session = session;
    let listed = call(&mut next, "list").await;
    assert!(listed["status"] == "completed" && listed.to_string().contains("seen-over-http"), "{listed}");
}
