//! The server's own process: how it is started, what is known of its life, how it is ended.
//!
//! It ends with the connection. Its standard input closes first, since that is how a server learns
//! that it has to end its processes; only one that does not listen is killed.

use std::convert::Infallible;
use std::io;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::{oneshot, watch};
use tokio::time::timeout;

use super::ExecServerError;
use crate::child::Vitals;

/// How long a server may go on after its input has closed. It has only to kill what it started.
const EXIT_GRACE: Duration = Duration::from_secs(2);

/// How to start an exec server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecServerLaunchCommand {
    /// The program: a path, or a name to be looked up in `PATH`.
    pub program: PathBuf,
    /// Its arguments, without the program itself.
    pub args: Vec<String>,
}

impl ExecServerLaunchCommand {
    /// Starts `program` without arguments.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self { program: program.into(), args: Vec::new() }
    }
}

/// A server that was started.
pub(super) struct Launched {
    pub(super) stdin: ChildStdin,
    pub(super) stdout: ChildStdout,
    pub(super) vitals: Vitals,
    /// To be dropped, along with `stdin`, when the server is no longer wanted.
    pub(super) in_use: oneshot::Sender<Infallible>,
}

pub(super) fn launch(command: ExecServerLaunchCommand) -> Result<Launched, ExecServerError> {
    let ExecServerLaunchCommand { program, args } = command;
    let mut child = Command::new(&program)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        // For a runtime that shuts down: it drops the keeper before that could be patient.
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| ExecServerError::Spawn { program, source: Arc::new(error) })?;
    let stdin = child.stdin.take().expect("stdin was asked to be a pipe");
    let stdout = child.stdout.take().expect("stdout was asked to be a pipe");
    let (status, vitals) = watch::channel(None);
    let (in_use, unused) = oneshot::channel();
    tokio::spawn(keep(child, status, unused));
    Ok(Launched { stdin, stdout, vitals: Vitals::told_by(vitals), in_use })
}

/// Waits for the server's end, and sees to it when it is no longer wanted.
async fn keep(
    mut child: Child,
    report: watch::Sender<Option<ExitStatus>>,
    unused: oneshot::Receiver<Infallible>,
) {
    tokio::select! {
        status = child.wait() => {
            report.send_replace(status.ok());
            return;
        }
        _ = unused => {}
    }
    if timeout(EXIT_GRACE, child.wait()).await.is_err() {
        // It fails only for a process that is gone, which is what is wanted.
        let _ = child.kill().await;
    }
}

/// What to say of a connection that is over because of `source`, or just over.
pub(super) async fn closed(vitals: &mut Vitals, source: Option<Arc<io::Error>>) -> ExecServerError {
    ExecServerError::Closed { status: vitals.last().await, source }
}
