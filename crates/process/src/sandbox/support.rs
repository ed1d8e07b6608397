//! What the running kernel can enforce, for `parlor doctor` and for those who decide on a mode.

use std::os::fd::AsFd;

use parlor_vocab::{PolicyMode, ProcessId, StartProcess, StdioKind};
use rustix::fs::{Mode, OFlags};
use rustix::process::WaitIdOptions;

use crate::SpawnError;
use crate::confine::Confinement;
use crate::launch::Streams;
use crate::process::launch_confined;
use crate::sandbox::Sandbox;
use crate::sandbox::ruleset::landlock_version;
use crate::supervise::wait;

/// What the running kernel can enforce.
#[derive(Debug)]
pub struct SandboxSupport {
    /// The version of Landlock; 0 without. The sandbox works without it, with one wall less.
    pub landlock_version: i32,
    /// Why no process can be started in a sandbox, if so.
    pub failure: Option<SpawnError>,
}

/// Starts a program in a sandbox and waits for it: some milliseconds.
pub fn sandbox_support() -> SandboxSupport {
    SandboxSupport { landlock_version: landlock_version(), failure: try_sandbox().err() }
}

fn try_sandbox() -> Result<(), SpawnError> {
    let sandbox = Sandbox::new(PolicyMode::ReadOnly, "/usr", None);
    let start = StartProcess {
        process: ProcessId::parse("check").expect("a short id"),
        program: "true".to_owned(),
        args: Vec::new(),
        arg0: None,
        folder: "/".into(),
        env: Vec::new(),
        stdio: StdioKind::Pipes,
        retain_bytes: 0,
    };
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
        .map_err(SpawnError::system("open /dev/null"))?;
    let streams =
        Streams { stdin: null.as_fd(), stdout: null.as_fd(), stderr: null.as_fd(), terminal: false };
    let (child, running) = launch_confined(&start, &streams, Confinement::Sandbox(&sandbox), None)?;
    wait(&child.pidfd, WaitIdOptions::EXITED);
    if let Some(running) = running {
        running.holder.end();
    }
    Ok(())
}
