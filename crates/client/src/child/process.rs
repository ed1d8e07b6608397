//! The child process: how it is started, what is known of its exit, and how it is ended.
//!
//! The child ends with the connection. Its standard input closes first, because that tells a server that it is no longer
//! needed; a child that then runs on for too long is killed.

use std::io;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::{oneshot, watch};
use tokio::time::timeout;

/// The longest time between the two signs of a child's death, the end of its output and its exit status. Both come from the
/// same kernel at the same moment.
pub(super) const DEATH_GRACE: Duration = Duration::from_millis(500);

/// How long a child may run on after SIGTERM.
const TERMINATE_GRACE: Duration = Duration::from_secs(1);

/// The exit status of the child, once it has exited. Unknown if another program started the child.
#[derive(Clone, Debug)]
pub(crate) struct ChildStatus(Option<watch::Receiver<Option<ExitStatus>>>);

impl ChildStatus {
    pub(crate) const UNKNOWN: Self = Self(None);

    /// Whether the child's exit will be reported here.
    pub(crate) fn is_known(&self) -> bool {
        self.0.is_some()
    }

    /// Waits until the child has exited; forever if its status is unknown.
    pub(crate) async fn exited(&mut self) -> Option<ExitStatus> {
        match &mut self.0 {
            // If the waiting task is gone without a report, the child was killed, and its status is lost.
            Some(report) => report.wait_for(Option::is_some).await.ok().and_then(|status| *status),
            None => std::future::pending().await,
        }
    }

    /// The exit status of a child whose output has ended. The child may have closed its output and run on, so this does not
    /// wait for long.
    pub(crate) async fn after_output(&mut self) -> Option<ExitStatus> {
        if !self.is_known() {
            return None;
        }
        timeout(DEATH_GRACE, self.exited()).await.ok().flatten()
    }
}

/// A child that was started.
pub(crate) struct SpawnedChild {
    pub(crate) stdin: ChildStdin,
    pub(crate) stdout: ChildStdout,
    pub(crate) status: ChildStatus,
    /// Ends the child at once. Dropping it, along with `stdin`, ends the child after its grace period.
    pub(crate) end: oneshot::Sender<EndChild>,
}

/// How to end a child at once.
#[derive(Clone, Copy, Debug)]
pub(crate) enum EndChild {
    /// With SIGTERM, and with SIGKILL a second later.
    Terminate,
    /// With SIGKILL.
    Kill,
}

/// Starts a child with pipes for its input and output. Its stderr is this program's. Once the child is no longer needed, it
/// has `exit_grace` to exit after its input has closed.
pub(crate) fn spawn(mut command: Command, exit_grace: Duration) -> io::Result<SpawnedChild> {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        // A runtime that shuts down drops the waiting task, so the child is killed without a grace period.
        .kill_on_drop(true)
        .spawn()?;
    let stdin = child.stdin.take().expect("stdin was configured as a pipe");
    let stdout = child.stdout.take().expect("stdout was configured as a pipe");
    let (report, status) = watch::channel(None);
    let (end, end_requested) = oneshot::channel();
    tokio::spawn(wait_for_exit(child, report, end_requested, exit_grace));
    Ok(SpawnedChild { stdin, stdout, status: ChildStatus(Some(status)), end })
}

/// Waits for the child's exit and reports it. Ends the child when it is no longer needed.
async fn wait_for_exit(
    mut child: Child,
    report: watch::Sender<Option<ExitStatus>>,
    end_requested: oneshot::Receiver<EndChild>,
    exit_grace: Duration,
) {
    let end = tokio::select! {
        status = child.wait() => {
            report.send_replace(status.ok());
            return;
        }
        end = end_requested => end.ok(),
    };
    let grace = match end {
        None => exit_grace,
        Some(EndChild::Terminate) => {
            terminate(&child);
            TERMINATE_GRACE
        }
        Some(EndChild::Kill) => Duration::ZERO,
    };
    let status = match timeout(grace, child.wait()).await {
        Ok(status) => status,
        Err(_) => {
            // This fails only if the process is already gone.
            let _ = child.start_kill();
            child.wait().await
        }
    };
    report.send_replace(status.ok());
}

fn terminate(child: &Child) {
    // The child was not waited for yet, so no other process can have its pid.
    let pid = child.id().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
    if let Some(pid) = pid {
        // This fails only if the process is already gone.
        let _ = kill_process(pid, Signal::TERM);
    }
}
