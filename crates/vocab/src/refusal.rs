//! Why a backend refuses a request: one enum for each backend, so that a door has a code for each case that it can meet.
//!
//! None is `#[non_exhaustive]`: a missing arm is how a door learns that a new case needs a code.

use std::fmt;

use crate::{AgentId, MessageId, ProcessId, RunId, SessionId};

/// Why a request about processes was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProcessRefusal {
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

/// Why a request about Ruby or tools was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RubyRefusal {
    /// Too many calls wait for an answer.
    #[error("{limit} questions are waiting for an answer, which is the limit; wait for one")]
    TooManyRequests {
        /// How many may wait.
        limit: usize,
    },
    /// The call panicked. It may have been carried out in part.
    #[error("an internal error; the log of the server has the details")]
    Internal,
}

/// Why a request about sessions was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SessionRefusal {
    /// There is no such session.
    #[error("no session {0}")]
    UnknownSession(SessionId),
    /// There is a session of that name already.
    #[error("session {0} exists already")]
    SessionExists(SessionId),
    /// Another process has the session open.
    #[error("session {session} is in use by {holder}; end that first, or open another session")]
    SessionHeld {
        /// The session.
        session: SessionId,
        /// Who has it, in words for people.
        holder: String,
    },
    /// The caller has as many sessions open as may be.
    #[error("{limit} sessions are open, which is the limit; close one first")]
    TooManySessions {
        /// How many may be open.
        limit: usize,
    },
    /// A run is active, and the input was not to wait.
    #[error("run {active} is active; wait for its end, enqueue the input, or stop the run")]
    Busy {
        /// The run that is in the way.
        active: RunId,
    },
    /// Too many inputs wait.
    #[error("{limit} inputs are waiting, which is the limit; clear the queue or wait")]
    QueueFull {
        /// How many may wait.
        limit: usize,
    },
    /// Nothing runs.
    #[error("no run is active")]
    NoActiveRun,
    /// Another run is active than the one that was named.
    #[error("run {asked} is not the active run {active}")]
    WrongRun {
        /// The one that was named.
        asked: RunId,
        /// The one that is active.
        active: RunId,
    },
    /// As many runs are active as may be.
    #[error("{limit} runs are active, which is the limit; wait for one to end, or stop one")]
    TooManyRuns {
        /// How many may be active.
        limit: usize,
    },
    /// The session is being compacted.
    #[error("the session is being compacted; wait for it, or stop it")]
    Compacting,
    /// Processes that the session sent to the background are running.
    #[error("the session has processes in the background; end them first")]
    BackgroundProcesses,
    /// The session could not be compacted, and is as it was.
    #[error("the session was not compacted: {reason}")]
    NotCompacted {
        /// Why.
        reason: String,
    },
    /// The session has no such message.
    #[error("the session has no message {0}")]
    UnknownMessage(MessageId),
    /// No agent of that name is configured.
    #[error("no agent {0} is configured")]
    UnknownAgent(AgentId),
    /// Too many requests of one connection wait for an answer.
    #[error("{limit} questions are waiting for an answer, which is the limit; wait for one")]
    TooManyRequests {
        /// How many may wait.
        limit: usize,
    },
    /// The connection, the session or the program is closing. Nothing was changed.
    #[error("{part} is closing")]
    Closing {
        /// What is closing.
        part: ClosingPart,
    },
    /// Too many sessions are watched.
    #[error("{limit} sessions are being watched, which is the limit")]
    TooManyWatched {
        /// How many may be watched.
        limit: usize,
    },
    /// A file could not be kept or read.
    #[error("the file cannot be kept: {reason}")]
    MediaUnavailable {
        /// What is wrong and what to do.
        reason: String,
    },
    /// The log cannot be written or read. Nothing was changed.
    #[error("the log cannot be used: {reason}")]
    LogUnavailable {
        /// What is wrong and what to do.
        reason: String,
    },
    /// A part of the server panicked over it. It may have been carried out in part.
    #[error("an internal error; the log of the server has the details")]
    Internal,
}

/// What is closing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClosingPart {
    /// The connection that asked.
    Connection,
    /// One session.
    Session(SessionId),
    /// The whole program.
    Program,
}

impl fmt::Display for ClosingPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connection => f.write_str("the connection"),
            Self::Session(id) => write!(f, "session {id}"),
            Self::Program => f.write_str("the program"),
        }
    }
}
