//! The program under test, and a client that reads only when it is told to.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

/// How long anything that must come is waited for. A test that waits this long has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The program under test.
pub(crate) const PARLOR: &str = env!("CARGO_BIN_EXE_parlor");

/// Awaits what must come.
pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("waited in vain: {what}"))
}

/// A folder to work in, with the state folder inside.
pub(crate) struct Home(tempfile::TempDir);

impl Home {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary folder"))
    }

    /// One whose `parlor.toml` says this.
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

    /// The state folder, which the program makes.
    pub(crate) fn state(&self) -> PathBuf {
        self.folder().join("state")
    }

    /// The program, not started yet, with a user who has nothing.
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

/// A server that runs. It is killed when this is dropped.
pub(crate) struct Server {
    child: tokio::process::Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    /// Lines that arrived while an answer was awaited.
    early: VecDeque<Value>,
    requests: u64,
}

impl Server {
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the program starts");
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().expect("stdout is piped"));
        Self { child, stdin, stdout, early: VecDeque::new(), requests: 0 }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id().expect("it was not waited for yet")
    }

    pub(crate) async fn write(&mut self, bytes: &[u8]) {
        let stdin = self.stdin.as_mut().expect("stdin is open");
        soon("the server reads", stdin.write_all(bytes)).await.expect("the server lives");
    }

    /// Writes while something else is done. Gives stdin back, which stays open until it is dropped.
    pub(crate) fn write_aside(&mut self, bytes: Vec<u8>) -> tokio::task::JoinHandle<ChildStdin> {
        let mut stdin = self.stdin.take().expect("stdin is open");
        tokio::spawn(async move {
            soon("the server reads", stdin.write_all(&bytes)).await.expect("the server lives");
            stdin
        })
    }

    /// Sends a request, and gives its id.
    pub(crate) async fn ask(&mut self, method: &str, params: Value) -> u64 {
        self.requests += 1;
        let request = json!({"jsonrpc": "2.0", "id": self.requests, "method": method, "params": params});
        self.write(format!("{request}\n").as_bytes()).await;
        self.requests
    }

    /// The next line.
    pub(crate) async fn line(&mut self) -> Value {
        match self.early.pop_front() {
            Some(line) => line,
            None => self.read().await.expect("the server has not left"),
        }
    }

    /// Awaits an answer. What comes before can be read afterwards.
    pub(crate) async fn answer(&mut self, id: u64) -> Value {
        let is_answer = |line: &Value| line["id"] == json!(id);
        if let Some(at) = self.early.iter().position(is_answer) {
            return self.early.remove(at).expect("it is there");
        }
        loop {
            let line = self.read().await.expect("the server has not left");
            if is_answer(&line) {
                return line;
            }
            self.early.push_back(line);
        }
    }

    /// Sends a request and awaits its result.
    pub(crate) async fn call(&mut self, method: &str, params: Value) -> Value {
        let id = self.ask(method, params).await;
        let answer = self.answer(id).await;
        answer.get("result").unwrap_or_else(|| panic!("{method} was refused: {answer}")).clone()
    }

    /// Sends a request that is refused, and gives the error.
    pub(crate) async fn refused(&mut self, method: &str, params: Value) -> Value {
        let id = self.ask(method, params).await;
        let answer = self.answer(id).await;
        answer.get("error").unwrap_or_else(|| panic!("{method} was carried out: {answer}")).clone()
    }

    /// A new session.
    pub(crate) async fn session(&mut self) -> String {
        text(&self.call("session.create", json!({})).await["session_id"])
    }

    /// Begins a turn, and gives its id.
    pub(crate) async fn send(&mut self, session: &str, prompt: &str) -> String {
        let sent = self.call("session.send", json!({"session_id": session, "text": prompt})).await;
        assert_eq!(sent["accepted"], true);
        text(&sent["turn_id"])
    }

    /// The events of a session up to the first for which `is_last` holds. Others are dropped.
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

    /// The next event of this type, wherever it comes from. Others are dropped.
    pub(crate) async fn event(&mut self, kind: &str) -> Value {
        loop {
            let line = self.line().await;
            if line["params"]["type"] == kind {
                return line["params"]["payload"].clone();
            }
        }
    }

    /// A whole turn: its events up to the status that it is ready.
    pub(crate) async fn turn(&mut self, session: &str, prompt: &str) -> Vec<Value> {
        self.send(session, prompt).await;
        self.events(session, is_ready).await
    }

    async fn read(&mut self) -> Option<Value> {
        let mut line = Vec::new();
        let count =
            soon("a line", self.stdout.read_until(b'\n', &mut line)).await.expect("stdout can be read");
        (count > 0).then(|| serde_json::from_slice(&line).expect("a line is JSON"))
    }

    pub(crate) fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// Awaits the server's end, and gives what it still said.
    pub(crate) async fn end(&mut self) -> (Vec<Value>, ExitStatus) {
        let mut rest = Vec::new();
        soon("the last lines", self.stdout.read_to_end(&mut rest)).await.expect("stdout can be read");
        let lines = rest.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let lines = lines.map(|line| serde_json::from_slice(line).expect("a line is JSON"));
        let lines = self.early.drain(..).chain(lines).collect();
        (lines, soon("the server's end", self.child.wait()).await.expect("it can be waited for"))
    }
}

/// Whether an event says that its session is ready.
pub(crate) fn is_ready(event: &Value) -> bool {
    event["type"] == "session.status" && event["payload"]["pending"] == false
}

/// The types of events, one after another.
pub(crate) fn kinds(events: &[Value]) -> Vec<String> {
    events.iter().map(|event| text(&event["type"])).collect()
}

/// What was streamed as answer.
pub(crate) fn streamed(events: &[Value]) -> String {
    let chunks = events.iter().filter(|event| event["type"] == "session.stream.chunk");
    chunks.map(|event| text(&event["payload"]["chunk"]["answerText"])).collect()
}

/// The texts of the messages of a kind that were appended.
pub(crate) fn appended(events: &[Value], kind: &str) -> Vec<String> {
    let messages = events.iter().filter(|event| event["type"] == "session.message.appended");
    let messages =
        messages.map(|event| &event["payload"]["message"]).filter(|message| message["kind"] == kind);
    messages.map(|message| text(&message["text"])).collect()
}

pub(crate) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}")).to_owned()
}

/// Sends a signal.
pub(crate) fn signal(pid: u32, signal: rustix::process::Signal) {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw).expect("a pid");
    rustix::process::kill_process(pid, signal).expect("the process is there");
}

/// The memory of `pid`, in KiB: what is resident now.
pub(crate) fn memory_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the process lives");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("the line is there");
    line.split_whitespace().next().and_then(|value| value.parse().ok()).expect("a number")
}
