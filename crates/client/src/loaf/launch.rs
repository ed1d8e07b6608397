//! The server's process: how it is started, and how it is ended.
//!
//! It ends with the connection. Its standard input closes first, since that is how a server learns that it is no
//! longer wanted; only one that does not listen is killed.

use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::{oneshot, watch};
use tokio::time::timeout;

use super::LoafError;

/// How long a server may go on after it was told to end, or its input has closed.
pub const EXIT_WAIT: Duration = Duration::from_secs(5);

/// How to start a server.
///
/// ```
/// use parlor_client::loaf::LoafLaunch;
///
/// assert_eq!(LoafLaunch::new("loaf").args, ["rpc"]);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoafLaunch {
    /// The program: a path, or a name to be looked up in `PATH`.
    pub program: PathBuf,
    /// Its arguments. `rpc`, unless something else is said.
    pub args: Vec<String>,
    /// Variables on top of this program's own.
    pub env: Vec<(String, String)>,
    /// The working folder, if it is not this program's own.
    pub cwd: Option<PathBuf>,
}

impl LoafLaunch {
    /// Starts `program` as `loaf` is started: with the argument `rpc`.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self { program: program.into(), args: vec!["rpc".to_owned()], env: Vec::new(), cwd: None }
    }
}

/// A server that was started.
pub(super) struct Launched {
    pub(super) stdin: ChildStdin,
    pub(super) stdout: ChildStdout,
    pub(super) life: Life,
}

/// What is known of the life of the server: nothing, if somebody else started it.
#[derive(Debug)]
pub(super) struct Life {
    status: Option<watch::Receiver<Option<ExitStatus>>>,
    /// Dropped when the server is no longer wanted.
    _wanted: Option<oneshot::Sender<()>>,
}

impl Life {
    pub(super) const UNKNOWN: Self = Self { status: None, _wanted: None };

    /// Waits for the server's end, if that would be known, and not for longer than [`EXIT_WAIT`].
    pub(super) async fn end(&self) -> Option<ExitStatus> {
        let mut status = self.status.clone()?;
        let ended = timeout(EXIT_WAIT, status.wait_for(Option::is_some)).await;
        ended.ok()?.ok().and_then(|status| *status)
    }
}

pub(super) fn launch(launch: &LoafLaunch) -> Result<Launched, LoafError> {
    let mut command = Command::new(&launch.program);
    command.args(&launch.args).envs(launch.env.iter().cloned());
    if let Some(folder) = &launch.cwd {
        command.current_dir(folder);
    }
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        // For a runtime that shuts down: it drops the keeper before that could be patient.
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| LoafError::Spawn { program: launch.program.clone(), source: Arc::new(error) })?;
    let stdin = child.stdin.take().expect("stdin was asked to be a pipe");
    let stdout = child.stdout.take().expect("stdout was asked to be a pipe");
    let (report, status) = watch::channel(None);
    let (wanted, unwanted) = oneshot::channel();
    tokio::spawn(keep(child, report, unwanted));
    Ok(Launched { stdin, stdout, life: Life { status: Some(status), _wanted: Some(wanted) } })
}

/// Waits for the server's end, and sees to it when it is no longer wanted.
async fn keep(mut child: Child, report: watch::Sender<Option<ExitStatus>>, unwanted: oneshot::Receiver<()>) {
    let status = tokio::select! {
        status = child.wait() => status,
        _ = unwanted => match timeout(EXIT_WAIT, child.wait()).await {
            Ok(status) => status,
            Err(_) => {
                // It fails only for a process that is gone, which is what is wanted.
                let _ = child.start_kill();
                child.wait().await
            }
        },
    };
    report.send_replace(status.ok());
}
