//! Why a command was turned down.

use crate::ProcessId;

/// Why the engine turned a command down.
///
/// Not `#[non_exhaustive]`: a missing arm is how a door learns that a new case needs a code.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No process of that name is alive.
    #[error("unknown process id {0}")]
    UnknownProcess(ProcessId),
    /// The name is taken by a living process.
    #[error("process {0} already exists")]
    ProcessExists(ProcessId),
    /// The process was started without an input to write to.
    #[error("stdin is closed for process {0}")]
    StdinClosed(ProcessId),
    /// The process ended before it read what was written.
    #[error("failed to write to process stdin: process {0} has ended")]
    StdinGone(ProcessId),
    /// The process reads too slowly for what is written to it.
    #[error("failed to write to process stdin: process {process} has {limit} unread {what} waiting already")]
    StdinFull {
        /// The slow reader.
        process: ProcessId,
        /// How many may wait.
        limit: usize,
        /// Of what: bytes, or writes.
        what: &'static str,
    },
    /// The working folder is not an absolute path.
    #[error("cwd must be an absolute path, not {0:?}")]
    RelativeFolder(String),
    /// The caller has as many processes as it may have.
    #[error("{limit} processes are running, which is the limit; end one first")]
    TooManyProcesses {
        /// How many one caller may have.
        limit: usize,
    },
    /// The operating system would not start it.
    #[error("cannot {attempt}: {reason}")]
    CannotStart {
        /// What was attempted, such as `run "/bin/nope"`.
        attempt: String,
        /// What the operating system said.
        reason: String,
    },
}
