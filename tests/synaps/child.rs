//! The program under test as a child, and a parent that reads only when it is told to.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Output, Stdio};
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

    /// The working folder.
    pub(crate) fn folder(&self) -> &Path {
        self.0.path()
    }

    /// The state folder, which the program makes.
    pub(crate) fn state(&self) -> PathBuf {
        self.folder().join("state")
    }

    /// The program, not started yet, on this state folder.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(PARLOR);
        command.args(["stdio", "synaps"]).args(args).current_dir(self.folder());
        // The tests look at what it reads and writes.
        command.env("PARLOR_HOME", self.state()).env("PARLOR_DUMPABLE", "1").kill_on_drop(true);
        command
    }

    /// A child that is ready.
    pub(crate) async fn child(&self, args: &[&str]) -> Child {
        Child::start(self.command(args)).await
    }

    /// What a child leaves behind that cannot start.
    pub(crate) async fn refused(&self, args: &[&str]) -> Output {
        let ended = self.command(args).stdin(Stdio::null()).output();
        soon("the end of a child that cannot start", ended).await.expect("the program starts")
    }
}

/// A child that is ready. It is killed when this is dropped.
pub(crate) struct Child {
    child: tokio::process::Child,
    stdin: Option<ChildStdin>,
    stdout: Option<BufReader<ChildStdout>>,
    /// Frames that arrived while an answer was awaited.
    early: VecDeque<Value>,
    /// Its session.
    pub(crate) session: String,
    /// The model it began with.
    pub(crate) model: String,
}

impl Child {
    pub(crate) async fn start(mut command: Command) -> Self {
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the program starts");
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().map(BufReader::new);
        let early = VecDeque::new();
        let mut child = Self { child, stdin, stdout, early, session: String::new(), model: String::new() };
        let ready = child.frame().await;
        assert_eq!((&ready["type"], &ready["protocol_version"]), (&json!("ready"), &json!(1)), "{ready}");
        child.session = text(&ready["session_id"]);
        child.model = text(&ready["model"]);
        child
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id().expect("it was not waited for yet")
    }

    pub(crate) async fn write(&mut self, bytes: &[u8]) {
        let stdin = self.stdin.as_mut().expect("stdin is open");
        soon("the child reads", stdin.write_all(bytes)).await.expect("the child lives");
    }

    pub(crate) async fn send(&mut self, command: Value) {
        self.write(format!("{command}\n").as_bytes()).await;
    }

    pub(crate) async fn prompt(&mut self, id: &str, message: &str) {
        self.send(json!({"type": "prompt", "id": id, "message": message})).await;
    }

    /// Begins a turn and awaits the first thing that happens in it.
    pub(crate) async fn begin(&mut self, id: &str, message: &str) {
        self.prompt(id, message).await;
        let first = self.frame().await;
        assert_eq!(first["type"], "message_update", "{first}");
    }

    /// The next frame.
    pub(crate) async fn frame(&mut self) -> Value {
        match self.early.pop_front() {
            Some(frame) => frame,
            None => self.read().await.expect("the child has not left"),
        }
    }

    /// Sends a command and awaits its answer. What comes before can be read afterwards.
    pub(crate) async fn call(&mut self, command: Value) -> Value {
        let id = command["id"].clone();
        self.send(command).await;
        loop {
            let frame = self.read().await.expect("the child has not left");
            if frame.get("id") == Some(&id) {
                return frame;
            }
            self.early.push_back(frame);
        }
    }

    /// All frames up to the answer to `id`.
    pub(crate) async fn until_answered(&mut self, id: &str) -> Vec<Value> {
        let mut frames = Vec::new();
        loop {
            let frame = self.frame().await;
            let is_last = frame["type"] == "response" && frame["id"] == id;
            frames.push(frame);
            if is_last {
                return frames;
            }
        }
    }

    /// What is said in a turn that completes.
    pub(crate) async fn say(&mut self, id: &str, message: &str) -> String {
        self.prompt(id, message).await;
        let frames = self.until_answered(id).await;
        let last = frames.last().expect("an answer");
        assert_eq!((&last["ok"], last.get("cancelled")), (&json!(true), None), "{last}");
        said(&frames)
    }

    /// The contents of the history's messages.
    pub(crate) async fn history(&mut self) -> Vec<Value> {
        let answer = self.call(json!({"type": "get_messages", "id": "history"})).await;
        let messages = answer["messages"].as_array().expect("messages").iter();
        messages.map(|message| message["content"].clone()).collect()
    }

    async fn read(&mut self) -> Option<Value> {
        let mut line = Vec::new();
        let stdout = self.stdout.as_mut().expect("stdout is open");
        let count = soon("a frame", stdout.read_until(b'\n', &mut line)).await.expect("stdout can be read");
        (count > 0).then(|| serde_json::from_slice(&line).expect("a frame is JSON"))
    }

    pub(crate) fn close_stdin(&mut self) {
        self.stdin = None;
    }

    pub(crate) fn close_stdout(&mut self) {
        self.stdout = None;
    }

    /// Awaits the child's end; what it still says is not read.
    pub(crate) async fn end_unread(&mut self) -> ExitStatus {
        soon("the child's end", self.child.wait()).await.expect("the child can be waited for")
    }

    /// Awaits the child's end, and gives what it still said.
    pub(crate) async fn end(&mut self) -> (Vec<Value>, ExitStatus) {
        let mut rest = Vec::new();
        let mut stdout = self.stdout.take().expect("stdout is open");
        soon("the last frames", stdout.read_to_end(&mut rest)).await.expect("stdout can be read");
        let lines = rest.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let frames = lines.map(|line| serde_json::from_slice(line).expect("a frame is JSON"));
        let frames = self.early.drain(..).chain(frames).collect();
        (frames, self.end_unread().await)
    }
}

/// The text of a turn's frames.
pub(crate) fn said(frames: &[Value]) -> String {
    let deltas = frames.iter().filter(|frame| frame["event"]["type"] == "text_delta");
    deltas.map(|frame| text(&frame["event"]["delta"])).collect()
}

pub(crate) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}")).to_owned()
}
