//! A child process that writes one JSON object per line.

use std::process::{Command, ExitStatus, Stdio};

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin};
use tokio::time::timeout;

use crate::frames::{Frames, Shown};
use crate::terminal::TIMEOUT;

/// A child process, which is killed on drop.
pub(crate) struct LineProcess {
    child: Child,
    stdin: Option<ChildStdin>,
    pub(crate) frames: Frames,
}

impl LineProcess {
    pub(crate) fn start(command: Command, read: fn(&Value) -> Option<Shown>) -> Self {
        let mut command = tokio::process::Command::from(command);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take().unwrap());
        let (sender, frames) = Frames::new(read);
        tokio::spawn(async move {
            let mut lines = BufReader::new(stdout).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                // A process that is killed may have written a part of a line.
                match serde_json::from_str(&line) {
                    Ok(frame) => sender.push(frame),
                    Err(error) => sender.push(Value::from(format!("not JSON: {error}: {line}"))),
                }
            }
        });
        Self { child, stdin, frames }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id().expect("the process was not reaped yet")
    }

    pub(crate) async fn write(&mut self, frame: &Value) {
        assert!(self.try_write(frame).await, "the process reads {frame}");
    }

    /// Writes a frame, unless the process has ended.
    pub(crate) async fn try_write(&mut self, frame: &Value) -> bool {
        let stdin = self.stdin.as_mut().expect("stdin is open");
        let written = timeout(TIMEOUT, stdin.write_all(format!("{frame}\n").as_bytes())).await;
        written.expect("the process reads").is_ok()
    }

    pub(crate) fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// Waits until the process writes a line to stderr, which must contain `text`. Its stderr must be a pipe.
    pub(crate) async fn wait_for_notice(&mut self, text: &str) {
        let mut stderr = BufReader::new(self.child.stderr.take().expect("stderr is a pipe"));
        let mut line = String::new();
        timeout(TIMEOUT, stderr.read_line(&mut line)).await.expect("the process writes a line").unwrap();
        assert!(line.contains(text), "{line}");
        // The process may write more, and must not wait for this test.
        tokio::spawn(async move { tokio::io::copy(&mut stderr, &mut tokio::io::sink()).await });
    }

    /// Kills the process with SIGKILL, and waits until it is gone.
    pub(crate) async fn kill(&mut self) {
        self.child.kill().await.unwrap();
    }

    pub(crate) async fn wait(&mut self) -> ExitStatus {
        timeout(TIMEOUT, self.child.wait()).await.expect("the process exits").unwrap()
    }
}
