//! Runs the codex CLI of the npm package with parlor as its executor, and with its own `codex exec-server`: a stub of the
//! Responses API on loopback plays the same tool calls to both, and the results must be the same.
#![expect(clippy::unwrap_used, reason = "a test helper that cannot go on panics, as the test would")]

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tokio::time::timeout;

const CODEX: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/peers/bin/codex");
const PARLOR: &str = env!("CARGO_BIN_EXE_parlor");

/// How long the CLI may take for all its steps.
const RUN_WAIT: Duration = Duration::from_secs(120);

/// A picture with one pixel.
const PICTURE: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

/// A tool call of the stub model.
enum Step {
    /// A function and its arguments.
    Call(&'static str, Value),
    /// Types into the process that the last step has left running.
    Type(&'static str),
    /// A patch.
    Patch(&'static str),
    /// A tool of an MCP server, and its arguments.
    Mcp(&'static str, &'static str, Value),
}

fn steps() -> Vec<Step> {
    let mut steps = steps_without_mcp();
    steps.extend([
        Step::Mcp("lines", "read_file", json!({"path": "AGENTS.md"})),
        Step::Mcp("lines", "shell", json!({"command": "pwd | grep -o work$"})),
        Step::Mcp("web", "read_file", json!({"path": "AGENTS.md"})),
    ]);
    steps
}

/// The steps for a connection that is cut at each output of a process. MCP servers begin beside the first requests for files, and
/// the CLI gives up requests in flight when its connection is lost, with any server.
fn steps_without_mcp() -> Vec<Step> {
    vec![
        // Between the streams no order is promised, so the second text comes later.
        Step::Call("exec_command", json!({"cmd": "echo out; sleep 0.5; echo err >&2; exit 3"})),
        Step::Call("exec_command", json!({"cmd": "pwd | grep -o work$; wc -c < AGENTS.md"})),
        Step::Call(
            "exec_command",
            json!({"cmd": "stty size; read a; echo got $a", "tty": true, "yield_time_ms": 1500}),
        ),
        Step::Type("hello\n"),
        Step::Call(
            "exec_command",
            json!({
                "cmd": "trap 'echo stopped; exit 5' INT; echo up; while :; do sleep 0.1; done",
                "yield_time_ms": 1500,
            }),
        ),
        Step::Type("\u{3}"),
        Step::Patch("*** Begin Patch\n*** Add File: sub/new.txt\n+one\n+two\n*** End Patch\n"),
        Step::Patch(
            "*** Begin Patch\n*** Update File: sub/new.txt\n*** Move to: sub/moved.txt\n@@\n-one\n+uno\n two\n\
             *** End Patch\n",
        ),
        Step::Patch("*** Begin Patch\n*** Update File: sub/moved.txt\n@@\n uno\n-two\n+dos\n*** End Patch\n"),
        Step::Call("exec_command", json!({"cmd": "ls sub; cat sub/moved.txt"})),
        Step::Patch("*** Begin Patch\n*** Delete File: sub/moved.txt\n*** End Patch\n"),
        Step::Call("exec_command", json!({"cmd": "ls -a sub; head -c 300000 /dev/zero | wc -c"})),
        Step::Call("view_image", json!({"path": "dot.png"})),
    ]
}

/// Commands that a sandbox stops, and some that it does not. On pipes only: the CLI's own server cannot start a terminal in a
/// sandbox.
fn forbidden_steps() -> Vec<Step> {
    vec![
        Step::Call("exec_command", json!({"cmd": "touch ../outside || exit 5"})),
        Step::Call("exec_command", json!({"cmd": "touch ../outside 2>&1; echo went on"})),
        Step::Call("exec_command", json!({"cmd": "echo x > .git/config"})),
        Step::Call("exec_command", json!({"cmd": "echo text > inside && cat inside"})),
        Step::Call("exec_command", json!({"cmd": "cat /no/such/file"})),
        Step::Call("exec_command", json!({"cmd": "ls; ls ..; cat .git/config 2>&1"})),
    ]
}

/// What the stub has heard.
#[derive(Default)]
struct Heard {
    /// The results of the tool calls, without what differs from run to run.
    results: Vec<String>,
    has_instructions: bool,
    has_skill: bool,
}

/// The stub of the Responses API.
async fn serve_model(listener: TcpListener, steps: Vec<Step>, heard: Arc<Mutex<Heard>>) {
    while let Ok((stream, _)) = listener.accept().await {
        let mut stream = BufReader::new(stream);
        let Some(body) = read_request(&mut stream).await else { continue };
        let item = {
            let mut heard = heard.lock().unwrap();
            let text = body.to_string();
            heard.has_instructions |= text.contains("the cat is called Tom");
            heard.has_skill |= text.contains("brews tea at four");
            let outputs = body["input"].as_array().into_iter().flatten();
            let outputs: Vec<&Value> = outputs
                .filter(|item| item["type"].as_str().is_some_and(|kind| kind.ends_with("_output")))
                .collect();
            let last = outputs.last().map(|item| shown(&item["output"])).unwrap_or_default();
            heard.results = outputs.iter().map(|item| normalized(&shown(&item["output"]))).collect();
            item(&steps, outputs.len(), &last)
        };
        let done = json!({"type": "response.output_item.done", "output_index": 0, "item": item});
        let usage = json!({"input_tokens": 1, "output_tokens": 1, "total_tokens": 2});
        let mut events = String::new();
        for event in [
            json!({"type": "response.created", "response": {"id": "r"}}),
            done,
            json!({"type": "response.completed", "response": {"id": "r", "usage": usage}}),
        ] {
            events.push_str(&format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap()));
        }
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
        let _ = stream.get_mut().write_all(format!("{head}{events}").as_bytes()).await;
    }
}

/// The body of a POST; `None` for other requests, which get 404.
async fn read_request(stream: &mut BufReader<TcpStream>) -> Option<Value> {
    let (mut first, mut length) = (String::new(), 0);
    stream.read_line(&mut first).await.ok()?;
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await.ok()?;
        match line.trim_end().split_once(':') {
            None => break,
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                length = value.trim().parse().ok()?;
            }
            Some(_) => {}
        }
    }
    if !first.starts_with("POST") {
        let answer = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
        let _ = stream.get_mut().write_all(answer).await;
        return None;
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    serde_json::from_slice(&body).ok()
}

/// The answer of the model after `done` steps, the last of which had the result `last`.
fn item(steps: &[Step], done: usize, last: &str) -> Value {
    let call_id = format!("call_{done}");
    let function = |name: &str, arguments: Value| {
        json!({
            "type": "function_call", "id": call_id, "call_id": call_id, "name": name,
            "arguments": arguments.to_string(),
        })
    };
    match steps.get(done) {
        Some(Step::Call(name, arguments)) => function(name, arguments.clone()),
        Some(Step::Type(text)) => {
            let session = last.split("session ID ").nth(1).and_then(|rest| rest.split_whitespace().next());
            let session: u64 = session.and_then(|id| id.parse().ok()).unwrap_or_default();
            let arguments = json!({"session_id": session, "chars": text, "yield_time_ms": 3000});
            function("write_stdin", arguments)
        }
        Some(Step::Patch(patch)) => json!({
            "type": "custom_tool_call", "id": call_id, "call_id": call_id, "name": "apply_patch",
            "input": patch, "status": "completed",
        }),
        Some(Step::Mcp(server, tool, arguments)) => {
            let mut call = function(tool, arguments.clone());
            call["namespace"] = format!("mcp__{server}").into();
            call
        }
        None => json!({
            "type": "message", "role": "assistant", "id": "m",
            "content": [{"type": "output_text", "text": "all done"}],
        }),
    }
}

/// The text of a result.
fn shown(output: &Value) -> String {
    output.as_str().map_or_else(|| output.to_string(), str::to_owned)
}

/// A result without ids and times.
fn normalized(text: &str) -> String {
    let lines =
        text.lines().filter(|line| !line.starts_with("Chunk ID: ") && !line.starts_with("Wall time: "));
    // A result of an MCP server is JSON in one line.
    let lines = lines.map(|line| match line.split_once("Wall time: ") {
        Some((before, rest)) => {
            format!("{before}{}", rest.split_once(" seconds").map_or(rest, |(_, rest)| rest))
        }
        None => line.to_owned(),
    });
    let lines = lines.map(|line| match line.split_once("session ID ") {
        Some((before, _)) => format!("{before}session ID N"),
        None => line,
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Where the CLI runs its commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Executor {
    ParlorStdio,
    ParlorSocket,
    /// A relay cuts every connection in place of the first output.
    ParlorSocketCut,
    CodexStdio,
    Codex,
}

/// A server on a WebSocket, which is killed on drop.
struct SocketServer {
    _child: Child,
    address: SocketAddr,
    token: Option<String>,
}

async fn start_server(executor: Executor, home: &Path) -> SocketServer {
    if executor == Executor::Codex {
        let mut child = Command::new(CODEX)
            .args(["exec-server", "--listen", "ws://127.0.0.1:0"])
            .env("CODEX_HOME", home)
            .env("HOME", home)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).await.unwrap();
        let address = line.trim().strip_prefix("ws://").unwrap().parse().unwrap();
        return SocketServer { _child: child, address, token: None };
    }
    let child = Command::new(PARLOR)
        .args(["serve", "--no-http", "--no-supex", "--exec", "ws://127.0.0.1:0"])
        .env("PARLOR_HOME", home)
        .env("HOME", home)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let served = served(home).await;
    let token = token(home).await;
    SocketServer { _child: child, address: served["exec"].as_str().unwrap().parse().unwrap(), token }
}

/// Starts a server with MCP on HTTP, whose tools work in `work`. Returns its address.
async fn start_mcp_server(home: &Path, work: &Path) -> (Child, String) {
    std::fs::create_dir(home).unwrap();
    let child = Command::new(PARLOR)
        .args(["serve", "--no-supex", "--listen", "127.0.0.1:0"])
        .env("PARLOR_HOME", home)
        .current_dir(work)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let served = served(home).await;
    (child, served["http"].as_str().unwrap().to_owned())
}

/// The token of a server.
async fn token(home: &Path) -> Option<String> {
    let output = Command::new(PARLOR).arg("token").env("PARLOR_HOME", home).output().await.unwrap();
    String::from_utf8(output.stdout).unwrap().lines().next().map(str::to_owned)
}

/// Waits until a server has named its addresses.
async fn served(home: &Path) -> Value {
    loop {
        match std::fs::read_to_string(home.join("serve.json")) {
            Ok(text) => return serde_json::from_str(&text).unwrap(),
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

/// Passes bytes on, and cuts each connection in place of the first output of a process. Not where an answer is under way:
/// the CLI gives up requests that are in flight when its connection is lost.
async fn relay(listener: TcpListener, to: SocketAddr, cuts: Arc<Mutex<usize>>) {
    while let Ok((mut client, _)) = listener.accept().await {
        let Ok(mut server) = TcpStream::connect(to).await else { continue };
        let cuts = Arc::clone(&cuts);
        tokio::spawn(async move {
            let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
                (client.split(), server.split());
            let up = tokio::io::copy(&mut from_client, &mut to_server);
            let down = async {
                let mut buffer = vec![0; 64 << 10];
                while let Ok(count @ 1..) = from_server.read(&mut buffer).await {
                    let bytes = &buffer[..count];
                    let has = |text: &str| bytes.windows(text.len()).any(|part| part == text.as_bytes());
                    if has("process/output") && !has("\"result\"") {
                        *cuts.lock().unwrap() += 1;
                        return;
                    }
                    if to_client.write_all(bytes).await.is_err() {
                        return;
                    }
                }
            };
            tokio::select! {
                _ = up => {}
                () = down => {}
            }
        });
    }
}

/// The sandbox that the CLI asks for with each command.
const FULL_ACCESS: &str = "danger-full-access";
const WORKSPACE_WRITE: &str = "workspace-write";
const READ_ONLY: &str = "read-only";

/// Runs steps with an executor, and returns their results.
async fn results(executor: Executor, sandbox: &str, steps: Vec<Step>) -> Vec<String> {
    let folder =
        tempfile::Builder::new().prefix("codex-cli").tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let [home, work, server_home] = ["home", "work", "server"].map(|name| folder.path().join(name));
    for path in [&home, &work, &server_home] {
        std::fs::create_dir(path).unwrap();
    }
    std::fs::write(work.join("AGENTS.md"), "the cat is called Tom\n").unwrap();
    let skill = work.join(".agents/skills/tea");
    std::fs::create_dir_all(&skill).unwrap();
    std::fs::write(skill.join("SKILL.md"), "---\nname: tea\ndescription: brews tea at four\n---\n").unwrap();
    std::fs::create_dir(work.join(".git")).unwrap();
    std::fs::write(work.join("dot.png"), base64_simd::STANDARD.decode_to_vec(PICTURE).unwrap()).unwrap();

    let model = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", model.local_addr().unwrap());
    let heard: Arc<Mutex<Heard>> = Arc::default();
    let stub = tokio::spawn(serve_model(model, steps, Arc::clone(&heard)));
    let (_mcp, mcp_address) = start_mcp_server(&folder.path().join("mcp"), &work).await;
    // The MCP server on HTTP is on loopback.
    std::fs::write(server_home.join("parlor.toml"), "[exec]\nallow_private_urls = true\n").unwrap();
    let mut config = format!(
        "model = \"gpt-5.5\"\nmodel_provider = \"stub\"\n[model_providers.stub]\nname = \"stub\"\n\
         base_url = \"{url}\"\nwire_api = \"responses\"\n"
    );
    if executor != Executor::ParlorSocketCut {
        let mcp_home = folder.path().join("mcp");
        let mcp_token = token(&mcp_home).await.unwrap();
        config.push_str(&mcp_servers(&work, &mcp_home, &mcp_address, &mcp_token));
    }
    std::fs::write(home.join("config.toml"), config).unwrap();
    let mut environment =
        "default = \"box\"\ninclude_local = false\n[[environments]]\nid = \"box\"\n".to_owned();
    let cuts: Arc<Mutex<usize>> = Arc::default();
    let mut server = None;
    if executor == Executor::CodexStdio {
        environment
            .push_str(&format!("program = \"{CODEX}\"\nargs = [\"exec-server\", \"--listen\", \"stdio\"]\n"));
    } else if executor == Executor::ParlorStdio {
        environment.push_str(&format!("program = \"{PARLOR}\"\nargs = [\"stdio\", \"exec\"]\n"));
        environment.push_str(&format!("env = {{ PARLOR_HOME = \"{}\" }}\n", server_home.display()));
    } else {
        let served = server.insert(start_server(executor, &server_home).await);
        let mut address = served.address;
        if executor == Executor::ParlorSocketCut {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            address = listener.local_addr().unwrap();
            tokio::spawn(relay(listener, served.address, Arc::clone(&cuts)));
        }
        environment.push_str(&format!("url = \"ws://{address}\"\n"));
        if let Some(token) = &served.token {
            environment.push_str(&format!("auth_bearer_token = \"{token}\"\n"));
        }
    }
    std::fs::write(home.join("environments.toml"), environment).unwrap();
    run_cli(&home, &work, sandbox).await;
    stub.abort();
    let heard = heard.lock().unwrap();
    assert!(heard.has_instructions, "{executor:?}: AGENTS.md was not read");
    assert!(heard.has_skill, "{executor:?}: the skill was not read");
    if executor == Executor::ParlorSocketCut {
        let cuts = *cuts.lock().unwrap();
        assert!(cuts > 3, "only {cuts} cuts");
        eprintln!("codex CLI: {cuts} cuts");
    }
    heard.results.clone()
}

/// The settings of two MCP servers on the executor, one on pipes and one on HTTP.
fn mcp_servers(work: &Path, home: &Path, address: &str, token: &str) -> String {
    let (work, home) = (work.display(), home.display());
    format!(
        "[mcp_servers.lines]\nenvironment_id = \"box\"\ncommand = \"{PARLOR}\"\nargs = [\"stdio\", \"mcp\"]\n\
         cwd = \"{work}\"\nenv = {{ PARLOR_HOME = \"{home}\" }}\n\
         default_tools_approval_mode = \"approve\"\n\
         [mcp_servers.web]\nenvironment_id = \"box\"\nurl = \"http://{address}/mcp\"\n\
         http_headers = {{ Authorization = \"Bearer {token}\" }}\n\
         default_tools_approval_mode = \"approve\"\n"
    )
}

async fn run_cli(home: &Path, work: &PathBuf, sandbox: &str) {
    let mut cli = Command::new(CODEX)
        .args(["exec", "--skip-git-repo-check", "-s", sandbox, "go"])
        .env("CODEX_HOME", home)
        // Commands run in a login shell, and the files of the user's may print something.
        .env("HOME", home)
        .env_remove("OPENAI_API_KEY")
        .current_dir(work)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let (mut out, mut err) = (String::new(), String::new());
    let (mut stdout, mut stderr) = (cli.stdout.take().unwrap(), cli.stderr.take().unwrap());
    let run =
        async { tokio::join!(stdout.read_to_string(&mut out), stderr.read_to_string(&mut err), cli.wait()) };
    let status = timeout(RUN_WAIT, run).await.expect("the CLI ends").2.unwrap();
    assert!(status.success() && out.contains("all done"), "{out}\n{err}");
}

#[tokio::test]
#[ignore = "needs the peers: make peers"]
async fn the_codex_cli_gets_the_same_results_from_parlor_as_from_its_own_server() {
    assert!(Path::new(CODEX).exists(), "run scripts/peers.sh first");
    let expected = results(Executor::Codex, FULL_ACCESS, steps()).await;
    assert_eq!(expected.len(), steps().len(), "{expected:#?}");
    for (step, result) in expected.iter().enumerate() {
        eprintln!(
            "codex CLI, step {step}: {}",
            result.chars().take(200).collect::<String>().replace('\n', " | ")
        );
    }
    for executor in [Executor::CodexStdio, Executor::ParlorStdio, Executor::ParlorSocket] {
        assert_eq!(results(executor, FULL_ACCESS, steps()).await, expected, "{executor:?}");
        eprintln!("codex CLI: {executor:?} gives the same results");
    }
    // Its own server cannot start a terminal in a sandbox, so the results are compared with those of full access.
    for executor in [Executor::ParlorStdio, Executor::ParlorSocket] {
        assert_eq!(
            results(executor, WORKSPACE_WRITE, steps()).await,
            expected,
            "{executor:?} in the sandbox"
        );
        eprintln!("codex CLI: {executor:?} gives the same results in the sandbox {WORKSPACE_WRITE}");
    }
    for sandbox in [FULL_ACCESS, WORKSPACE_WRITE] {
        let cut = results(Executor::ParlorSocketCut, sandbox, steps_without_mcp()).await;
        assert_eq!(cut, expected[..steps_without_mcp().len()], "with cuts, in {sandbox}");
        eprintln!("codex CLI: with a connection that is cut it gives the same results in {sandbox}");
    }
    for executor in [Executor::ParlorStdio, Executor::ParlorSocket] {
        let read_only = results(executor, READ_ONLY, steps()).await;
        assert_eq!(read_only[..6], expected[..6], "these steps only read");
        assert!(!read_only[9].contains("moved.txt\n"), "the patches must not be applied: {}", read_only[9]);
        eprintln!("codex CLI: {executor:?} in the sandbox {READ_ONLY} writes nothing");
    }
}

#[tokio::test]
#[ignore = "needs the peers: make peers"]
async fn the_codex_cli_learns_the_same_of_commands_that_a_sandbox_stops() {
    assert!(Path::new(CODEX).exists(), "run scripts/peers.sh first");
    for sandbox in [WORKSPACE_WRITE, READ_ONLY] {
        let expected = results(Executor::CodexStdio, sandbox, forbidden_steps()).await;
        for result in &expected {
            eprintln!("codex CLI in {sandbox}: {}", result.replace('\n', " | "));
        }
        for executor in [Executor::ParlorStdio, Executor::ParlorSocket] {
            assert_eq!(
                results(executor, sandbox, forbidden_steps()).await,
                expected,
                "{executor:?} in {sandbox}"
            );
        }
    }
}
