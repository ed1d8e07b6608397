//! A real program over real pipes, as a [`Peer`].

use std::ffi::OsStr;
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::Peer;

/// How many lines are read ahead while the play is busy sending. Enough that a program which must
/// write before it reads on is not stuck, and still a limit.
const READ_AHEAD: usize = 1024;

/// How much of stderr is kept for the report.
const KEEP_STDERR_BYTES: u64 = 16 * 1024;

/// A running program. Its stdin and stdout are the connection; a frame is a line. It is killed
/// when this is dropped.
#[derive(Debug)]
pub struct Program {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: mpsc::Receiver<Vec<u8>>,
    stderr: JoinHandle<Vec<u8>>,
}

impl Program {
    /// Starts `program` with `args`. To be called in a runtime, as [`crate::play_folder`] does.
    pub fn start(program: impl AsRef<OsStr>, args: &[&str]) -> Result<Self, String> {
        let program = program.as_ref();
        let mut child = Command::new(program)
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| format!("cannot start {}: {error}", program.display()))?;
        let (sender, lines) = mpsc::channel(READ_AHEAD);
        tokio::spawn(read_lines(child.stdout.take().expect("stdout was asked for"), sender));
        let stderr = tokio::spawn(read_some(child.stderr.take().expect("stderr was asked for")));
        Ok(Self { stdin: child.stdin.take(), child, lines, stderr })
    }
}

impl Peer for Program {
    async fn send(&mut self, bytes: &[u8]) -> Result<(), String> {
        let stdin = self.stdin.as_mut().ok_or("the sending side is closed already")?;
        stdin.write_all(bytes).await.map_err(|error| format!("cannot write to the program: {error}"))
    }

    async fn close(&mut self) -> Result<(), String> {
        self.stdin = None;
        Ok(())
    }

    async fn frame(&mut self) -> Option<Vec<u8>> {
        self.lines.recv().await
    }

    async fn finish(&mut self) -> Result<(), String> {
        let status =
            self.child.wait().await.map_err(|error| format!("cannot wait for the program: {error}"))?;
        if status.success() {
            return Ok(());
        }
        let stderr = (&mut self.stderr).await.unwrap_or_default();
        Err(format!(
            "the program ended with {status}; stderr: {}",
            String::from_utf8_lossy(&stderr).trim_end()
        ))
    }
}

async fn read_lines(stdout: ChildStdout, lines: mpsc::Sender<Vec<u8>>) {
    let mut reader = BufReader::new(stdout);
    loop {
        let mut line = Vec::new();
        // A read that fails is the end as well: there is nothing more to come.
        if reader.read_until(b'\n', &mut line).await.unwrap_or(0) == 0 {
            return;
        }
        line.pop_if(|last| *last == b'\n');
        if lines.send(line).await.is_err() {
            return;
        }
    }
}

async fn read_some(stderr: ChildStderr) -> Vec<u8> {
    let mut kept = Vec::new();
    let mut stderr = stderr.take(KEEP_STDERR_BYTES);
    // What was read until an error is still worth showing.
    let _ = stderr.read_to_end(&mut kept).await;
    // Read on, so that a talkative program does not stop for lack of a reader.
    let _ = tokio::io::copy(&mut stderr.into_inner(), &mut tokio::io::sink()).await;
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Program {
        Program::start("/bin/sh", &["-c", script]).unwrap()
    }

    #[tokio::test]
    async fn lines_go_in_and_come_out_until_the_end() {
        let mut cat = shell("cat");
        cat.send(b"one\ntw").await.unwrap();
        assert_eq!(cat.frame().await.unwrap(), b"one");
        cat.send(b"o\n\nhalf").await.unwrap();
        assert_eq!(cat.frame().await.unwrap(), b"two");
        cat.close().await.unwrap();
        assert_eq!(cat.frame().await.unwrap(), b"");
        assert_eq!(cat.frame().await.unwrap(), b"half");
        assert_eq!(cat.frame().await, None);
        cat.finish().await.unwrap();
    }

    #[tokio::test]
    async fn a_bad_end_is_told_with_what_it_said() {
        let mut program = shell("echo oops >&2; exit 3");
        assert_eq!(program.frame().await, None);
        let said = program.finish().await.unwrap_err();
        assert!(said.contains('3') && said.contains("oops"), "{said}");
    }

    #[tokio::test]
    async fn a_program_that_is_not_there_is_told() {
        assert!(Program::start("/no/such/program", &[]).unwrap_err().contains("/no/such/program"));
    }
}
