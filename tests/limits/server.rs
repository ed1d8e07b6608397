//! The program under test, and a client that reads a frame only when a test asks for it.

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::pipe::fcntl_setpipe_size;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

/// How long a helper waits for what must happen. A test that waits this long has failed.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

const PARLOR: &str = env!("CARGO_BIN_EXE_parlor");

/// Closes the descriptors that whoever runs the tests has left open: each would be one less for a server with few of them.
const CLOSE_INHERITED: &str =
    r#"for fd in /proc/$$/fd/*; do fd=${fd##*/}; [ "$fd" -le 2 ] || eval "exec $fd>&-"; done"#;

/// The output of `future`. Panics with `what` after [`TIMEOUT`].
pub(crate) async fn within_timeout<T>(what: &str, future: impl Future<Output = T>) -> T {
    timeout(TIMEOUT, future).await.unwrap_or_else(|_| panic!("timeout while waiting for: {what}"))
}

/// A server process after the handshake. It is killed on drop.
pub(crate) struct Server {
    /// The state folder, removed after the server has ended.
    _home: tempfile::TempDir,
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: Option<BufReader<ChildStdout>>,
    next_id: i64,
    /// Notifications that arrived while a helper waited for a response, in order.
    skipped_frames: VecDeque<Value>,
}

/// All output of a process, and its exit code.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ProcessOutput {
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    pub(crate) exit_code: i64,
}

impl Server {
    pub(crate) async fn start() -> Self {
        Self::start_after(":").await
    }

    /// Starts a server through a shell that runs `setup` and then `exec`s the server. The shell is bash, since dash
    /// cannot ignore SIGCHLD.
    pub(crate) async fn start_after(setup: &str) -> Self {
        // A folder of its own: the first start removes dead sockets from it, and connecting to those of other servers takes
        // descriptors for a while.
        let home = tempfile::tempdir().expect("a folder");
        let mut child = Command::new("/bin/bash")
            .args(["-c", &format!(r#"{CLOSE_INHERITED}; {setup}; exec "$0" stdio exec"#), PARLOR])
            // An existing state folder, so that the server shares its processes, which needs descriptors too.
            .env("PARLOR_HOME", home.path())
            // Without this the tests could not count its descriptors in `/proc`.
            .env("PARLOR_DUMPABLE", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("the server starts");
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().map(BufReader::new);
        let mut server =
            Self { _home: home, child, stdin, stdout, next_id: 0, skipped_frames: VecDeque::new() };
        server.call("initialize", json!({"clientName": "limits"})).await;
        server.send(r#"{"method":"initialized"}"#).await;
        server
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id().expect("the process was not reaped yet")
    }

    pub(crate) async fn send(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().expect("stdin is open");
        within_timeout("the server to read", async {
            stdin.write_all(line.as_bytes()).await?;
            stdin.write_all(b"\n").await
        })
        .await
        .expect("the server runs");
    }

    /// Sends a request and returns its id.
    pub(crate) async fn request(&mut self, method: &str, params: Value) -> i64 {
        self.next_id += 1;
        let id = self.next_id;
        self.send(&json!({"id": id, "method": method, "params": params}).to_string()).await;
        id
    }

    /// Sends a request and returns its response.
    pub(crate) async fn call(&mut self, method: &str, params: Value) -> Value {
        let id = self.request(method, params).await;
        loop {
            let frame = self.read().await.expect("the server has not closed stdout");
            match frame.get("id") {
                Some(response_id) => {
                    assert_eq!(response_id, id, "{frame}");
                    return frame;
                }
                None => self.skipped_frames.push_back(frame),
            }
        }
    }

    /// The next frame, including notifications that were skipped while waiting for a response.
    pub(crate) async fn frame(&mut self) -> Value {
        match self.skipped_frames.pop_front() {
            Some(frame) => frame,
            None => self.read().await.expect("the server has not closed stdout"),
        }
    }

    async fn read(&mut self) -> Option<Value> {
        let mut line = Vec::new();
        let stdout = self.stdout.as_mut().expect("stdout is open");
        let count =
            within_timeout("a frame", stdout.read_until(b'\n', &mut line)).await.expect("stdout can be read");
        (count > 0).then(|| serde_json::from_slice(&line).expect("a frame is JSON"))
    }

    /// Starts a process that runs `script`, and returns the response.
    pub(crate) async fn start_process(&mut self, name: &str, script: &str, tty: bool) -> Value {
        self.call("command/exec", exec(name, script, tty)).await
    }

    /// Starts a process whose script prints a line when it is ready, and returns that line.
    pub(crate) async fn start_ready(&mut self, name: &str, script: &str, tty: bool) -> String {
        let reply = self.start_process(name, script, tty).await;
        assert_eq!(reply["result"]["running"], true, "{reply}");
        self.line_of(name).await
    }

    /// Starts a process and returns its pid.
    pub(crate) async fn start_with_pid(&mut self, name: &str, script: &str, tty: bool) -> u32 {
        let line = self.start_ready(name, &format!("echo $$; {script}"), tty).await;
        // The same chunk may contain more output.
        let first = line.lines().next().unwrap_or_default();
        first.parse().expect("the pid is a number")
    }

    /// Reads until the output of the process `name` ends with a newline, and returns the output without it.
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

    /// Reads until the process `name` has exited. Panics if another frame arrives meanwhile.
    pub(crate) async fn output_of(&mut self, name: &str) -> ProcessOutput {
        let mut output = ProcessOutput::default();
        loop {
            let frame = self.frame().await;
            assert_eq!(frame["params"]["processId"], name, "{frame}");
            if output.add(&frame) {
                return output;
            }
        }
    }

    /// Grows the pipe to the server to at least `bytes`, so that so much can be written even if the server does not read.
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

    /// Waits for the end of the server without reading its stdout.
    pub(crate) async fn wait_without_reading(&mut self) -> ExitStatus {
        within_timeout("the end of the server", self.child.wait())
            .await
            .expect("the server can be waited for")
    }

    /// Reads all remaining output and waits for the end of the server.
    pub(crate) async fn wait_for_exit(&mut self) -> ExitStatus {
        if let Some(mut stdout) = self.stdout.take() {
            let mut rest = Vec::new();
            within_timeout("the last frames", stdout.read_to_end(&mut rest))
                .await
                .expect("stdout can be read");
        }
        within_timeout("the end of the server", self.child.wait())
            .await
            .expect("the server can be waited for")
    }
}

impl ProcessOutput {
    /// Adds a notification. Returns true if it was the exit.
    pub(crate) fn add(&mut self, frame: &Value) -> bool {
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
