//! A [`Peer`] that runs a real program and talks to it over its stdin and stdout.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStderr, ChildStdin, Command};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::Peer;

/// How many lines are read ahead while the play is sending. Without it a program that must write before it reads on would
/// block.
pub(crate) const READ_AHEAD: usize = 1024;

/// How many bytes of stderr an error shows.
const MAX_STDERR_BYTES: u64 = 16 * 1024;

/// How a program is started.
#[derive(Clone, Debug)]
pub struct Launch {
    program: OsString,
    args: Vec<OsString>,
    env: Vec<(OsString, Option<OsString>)>,
    folder: Option<PathBuf>,
}

impl Launch {
    /// `program` with `args`, with the environment and the working folder of the test.
    pub fn new(program: impl AsRef<OsStr>, args: &[&str]) -> Self {
        let args = args.iter().map(OsString::from).collect();
        Self { program: program.as_ref().to_owned(), args, env: Vec::new(), folder: None }
    }

    /// Adds arguments.
    #[must_use]
    pub fn args(mut self, args: &[String]) -> Self {
        self.args.extend(args.iter().map(OsString::from));
        self
    }

    /// Sets a variable, or removes it if `value` is `None`. The last call for a name counts.
    #[must_use]
    pub fn env(mut self, name: impl AsRef<OsStr>, value: Option<impl AsRef<OsStr>>) -> Self {
        self.env.push((name.as_ref().to_owned(), value.map(|value| value.as_ref().to_owned())));
        self
    }

    /// Sets the working folder.
    #[must_use]
    pub fn folder(mut self, folder: &Path) -> Self {
        self.folder = Some(folder.to_owned());
        self
    }

    /// Starts the program. Must be called in a runtime, as [`crate::play_cases`] does.
    pub fn start(self) -> Result<Program, String> {
        let pipes = Pipes::open(&self, &[])?;
        Ok(Program { launch: self, pipes })
    }
}

/// A running program. Its stdin and stdout are the connection, and a frame is a line. Dropping this kills the program.
#[derive(Debug)]
pub struct Program {
    launch: Launch,
    pipes: Pipes,
}

#[derive(Debug)]
struct Pipes {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: mpsc::Receiver<Vec<u8>>,
    stderr: JoinHandle<Vec<u8>>,
}

impl Program {
    /// Starts `program` with `args`. Must be called in a runtime, as [`crate::play_folder`] does.
    pub fn start(program: impl AsRef<OsStr>, args: &[&str]) -> Result<Self, String> {
        Launch::new(program, args).start()
    }
}

impl Pipes {
    fn open(launch: &Launch, more: &[String]) -> Result<Self, String> {
        let mut command = Command::new(&launch.program);
        command
            .args(&launch.args)
            .args(more)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        for (name, value) in &launch.env {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        if let Some(folder) = &launch.folder {
            command.current_dir(folder);
        }
        let mut child =
            command.spawn().map_err(|error| format!("cannot start {}: {error}", launch.program.display()))?;
        let (sender, lines) = mpsc::channel(READ_AHEAD);
        tokio::spawn(read_lines(child.stdout.take().expect("stdout is piped"), sender));
        let stderr = tokio::spawn(read_some(child.stderr.take().expect("stderr is piped")));
        Ok(Self { stdin: child.stdin.take(), child, lines, stderr })
    }
}

impl Peer for Program {
    async fn send(&mut self, bytes: &[u8]) -> Result<(), String> {
        let stdin = self.pipes.stdin.as_mut().ok_or("the sending side is closed already")?;
        stdin.write_all(bytes).await.map_err(|error| format!("cannot write to the program: {error}"))
    }

    async fn close(&mut self) -> Result<(), String> {
        self.pipes.stdin = None;
        Ok(())
    }

    async fn frame(&mut self) -> Option<Vec<u8>> {
        self.pipes.lines.recv().await
    }

    async fn reconnect(&mut self, args: &[String]) -> Result<(), String> {
        self.pipes = Pipes::open(&self.launch, args)?;
        Ok(())
    }

    async fn finish(&mut self) -> Result<(), String> {
        let status =
            self.pipes.child.wait().await.map_err(|error| format!("cannot wait for the program: {error}"))?;
        if status.success() {
            return Ok(());
        }
        let stderr = (&mut self.pipes.stderr).await.unwrap_or_default();
        Err(format!(
            "the program ended with {status}; stderr: {}",
            String::from_utf8_lossy(&stderr).trim_end()
        ))
    }
}

/// Passes on each line without its newline, until the end.
pub(crate) async fn read_lines(from: impl AsyncRead + Unpin, lines: mpsc::Sender<Vec<u8>>) {
    let mut reader = BufReader::new(from);
    loop {
        let mut line = Vec::new();
        // A failed read counts as the end: no more lines can come.
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
    let mut bytes = Vec::new();
    let mut stderr = stderr.take(MAX_STDERR_BYTES);
    // The bytes before a read error are still shown.
    let _ = stderr.read_to_end(&mut bytes).await;
    // Keep reading, so that the program does not block on a full pipe.
    let _ = tokio::io::copy(&mut stderr.into_inner(), &mut tokio::io::sink()).await;
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Program {
        Program::start("/bin/sh", &["-c", script]).unwrap()
    }

    #[tokio::test]
    async fn lines_are_passed_in_both_directions_until_the_end() {
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
    async fn a_reconnect_starts_the_program_again_with_more_arguments() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().canonicalize().unwrap();
        let mut program = Launch::new("/bin/sh", &["-c", "pwd; echo $A$HOME; echo $#", "sh"])
            .args(&["one".to_owned()])
            .env("A", Some("a"))
            .env("HOME", None::<&str>)
            .folder(&folder)
            .start()
            .unwrap();
        for count in ["1", "2"] {
            assert_eq!(program.frame().await.unwrap(), folder.to_str().unwrap().as_bytes());
            assert_eq!(program.frame().await.unwrap(), b"a");
            assert_eq!(program.frame().await.unwrap(), count.as_bytes());
            program.finish().await.unwrap();
            program.reconnect(&["two".to_owned()]).await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_failed_exit_is_reported_with_stderr() {
        let mut program = shell("echo oops >&2; exit 3");
        assert_eq!(program.frame().await, None);
        let error = program.finish().await.unwrap_err();
        assert!(error.contains('3') && error.contains("oops"), "{error}");
    }

    #[tokio::test]
    async fn a_missing_program_is_reported() {
        assert!(Program::start("/no/such/program", &[]).unwrap_err().contains("/no/such/program"));
    }
}
