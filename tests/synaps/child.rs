//! The program under test as a child process, and a parent that reads a frame only when a test asks for it.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Output, Stdio};
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

    /// The working folder.
    pub(crate) fn folder(&self) -> &Path {
        self.0.path()
    }

    /// Writes the settings.
    pub(crate) fn configure(&self, settings: &str) {
        std::fs::create_dir_all(self.state()).expect("a folder in the temporary one");
        std::fs::write(self.state().join("parlor.toml"), settings).expect("a file in the temporary folder");
    }

    /// The state folder, which the program creates.
    pub(crate) fn state(&self) -> PathBuf {
        self.folder().join("state")
    }

    /// `parlor stdio synaps` on this state folder, not started yet.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(PARLOR);
        command.args(["stdio", "synaps"]).args(args).current_dir(self.folder());
        // Without this the tests could not read `/proc/PID/io`.
        command.env("PARLOR_HOME", self.state()).env("PARLOR_DUMPABLE", "1").kill_on_drop(true);
        command
    }

    /// Starts a child and waits until it is ready.
    pub(crate) async fn child(&self, args: &[&str]) -> Child {
        Child::start(self.command(args)).await
    }

    /// Runs a child with an empty stdin to its end.
    pub(crate) async fn run_to_end(&self, args: &[&str]) -> Output {
        let output = self.command(args).stdin(Stdio::null()).output();
        within_timeout("the end of the child", output).await.expect("the program starts")
    }
}

/// A child process that has sent `ready`. It is killed on drop.
pub(crate) struct Child {
    child: tokio::process::Child,
    stdin: Option<ChildStdin>,
    stdout: Option<BufReader<ChildStdout>>,
    /// Frames that arrived while a helper waited for a response, in order.
    skipped_frames: VecDeque<Value>,
    /// The session id of the `ready` frame.
    pub(crate) session: String,
    /// The model of the `ready` frame.
    pub(crate) model: String,
}

impl Child {
    pub(crate) async fn start(mut command: Command) -> Self {
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the program starts");
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().map(BufReader::new);
        let skipped_frames = VecDeque::new();
        let mut child =
            Self { child, stdin, stdout, skipped_frames, session: String::new(), model: String::new() };
        let ready = child.frame().await;
        assert_eq!((&ready["type"], &ready["protocol_version"]), (&json!("ready"), &json!(1)), "{ready}");
        child.session = text(&ready["session_id"]);
        child.model = text(&ready["model"]);
        child
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id().expect("the process was not reaped yet")
    }

    pub(crate) async fn write(&mut self, bytes: &[u8]) {
        let stdin = self.stdin.as_mut().expect("stdin is open");
        within_timeout("the child to read", stdin.write_all(bytes)).await.expect("the child runs");
    }

    pub(crate) async fn send(&mut self, command: Value) {
        self.write(format!("{command}\n").as_bytes()).await;
    }

    pub(crate) async fn prompt(&mut self, id: &str, message: &str) {
        self.send(json!({"type": "prompt", "id": id, "message": message})).await;
    }

    /// Starts a turn and waits for its first event.
    pub(crate) async fn start_turn(&mut self, id: &str, message: &str) {
        self.prompt(id, message).await;
        let first = self.frame().await;
        assert_eq!(first["type"], "message_update", "{first}");
    }

    /// The next frame, including frames that were skipped while waiting for a response.
    pub(crate) async fn frame(&mut self) -> Value {
        match self.skipped_frames.pop_front() {
            Some(frame) => frame,
            None => self.read().await.expect("the child has not closed stdout"),
        }
    }

    /// Sends a command and returns its response. The frames before it can still be read with [`Self::frame`].
    pub(crate) async fn call(&mut self, command: Value) -> Value {
        let id = command["id"].clone();
        self.send(command).await;
        loop {
            let frame = self.read().await.expect("the child has not closed stdout");
            if frame.get("id") == Some(&id) {
                return frame;
            }
            self.skipped_frames.push_back(frame);
        }
    }

    /// All frames up to the response to `id`.
    pub(crate) async fn until_response(&mut self, id: &str) -> Vec<Value> {
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

    /// Runs a turn, which must complete, and returns the text of its answer.
    pub(crate) async fn run_turn(&mut self, id: &str, message: &str) -> String {
        self.prompt(id, message).await;
        let frames = self.until_response(id).await;
        let last = frames.last().expect("a response");
        assert_eq!((&last["ok"], last.get("cancelled")), (&json!(true), None), "{last}");
        answer_text(&frames)
    }

    /// The contents of the messages of the history.
    pub(crate) async fn history(&mut self) -> Vec<Value> {
        let response = self.call(json!({"type": "get_messages", "id": "history"})).await;
        let messages = response["messages"].as_array().expect("messages").iter();
        messages.map(|message| message["content"].clone()).collect()
    }

    async fn read(&mut self) -> Option<Value> {
        let mut line = Vec::new();
        let stdout = self.stdout.as_mut().expect("stdout is open");
        let count =
            within_timeout("a frame", stdout.read_until(b'\n', &mut line)).await.expect("stdout can be read");
        (count > 0).then(|| serde_json::from_slice(&line).expect("a frame is JSON"))
    }

    pub(crate) fn close_stdin(&mut self) {
        self.stdin = None;
    }

    pub(crate) fn close_stdout(&mut self) {
        self.stdout = None;
    }

    /// Waits for the end of the child without reading its stdout.
    pub(crate) async fn wait_without_reading(&mut self) -> ExitStatus {
        within_timeout("the end of the child", self.child.wait()).await.expect("the child can be waited for")
    }

    /// Reads all remaining frames and waits for the end of the child.
    pub(crate) async fn wait_for_exit(&mut self) -> (Vec<Value>, ExitStatus) {
        let mut rest = Vec::new();
        let mut stdout = self.stdout.take().expect("stdout is open");
        within_timeout("the last frames", stdout.read_to_end(&mut rest)).await.expect("stdout can be read");
        let lines = rest.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let frames = lines.map(|line| serde_json::from_slice(line).expect("a frame is JSON"));
        let frames = self.skipped_frames.drain(..).chain(frames).collect();
        (frames, self.wait_without_reading().await)
    }
}

/// The answer's text in the frames of a turn.
pub(crate) fn answer_text(frames: &[Value]) -> String {
    let deltas = frames.iter().filter(|frame| frame["event"]["type"] == "text_delta");
    deltas.map(|frame| text(&frame["event"]["delta"])).collect()
}

pub(crate) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("not a string: {value}")).to_owned()
}
