//! A process on the standard streams of parlor itself, for `parlor sandbox`.

use parlor_vocab::{ProcessExit, StartProcess};
use rustix::process::{Pid, Signal, kill_process_group};
use rustix::stdio::{stderr, stdin, stdout};
use tokio::io::Interest;

use crate::SpawnError;
use crate::async_fd::{RegisteredFd, register};
use crate::confine::Confinement;
use crate::launch::{Child, Streams};
use crate::process::{RunningSandbox, launch_confined};
use crate::sandbox::Sandbox;
use crate::supervise::{exit_of, exited, reap};

/// A process that reads and writes the standard streams of this process.
#[derive(Debug)]
pub struct AttachedProcess {
    pid: Pid,
    pidfd: RegisteredFd,
    sandbox: Option<RunningSandbox>,
}

impl AttachedProcess {
    /// Starts a process. `start.stdio` has no effect. Call it within a tokio runtime, on a thread that outlives the process.
    pub fn start(start: &StartProcess, sandbox: Option<&Sandbox>) -> Result<Self, SpawnError> {
        let streams = Streams { stdin: stdin(), stdout: stdout(), stderr: stderr(), terminal: false };
        let (Child { pid, pidfd }, mut sandbox) =
            launch_confined(start, &streams, Confinement::of(sandbox), None)?;
        if let Some(sandbox) = &mut sandbox {
            sandbox.watch_disks();
        }
        Ok(Self { pid, pidfd: register(pidfd, Interest::READABLE)?, sandbox })
    }

    /// Sends a signal to the process group.
    pub fn signal(&self, signal: Signal) {
        // An error means that the group is empty. The child is reaped only by `end`, so the group is still its own.
        let _ = kill_process_group(self.pid, signal);
    }

    /// Waits until the process has exited. Cancel safe.
    pub async fn exited(&self) {
        exited(&self.pidfd).await;
    }

    /// Returns how the process exited, after [`exited`](Self::exited). Ends what is left in its sandbox. The error says what
    /// the process left behind that must not exist.
    pub async fn end(self) -> Result<ProcessExit, String> {
        let exit = exit_of(&self.pidfd, false);
        reap(&self.pidfd);
        if let Some(sandbox) = self.sandbox {
            sandbox.end().await?;
        }
        Ok(exit)
    }
}
