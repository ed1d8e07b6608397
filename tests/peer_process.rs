//! The peer door of a real process: its Unix socket, as a transcript's peer.
#![expect(clippy::disallowed_methods, reason = "these tests start the program as a shell would")]

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;

use anyhow::{Context, anyhow};
use parlor_log::{Lease, SqliteLog, SystemClock};
use parlor_testkit::{Case, SocketConnection};

use crate::peer_sessions::create_sessions;

/// A process that serves its sessions. Dropping it ends the process, which must exit with success.
struct Owner {
    child: Child,
    /// Kept open: a process that cannot write to its stdout ends.
    _stdout: BufReader<ChildStdout>,
    /// The session that this test process has open, and its log.
    _held: (Lease, SqliteLog),
}

/// Starts `program` with the case's state folder, and connects to its socket.
pub(crate) fn connect(program: &str, case: &Case) -> Result<SocketConnection, String> {
    try_connect(program, case).map_err(|error| format!("{error:#}"))
}

fn try_connect(program: &str, case: &Case) -> anyhow::Result<SocketConnection> {
    let mut settings = File::options().create(true).append(true).open(case.home.join("parlor.toml"))?;
    settings.write_all(b"\n[sessions]\njoin = true\n")?;
    let held = create_sessions_on_disk(&case.home, &case.tmp)?;
    let mut child = Command::new(program)
        .args(["stdio", "synaps"])
        .current_dir(&case.tmp)
        .env("PARLOR_HOME", &case.home)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut stdout = BufReader::new(child.stdout.take().context("stdout is piped")?);
    // The process can be reached when it has written its first line.
    stdout.read_line(&mut String::new())?;
    let owner = Owner { child, _stdout: stdout, _held: held };
    SocketConnection::open(&socket(&case.home)?, owner).map_err(anyhow::Error::msg)
}

/// A runtime of its own, because the caller is in one and cannot wait there.
fn create_sessions_on_disk(home: &Path, folder: &Path) -> anyhow::Result<(Lease, SqliteLog)> {
    let log = SqliteLog::open(home, Arc::new(SystemClock))?;
    let create = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        anyhow::Ok(runtime.block_on(create_sessions(&log, folder)))
    };
    let held =
        std::thread::scope(|scope| scope.spawn(create).join()).map_err(|_| anyhow!("it panicked"))??;
    Ok((held, log))
}

/// The only socket of the peer door in the state folder.
fn socket(home: &Path) -> anyhow::Result<PathBuf> {
    let entries: Vec<PathBuf> =
        fs::read_dir(home.join("run"))?.map(|entry| Ok(entry?.path())).collect::<anyhow::Result<_>>()?;
    entries.into_iter().find(|path| path.extension().is_some_and(|it| it == "peer")).context("no socket")
}

impl Drop for Owner {
    fn drop(&mut self) {
        // The end of its input ends the process.
        drop(self.child.stdin.take());
        let status = self.child.wait().expect("a child that can be waited for");
        assert!(status.success() || std::thread::panicking(), "{status}");
    }
}
