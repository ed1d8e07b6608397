//! The program under test, and a client that reads only when it is told to.

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::pipe::fcntl_setpipe_size;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

/// How long anything that must come is waited for. A test that waits this long has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

const PARLOR: &str = env!("CARGO_BIN_EXE_parlor");

/// Awaits what must come.
pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("waited in vain: {what}"))
}

/// A running server after the handshake. It is killed when this is dropped.
pub(crate) struct Server {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: Option<BufReader<ChildStdout>>,
    next_id: i64,
    /// Notifications that arrived while a reply was awaited.
    early: VecDeque<Value>,
}

/// All that a process wrote, and its exit code.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Life {
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    pub(crate) exit_code: i64,
}

impl Server {
    pub(crate) async fn start() -> Self {
        Self::start_after(":").await
    }

    /// A server that a shell has become, after it has done `this`. Bash, since dash does not ignore
    /// SIGCHLD when it is told to.
    pub(crate) async fn start_after(this: &str) -> Self {
        let mut child = Command::new("/bin/bash")
            .args(["-c", &format!(r#"{this}; exec "$0" stdio exec"#), PARLOR])
            // A state folder that is there, so that all of this holds while others may look on.
            .env("PARLOR_HOME", env!("CARGO_TARGET_TMPDIR"))
            // The tests count its descriptors.
            .env("PARLOR_DUMPABLE", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("the server starts");
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().map(BufReader::new);
        let mut server = Self { child, stdin, stdout, next_id: 0, early: VecDeque::new() };
        server.call("initialize", json!({"clientName": "limits"})).await;
        server.send(r#"{"method":"initialized"}"#).await;
        server
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id().expect("it was not waited for yet")
    }

    pub(crate) async fn send(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().expect("stdin is open");
        soon("the server reads", async {
            stdin.write_all(line.as_bytes()).await?;
            stdin.write_all(b"\n").await
        })
        .await
        .expect("the server lives");
    }

    /// Sends a request and returns its id.
    pub(crate) async fn request(&mut self, method: &str, params: Value) -> i64 {
        self.next_id += 1;
        let id = self.next_id;
        self.send(&json!({"id": id, "method": method, "params": params}).to_string()).await;
        id
    }

    /// Sends a request and awaits its reply.
    pub(crate) async fn call(&mut self, method: &str, params: Value) -> Value {
        let id = self.request(method, params).await;
        loop {
            let frame = self.read().await.expect("the server has not left");
            match frame.get("id") {
                Some(answered) => {
                    assert_eq!(answered, id, "{frame}");
                    return frame;
                }
                None => self.early.push_back(frame),
            }
        }
    }

    /// The next frame.
    pub(crate) async fn frame(&mut self) -> Value {
        match self.early.pop_front() {
            Some(frame) => frame,
            None => self.read().await.expect("the server has not left"),
        }
    }

    async fn read(&mut self) -> Option<Value> {
        let mut line = Vec::new();
        let stdout = self.stdout.as_mut().expect("stdout is open");
        let count = soon("a frame", stdout.read_until(b'\n', &mut line)).await.expect("stdout can be read");
        (count > 0).then(|| serde_json::from_slice(&line).expect("a frame is JSON"))
    }

    /// Asks for a process that runs `script`.
    pub(crate) async fn start_process(&mut self, name: &str, script: &str, tty: bool) -> Value {
        self.call("command/exec", exec(name, script, tty)).await
    }

    /// Starts a process whose script says a line once it is ready, and awaits that line.
    pub(crate) async fn start_ready(&mut self, name: &str, script: &str, tty: bool) -> String {
        let reply = self.start_process(name, script, tty).await;
        assert_eq!(reply["result"]["running"], true, "{reply}");
        self.line_of(name).await
    }

    /// Starts a process and returns its pid.
    pub(crate) async fn start_known(&mut self, name: &str, script: &str, tty: bool) -> u32 {
        let line = self.start_ready(name, &format!("echo $$; {script}"), tty).await;
        // It may go on to talk in the same breath.
        let first = line.lines().next().unwrap_or_default();
        first.parse().expect("the pid is a number")
    }

    /// The line that the process `name` is saying.
    pub(crate) async fn line_of(&mut self, name: &str) -> String {
        let mut text = Vec::new();
        while !text.ends_with(b"\n") {
            let frame = self.frame().await;
            assert_eq!(frame["params"]["processId"], name, "{frame}");
            text.extend(chunk(&frame));
        }
        String::from_utf8_lossy(&text).trim().to_owned()
    }

    pub(crate) async fn terminate(&mut self, name: &str) -> Value {
        self.call("command/exec/terminate", json!({"processId": name})).await
    }

    /// Reads until the process `name` has exited. Nothing else may be heard meanwhile.
    pub(crate) async fn rest_of(&mut self, name: &str) -> Life {
        let mut life = Life::default();
        loop {
            let frame = self.frame().await;
            assert_eq!(frame["params"]["processId"], name, "{frame}");
            if life.take(&frame) {
                return life;
            }
        }
    }

    /// Makes the pipe to the server hold `bytes` at least, whether or not the server reads.
    pub(crate) fn widen_stdin(&self, bytes: usize) {
        let stdin = self.stdin.as_ref().expect("stdin is open");
        fcntl_setpipe_size(stdin.as_fd(), bytes).expect("a pipe can be widened");
    }

    pub(crate) fn close_stdin(&mut self) {
        self.stdin = None;
    }

    pub(crate) fn close_stdout(&mut self) {
        self.stdout = None;
    }

    /// Awaits the server's end; what it still says is not read.
    pub(crate) async fn end_unread(&mut self) -> ExitStatus {
        soon("the server's end", self.child.wait()).await.expect("the server can be waited for")
    }

    /// Awaits the server's end; what it still says is read.
    pub(crate) async fn end(&mut self) -> ExitStatus {
        if let Some(mut stdout) = self.stdout.take() {
            let mut rest = Vec::new();
            soon("the last frames", stdout.read_to_end(&mut rest)).await.expect("stdout can be read");
        }
        soon("the server's end", self.child.wait()).await.expect("the server can be waited for")
    }
}

impl Life {
    /// Takes in a notification. True when it was the last.
    pub(crate) fn take(&mut self, frame: &Value) -> bool {
        match (frame["method"].as_str(), frame["params"]["stream"].as_str()) {
            (Some("command/exec/outputDelta"), Some("stdout")) => self.stdout.extend(chunk(frame)),
            (Some("command/exec/outputDelta"), Some("stderr")) => self.stderr.extend(chunk(frame)),
            (Some("command/exec/exited"), None) => {
                self.exit_code = frame["params"]["exitCode"].as_i64().expect("an exit code");
                return true;
            }
            _ => panic!("unexpected: {frame}"),
        }
        false
    }
}

/// Params of `command/exec`.
pub(crate) fn exec(name: &str, script: &str, tty: bool) -> Value {
    json!({"processId": name, "argv": ["/bin/sh", "-c", script], "cwd": "/", "tty": tty,
        "env": {"PATH": "/usr/local/bin:/usr/bin:/bin"}})
}

/// The bytes of an output delta.
pub(crate) fn chunk(frame: &Value) -> Vec<u8> {
    let text = frame["params"]["chunk"].as_str().unwrap_or_else(|| panic!("not a delta: {frame}"));
    base64_simd::STANDARD.decode_to_vec(text).expect("base64")
}
