//! Children of the synaps door, which share a state folder.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, ensure};

/// A child with an open session, killed when dropped.
pub(super) struct SessionChild {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    line: String,
    pub(super) session: String,
}

impl SessionChild {
    /// Starts a child in the state folder `home`, which owns a new session.
    pub(super) fn owner(parlor: &Path, home: &Path) -> anyhow::Result<Self> {
        Self::start(parlor, home, &[])
    }

    /// Starts another child in the state folder `home`, which joins `session`.
    pub(super) fn joining(parlor: &Path, home: &Path, session: &str) -> anyhow::Result<Self> {
        Self::start(parlor, home, &["--continue", session])
    }

    fn start(parlor: &Path, home: &Path, args: &[&str]) -> anyhow::Result<Self> {
        let mut child = Command::new(parlor)
            .args(["stdio", "synaps"])
            .args(args)
            .current_dir(home)
            .env("PARLOR_HOME", home)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()?;
        let stdin = child.stdin.take().context("stdin is piped")?;
        let stdout = child.stdout.take().map(BufReader::new).context("stdout is piped")?;
        let mut started = Self { child, stdin, stdout, line: String::new(), session: String::new() };
        let ready: serde_json::Value = serde_json::from_str(started.read_line()?)?;
        started.session = ready["session_id"].as_str().context("`ready` has no session_id")?.to_owned();
        Ok(started)
    }

    pub(super) fn write_line(&mut self, line: &str) -> anyhow::Result<()> {
        Ok(self.stdin.write_all(format!("{line}\n").as_bytes())?)
    }

    pub(super) fn read_line(&mut self) -> anyhow::Result<&str> {
        self.line.clear();
        ensure!(self.stdout.read_line(&mut self.line)? > 0, "the child ended");
        Ok(&self.line)
    }
}

impl Drop for SessionChild {
    fn drop(&mut self) {
        // An error means that the child has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
