//! The child's process: how it is started, what is known of its life, how it is ended.
//!
//! It ends with the connection. Its standard input closes first, since that is how a child learns
//! that it is no longer wanted; only one that does not listen is killed.

use std::io;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::{oneshot, watch};
use tokio::time::timeout;

use super::SynapsError;
use crate::child::Vitals;

/// How long a child may take to say `ready`, if nothing else is said.
pub const READY_WAIT: Duration = Duration::from_secs(10);

/// How long a child may go on after `shutdown`, if nothing else is said.
pub const EXIT_WAIT: Duration = Duration::from_secs(5);

/// How long a child may go on after SIGTERM.
const TERMINATE_GRACE: Duration = Duration::from_secs(1);

/// How long a child may go on after its input has closed.
const EOF_GRACE: Duration = Duration::from_secs(2);

/// How to start a child.
///
/// ```
/// use parlor_client::synaps::SynapsLaunch;
///
/// let launch = SynapsLaunch { model: Some("local".to_owned()), ..SynapsLaunch::new("synaps") };
/// assert_eq!(launch.args, ["rpc"]);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SynapsLaunch {
    /// The program: a path, or a name to be looked up in `PATH`.
    pub program: PathBuf,
    /// Its arguments before the flags below. `rpc`, unless something else is said.
    pub args: Vec<String>,
    /// Go on with this session: `--continue`.
    pub resume: Option<String>,
    /// Instructions, or a file that holds them: `--system`.
    pub system: Option<String>,
    /// The model: `--model`.
    pub model: Option<String>,
    /// The profile: `--profile`.
    pub profile: Option<String>,
    /// Variables on top of this program's own.
    pub env: Vec<(String, String)>,
    /// The working folder, if it is not this program's own.
    pub cwd: Option<PathBuf>,
    /// How long it may take to say `ready`. [`READY_WAIT`], unless something else is said.
    pub ready_wait: Duration,
    /// How long it may go on after `shutdown`. [`EXIT_WAIT`], unless something else is said.
    pub exit_wait: Duration,
}

impl SynapsLaunch {
    /// Starts `program` as `synaps` is started: with the argument `rpc`.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            args: vec!["rpc".to_owned()],
            resume: None,
            system: None,
            model: None,
            profile: None,
            env: Vec::new(),
            cwd: None,
            ready_wait: READY_WAIT,
            exit_wait: EXIT_WAIT,
        }
    }

    /// All arguments, the flags in the order in which known parents write them.
    fn arguments(&self) -> Vec<String> {
        let flags = [
            ("--continue", &self.resume),
            ("--system", &self.system),
            ("--model", &self.model),
            ("--profile", &self.profile),
        ];
        let flags = flags.into_iter().filter_map(|(flag, value)| Some((flag, value.as_ref()?)));
        let words = flags.flat_map(|(flag, value)| {
            // On its own it would be taken for a flag.
            if value.starts_with('-') {
                return vec![format!("{flag}={value}")];
            }
            vec![flag.to_owned(), value.clone()]
        });
        self.args.iter().cloned().chain(words).collect()
    }
}

/// A child that was started.
pub(super) struct Launched {
    pub(super) stdin: ChildStdin,
    pub(super) stdout: ChildStdout,
    pub(super) vitals: Vitals,
    /// To be dropped, along with `stdin`, when the child is no longer wanted.
    pub(super) keeper: oneshot::Sender<Farewell>,
}

/// How a child is ended that is not to be waited for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Farewell {
    /// It is asked, and then killed.
    Terminate,
    /// It is killed.
    Kill,
}

pub(super) fn launch(launch: &SynapsLaunch) -> Result<Launched, SynapsError> {
    let mut command = Command::new(&launch.program);
    command.args(launch.arguments()).envs(launch.env.iter().cloned());
    if let Some(folder) = &launch.cwd {
        command.current_dir(folder);
    }
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        // For a runtime that shuts down: it drops the keeper before that could be patient.
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| SynapsError::Spawn { program: launch.program.clone(), source: Arc::new(error) })?;
    let stdin = child.stdin.take().expect("stdin was asked to be a pipe");
    let stdout = child.stdout.take().expect("stdout was asked to be a pipe");
    let (status, vitals) = watch::channel(None);
    let (keeper, told) = oneshot::channel();
    tokio::spawn(keep(child, status, told));
    Ok(Launched { stdin, stdout, vitals: Vitals::told_by(vitals), keeper })
}

/// Waits for the child's end, and sees to it when it is no longer wanted.
async fn keep(
    mut child: Child,
    report: watch::Sender<Option<ExitStatus>>,
    told: oneshot::Receiver<Farewell>,
) {
    let farewell = tokio::select! {
        status = child.wait() => {
            report.send_replace(status.ok());
            return;
        }
        farewell = told => farewell.ok(),
    };
    let grace = match farewell {
        None => EOF_GRACE,
        Some(Farewell::Terminate) => {
            terminate(&child);
            TERMINATE_GRACE
        }
        Some(Farewell::Kill) => Duration::ZERO,
    };
    let status = match timeout(grace, child.wait()).await {
        Ok(status) => status,
        Err(_) => {
            // It fails only for a process that is gone, which is what is wanted.
            let _ = child.start_kill();
            child.wait().await
        }
    };
    report.send_replace(status.ok());
}

fn terminate(child: &Child) {
    // It has a number until it was waited for, and nobody else gets that number before.
    let number = child.id().and_then(|number| i32::try_from(number).ok()).and_then(Pid::from_raw);
    if let Some(number) = number {
        // It fails only for a process that is gone, which is what is wanted.
        let _ = kill_process(number, Signal::TERM);
    }
}

/// What to say of a connection that is over because of `source`, or just over.
pub(super) async fn closed(vitals: &mut Vitals, source: Option<Arc<io::Error>>) -> SynapsError {
    SynapsError::Closed { status: vitals.last().await, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_written_as_known_parents_write_them() {
        let text = |text: &str| Some(text.to_owned());
        let launch = SynapsLaunch {
            profile: text("work"),
            model: text("m"),
            system: text("- be brief"),
            resume: text("s"),
            ..SynapsLaunch::new("synaps")
        };
        let words = ["rpc", "--continue", "s", "--system=- be brief", "--model", "m", "--profile", "work"];
        assert_eq!(launch.arguments(), words);
        assert_eq!(SynapsLaunch::new("synaps").arguments(), ["rpc"]);
    }
}
