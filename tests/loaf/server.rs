//! The program under test, and a client that reads a line only when a test asks for it.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

/// How long a helper waits for what must happen. A test that waits this long has failed.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

/// The program under test.
pub(crate) const PARLOR: &str = env!("CARGO_BIN_EXE_parlor");

/// The output of `future`. Panics with `what` after [`TIMEOUT`].
pub(crate) async fn within_timeout<T>(what: &str, future: impl Future<Output = T>) -> T {
    timeout(TIMEOUT, future).await.unwrap_or_else(|_| panic!("timeout while waiting for: {what}"))
}

/// A temporary working folder that contains the state folder.
pub(crate) struct Home(tempfile::TempDir);

impl Home {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary folder"))
    }

    /// A home with this `parlor.toml`.
    pub(crate) fn with(settings: &str) -> Self {
        let home = Self::new();
        std::fs::create_dir(home.state()).expect("the folder is new");
        std::fs::write(home.state().join("parlor.toml"), settings).expect("the folder can be written to");
        home
    }

    /// The working folder.
    pub(crate) fn folder(&self) -> &Path {
        self.0.path()
    }

    /// The state folder, which the program creates.
    pub(crate) fn state(&self) -> PathBuf {
        self.folder().join("state")
    }

    /// `parlor stdio loaf` for a user without keys, screen or keyring. It is not started yet.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(PARLOR);
        command.args(["stdio", "loaf"]).current_dir(self.folder()).kill_on_drop(true);
        command.env("PARLOR_HOME", self.state()).env("HOME", self.folder());
        for name in ["OPENAI_API_KEY", "ANTHROPIC_API_KEY", "OPENROUTER_API_KEY", "GEMINI_API_KEY"] {
            command.env_remove(name);
        }
        for name in ["DISPLAY", "DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR"] {
            command.env_remove(name);
        }
        command
    }

    pub(crate) async fn server(&self) -> Server {
        Server::start(self.command())
    }
}

/// A server process, which is killed on drop.
pub(crate) struct Server {
    child: tokio::process::Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    /// Lines that arrived while a helper waited for a response, in order.
    skipped_lines: VecDeque<Value>,
    requests: u64,
}

impl Server {
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the program starts");
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().expect("stdout is piped"));
        Self { child, stdin, stdout, skipped_lines: VecDeque::new(), requests: 0 }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id().expect("the process was not reaped yet")
    }

    pub(crate) async fn write(&mut self, bytes: &[u8]) {
        let stdin = self.stdin.as_mut().expect("stdin is open");
        within_timeout("the server to read", stdin.write_all(bytes)).await.expect("the server runs");
    }

    /// Writes in another task. The task returns stdin, which stays open until it is dropped.
    pub(crate) fn write_in_background(&mut self, bytes: Vec<u8>) -> tokio::task::JoinHandle<ChildStdin> {
        let mut stdin = self.stdin.take().expect("stdin is open");
        tokio::spawn(async move {
            within_timeout("the server to read", stdin.write_all(&bytes)).await.expect("the server runs");
            stdin
        })
    }

    /// Sends a request and returns its id.
    pub(crate) async fn send_request(&mut self, method: &str, params: Value) -> u64 {
        self.requests += 1;
        let request = json!({"jsonrpc": "2.0", "id": self.requests, "method": method, "params": params});
        self.write(format!("{request}\n").as_bytes()).await;
        self.requests
    }

    /// The next line, including lines that were skipped while waiting for a response.
    pub(crate) async fn line(&mut self) -> Value {
        match self.skipped_lines.pop_front() {
            Some(line) => line,
            None => self.read().await.expect("the server has not closed stdout"),
        }
    }

    /// Waits for the response to a request. The lines before it can still be read with [`Self::line`].
    pub(crate) async fn response(&mut self, id: u64) -> Value {
        let is_response = |line: &Value| line["id"] == json!(id);
        if let Some(at) = self.skipped_lines.iter().position(is_response) {
            return self.skipped_lines.remove(at).expect("the position is valid");
        }
        loop {
            let line = self.read().await.expect("the server has not closed stdout");
            if is_response(&line) {
                return line;
            }
            self.skipped_lines.push_back(line);
        }
    }

    /// Sends a request and returns its result. Panics if the response is an error.
    pub(crate) async fn call(&mut self, method: &str, params: Value) -> Value {
        let id = self.send_request(method, params).await;
        let response = self.response(id).await;
        response.get("result").unwrap_or_else(|| panic!("{method} failed: {response}")).clone()
    }

    /// Sends a request that must fail, and returns its error.
    pub(crate) async fn call_error(&mut self, method: &str, params: Value) -> Value {
        let id = self.send_request(method, params).await;
        let response = self.response(id).await;
        response.get("error").unwrap_or_else(|| panic!("{method} succeeded: {response}")).clone()
    }

    /// Creates a session and returns its id.
    pub(crate) async fn session(&mut self) -> String {
        text(&self.call("session.create", json!({})).await["session_id"])
    }

    /// Starts a turn and returns its id.
    pub(crate) async fn send(&mut self, session: &str, prompt: &str) -> String {
        let sent = self.call("session.send", json!({"session_id": session, "text": prompt})).await;
        assert_eq!(sent["accepted"], true);
        text(&sent["turn_id"])
    }

    /// Reads up to the first event of a session for which `is_last` is true, and returns the events of that session.
    pub(crate) async fn events(&mut self, session: &str, is_last: impl Fn(&Value) -> bool) -> Vec<Value> {
        let mut events = Vec::new();
        loop {
            let line = self.line().await;
            if line["params"]["payload"]["session_id"] != session {
                continue;
            }
            events.push(line["params"].clone());
            if is_last(&line["params"]) {
                return events;
            }
        }
    }

    /// The payload of the next event of this type, of any session. Skips other lines.
    pub(crate) async fn event(&mut self, kind: &str) -> Value {
        loop {
            let line = self.line().await;
            if line["params"]["type"] == kind {
                return line["params"]["payload"].clone();
            }
        }
    }

    /// Sends a prompt and returns the events of its turn, up to the status event that says ready.
    pub(crate) async fn turn(&mut self, session: &str, prompt: &str) -> Vec<Value> {
        self.send(session, prompt).await;
        self.events(session, is_ready).await
    }

    async fn read(&mut self) -> Option<Value> {
        let mut line = Vec::new();
        let count = within_timeout("a line", self.stdout.read_until(b'\n', &mut line))
            .await
            .expect("stdout can be read");
        (count > 0).then(|| serde_json::from_slice(&line).expect("a line is JSON"))
    }

    pub(crate) fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// Waits until the server exits, and returns the remaining lines and the exit status.
    pub(crate) async fn wait_for_exit(&mut self) -> (Vec<Value>, ExitStatus) {
        let mut rest = Vec::new();
        within_timeout("the last lines", self.stdout.read_to_end(&mut rest))
            .await
            .expect("stdout can be read");
        let lines = rest.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let lines = lines.map(|line| serde_json::from_slice(line).expect("a line is JSON"));
        let lines = self.skipped_lines.drain(..).chain(lines).collect();
        (
            lines,
            within_timeout("the server to exit", self.child.wait())
                .await
                .expect("the process can be waited for"),
        )
    }
}

/// Whether an event says that its session is ready.
pub(crate) fn is_ready(event: &Value) -> bool {
    event["type"] == "session.status" && event["payload"]["pending"] == false
}

/// The types of events, in order.
pub(crate) fn event_types(events: &[Value]) -> Vec<String> {
    events.iter().map(|event| text(&event["type"])).collect()
}

/// The streamed text of the answer.
pub(crate) fn streamed(events: &[Value]) -> String {
    let chunks = events.iter().filter(|event| event["type"] == "session.stream.chunk");
    chunks.map(|event| text(&event["payload"]["chunk"]["answerText"])).collect()
}

/// The texts of the appended messages of a kind, such as `assistant`.
pub(crate) fn appended(events: &[Value], kind: &str) -> Vec<String> {
    let messages = events.iter().filter(|event| event["type"] == "session.message.appended");
    let messages =
        messages.map(|event| &event["payload"]["message"]).filter(|message| message["kind"] == kind);
    messages.map(|message| text(&message["text"])).collect()
}

pub(crate) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("not a string: {value}")).to_owned()
}

/// Sends a signal to a process.
pub(crate) fn signal(pid: u32, signal: rustix::process::Signal) {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw).expect("a pid");
    rustix::process::kill_process(pid, signal).expect("the process exists");
}

/// The resident memory of a process, in KiB.
pub(crate) fn memory_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the process exists");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("status has VmRSS");
    line.split_whitespace().next().and_then(|value| value.parse().ok()).expect("a number")
}
