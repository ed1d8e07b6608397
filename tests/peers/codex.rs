//! Runs the same programs through parlor's exec door and through `codex exec-server` of the npm package. The package
//! speaks the successor of the door's protocol, so what is compared is what both promise: output, exit codes, errors.

use std::process::Stdio;
use std::time::Duration;

use parlor_testkit::folder_outside_tmp;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

/// How long a server may take to send the next frame.
const FRAME_WAIT: Duration = Duration::from_secs(30);

/// What one server is asked to run.
struct Case {
    name: &'static str,
    argv: &'static [&'static str],
    env: &'static [(&'static str, &'static str)],
    folder: &'static str,
    tty: bool,
    arg0: Option<&'static str>,
    /// Text to write once `after` was printed.
    write: Option<&'static str>,
    /// Terminates the process once `after` was printed.
    terminate: bool,
    after: &'static str,
}

const CASE: Case = Case {
    name: "",
    argv: &[],
    env: &[],
    folder: "/",
    tty: false,
    arg0: None,
    write: None,
    terminate: false,
    after: "",
};

const CASES: &[Case] = &[
    Case { name: "streams and status", argv: &["/bin/sh", "-c", "echo out; echo err >&2; exit 3"], ..CASE },
    Case { name: "environment", argv: &["/usr/bin/env"], env: &[("A", "1"), ("B", "ä")], ..CASE },
    Case { name: "lookup in PATH", argv: &["echo", "found"], env: &[("PATH", "/usr/bin:/bin")], ..CASE },
    Case { name: "folder", argv: &["/bin/pwd", "-P"], folder: "/usr", ..CASE },
    Case { name: "arg0", argv: &["/bin/sh", "-c", "echo $0"], arg0: Some("other"), ..CASE },
    Case { name: "stdin at its end", argv: &["/bin/cat"], ..CASE },
    Case { name: "signal", argv: &["/bin/sh", "-c", "kill -9 $$"], ..CASE },
    Case { name: "much output", argv: &["/usr/bin/head", "-c", "3000000", "/dev/zero"], ..CASE },
    Case { name: "no such program", argv: &["/no/such/program"], ..CASE },
    Case { name: "no such folder", argv: &["/bin/true"], folder: "/no/such/folder", ..CASE },
    Case { name: "no program", argv: &[], ..CASE },
    Case {
        name: "terminal",
        argv: &["/bin/sh", "-c", "stty size; echo err >&2"],
        tty: true,
        env: PATH,
        ..CASE
    },
    Case {
        name: "write to a terminal",
        argv: &["/bin/sh", "-c", "echo up; read line; echo got $line"],
        tty: true,
        env: PATH,
        write: Some("text\n"),
        after: "up",
        ..CASE
    },
    Case {
        name: "terminate",
        argv: &["/bin/sh", "-c", "echo up; exec /bin/sleep 1000"],
        terminate: true,
        after: "up",
        ..CASE
    },
];

const PATH: &[(&str, &str)] = &[("PATH", "/usr/bin:/bin")];

/// The protocol of a server.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Dialect {
    Parlor,
    Codex,
}

impl Dialect {
    fn method(self, parlor: &'static str, codex: &'static str) -> &'static str {
        match self {
            Self::Parlor => parlor,
            Self::Codex => codex,
        }
    }
}

/// What a case looks like to a client.
#[derive(Debug, Default, PartialEq)]
struct Outcome {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    exit_code: Option<i64>,
    error_code: Option<i64>,
}

/// A server past its handshake.
struct ExecServer {
    dialect: Dialect,
    _child: Child,
    stdin: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl ExecServer {
    async fn start(dialect: Dialect, program: &str, args: &[&str], home: &std::path::Path) -> Self {
        let mut child = Command::new(program)
            .args(args)
            .env_clear()
            .envs(PATH.iter().copied())
            .env("HOME", home)
            .env("CODEX_HOME", home)
            .env("PARLOR_HOME", home)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .expect("the server starts");
        let stdin = child.stdin.take().expect("a pipe");
        let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let mut server = Self { dialect, _child: child, stdin, lines };
        let mut params = json!({"clientName": "peers"});
        if dialect == Dialect::Codex {
            params["resumeSessionId"] = Value::Null;
        }
        server.send(json!({"id": 1, "method": "initialize", "params": params})).await;
        while server.next().await["id"] != 1 {}
        server.send(json!({"method": "initialized", "params": {}})).await;
        server
    }

    async fn send(&mut self, frame: Value) {
        self.stdin.write_all(format!("{frame}\n").as_bytes()).await.expect("the server reads");
    }

    async fn next(&mut self) -> Value {
        let line = timeout(FRAME_WAIT, self.lines.next_line()).await.expect("a frame in time");
        serde_json::from_str(&line.expect("stdout can be read").expect("the server runs")).expect("JSON")
    }

    async fn play(&mut self, case: &Case) -> Outcome {
        let mut outcome = Outcome::default();
        let dialect = self.dialect;
        let folder = format!("{}{}", dialect.method("", "file://"), case.folder);
        let env: serde_json::Map<String, Value> =
            case.env.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
        let mut params = json!({
            "processId": case.name, "argv": case.argv, "cwd": folder, "env": env, "tty": case.tty, "arg0": case.arg0,
        });
        if case.arg0.is_none() {
            params.as_object_mut().expect("an object").remove("arg0");
        }
        let method = dialect.method("command/exec", "process/start");
        self.send(json!({"id": 2, "method": method, "params": params})).await;
        let (mut has_acted, mut has_exited, mut is_closed) = (false, false, false);
        loop {
            let frame = self.next().await;
            if frame["params"]["processId"].as_str().is_some_and(|process| process != case.name) {
                continue;
            }
            if frame["id"] == 2 && frame.get("error").is_some() {
                outcome.error_code = frame["error"]["code"].as_i64();
                return outcome;
            }
            match frame["method"].as_str() {
                Some("command/exec/outputDelta" | "process/output") => {
                    let chunk = frame["params"]["chunk"].as_str().expect("a chunk");
                    let bytes = base64_simd::STANDARD.decode_to_vec(chunk).expect("base64");
                    match frame["params"]["stream"].as_str() {
                        Some("stdout" | "pty") => outcome.stdout.extend(bytes),
                        Some("stderr") => outcome.stderr.extend(bytes),
                        other => panic!("no stream has the name {other:?}"),
                    }
                }
                Some("command/exec/exited" | "process/exited") => {
                    outcome.exit_code = frame["params"]["exitCode"].as_i64();
                    has_exited = true;
                }
                Some("process/closed") => is_closed = true,
                _ => {}
            }
            // Codex sends both, in any order.
            if has_exited && (is_closed || dialect == Dialect::Parlor) {
                return outcome;
            }
            let text = String::from_utf8_lossy(&outcome.stdout).into_owned();
            if !has_acted && !case.after.is_empty() && text.contains(case.after) {
                has_acted = true;
                self.act(case).await;
            }
        }
    }

    async fn act(&mut self, case: &Case) {
        if let Some(text) = case.write {
            let mut params =
                json!({"processId": case.name, "chunk": base64_simd::STANDARD.encode_to_string(text)});
            if self.dialect == Dialect::Codex {
                params["writeId"] = json!("1");
            }
            let method = self.dialect.method("command/exec/write", "process/write");
            self.send(json!({"id": 3, "method": method, "params": params})).await;
        }
        if case.terminate {
            let method = self.dialect.method("command/exec/terminate", "process/terminate");
            self.send(json!({"id": 3, "method": method, "params": {"processId": case.name}})).await;
        }
    }
}

#[tokio::test]
#[ignore = "needs the peers: make peers"]
async fn parlor_runs_programs_as_codex_exec_server_does() {
    let codex = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/peers/bin/codex");
    assert!(std::path::Path::new(codex).exists(), "run scripts/peers.sh first");
    let home = tempfile::tempdir().expect("a temporary folder");
    let parlor = env!("CARGO_BIN_EXE_parlor");
    let mut parlor = ExecServer::start(Dialect::Parlor, parlor, &["stdio", "exec"], home.path()).await;
    let args = ["exec-server", "--listen", "stdio"];
    let mut codex = ExecServer::start(Dialect::Codex, codex, &args, home.path()).await;
    let mut errors = Vec::new();
    for case in CASES {
        let (parlor, codex) = (parlor.play(case).await, codex.play(case).await);
        if parlor == codex {
            eprintln!("same: {}", case.name);
        } else {
            errors.push(format!("{}: they differ\n    parlor {parlor:?}\n    codex  {codex:?}", case.name));
        }
    }
    assert!(errors.is_empty(), "{} of {} cases:\n{}", errors.len(), CASES.len(), errors.join("\n"));
}

/// Scripts that a sandbox stops, or that fail by themselves, on pipes: codex cannot start a terminal in a sandbox.
const SANDBOXED: &[&str] = &[
    "touch ../outside",
    "touch ../outside || exit 5",
    "touch ../outside; exit 0",
    "cat no-such-file",
    "exit 3",
    "echo text > inside",
    "echo Permission denied; exit 1",
    "echo Permission denied >&2; exit 126",
    "echo Permission denied; kill -9 $$",
    "kill -SYS $$",
];

/// The exit codes and `sandboxDenied` of all sandboxed scripts.
async fn sandboxed(program: &str, args: &[&str], home: &std::path::Path) -> Vec<(Value, Value)> {
    let project = home.join("project");
    std::fs::create_dir_all(&project).expect("a folder");
    let mut server = ExecServer::start(Dialect::Codex, program, args, home).await;
    let project = format!("file://{}", project.display());
    let entry = |kind: &str, access: &str| json!({"path": {"type": "special", "value": {"kind": kind}}, "access": access});
    let entries = [entry("root", "read"), entry("project_roots", "write")];
    let files = json!({"type": "restricted", "entries": entries});
    let mut seen = Vec::new();
    for script in SANDBOXED {
        let params = json!({
            "processId": script, "argv": ["/bin/sh", "-c", script], "cwd": project,
            "env": {"PATH": "/usr/bin:/bin", "LC_ALL": "C"}, "tty": false,
            "sandbox": {
                "permissions": {"type": "managed", "file_system": files, "network": "restricted"},
                "cwd": project, "workspaceRoots": [project], "windowsSandboxLevel": "disabled",
                "useLegacyLandlock": false,
            },
        });
        server.send(json!({"id": 2, "method": "process/start", "params": params})).await;
        loop {
            let frame = server.next().await;
            assert!(frame.get("error").is_none(), "{frame}");
            if frame["method"] == "process/exited" && frame["params"]["processId"] == *script {
                seen.push((frame["params"]["exitCode"].clone(), frame["params"]["sandboxDenied"].clone()));
                break;
            }
        }
    }
    seen
}

#[tokio::test]
#[ignore = "needs the peers: make peers"]
async fn parlor_reports_what_a_sandbox_stops_as_codex_exec_server_does() {
    // Not in the folder for temporary files, which the sandbox lets be written.
    let folder = || folder_outside_tmp(env!("CARGO_TARGET_TMPDIR"));
    let (parlor_home, codex_home) = (folder(), folder());
    let codex = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/peers/bin/codex");
    let expected = sandboxed(codex, &["exec-server", "--listen", "stdio"], codex_home.path()).await;
    assert!(expected.iter().any(|(_, is_denied)| *is_denied == true), "{expected:?}");
    let seen = sandboxed(env!("CARGO_BIN_EXE_parlor"), &["stdio", "exec"], parlor_home.path()).await;
    for ((script, seen), expected) in SANDBOXED.iter().zip(seen).zip(expected) {
        assert_eq!(seen, expected, "{script}");
    }
}
