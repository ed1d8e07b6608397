//! Requests of today's exec protocol beside those of [`ProcessRequest`]: processes with numbered events, files, and facts
//! about the machine; and what the executor reports of them.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::{
    FileAction, FileReply, HttpError, HttpReply, HttpRequest, OutputStream, ProcessEvent, ProcessExit,
    ProcessId, ProcessRefusal, ProcessReply, ProcessRequest, SandboxIntent, StartProcess,
};

/// A request to the executor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExecutorRequest {
    /// A request about a process, in the first family of methods.
    Process(ProcessRequest),
    /// Begins a session, or goes on with one whose connection was lost.
    OpenSession {
        /// The id of the session to go on with.
        resume: Option<String>,
    },
    /// Asks for [`EnvironmentInfo`].
    DescribeEnvironment,
    /// Starts a process with numbered events.
    StartSequenced(Box<StartSequenced>),
    /// Queues bytes for the standard input of a process.
    WriteOnce {
        /// The process to write to.
        process: ProcessId,
        /// A second write with the same id is accepted and not carried out.
        write_id: String,
        /// The bytes to write.
        bytes: Vec<u8>,
    },
    /// Sends SIGINT to the process group.
    InterruptProcess {
        /// The process to interrupt.
        process: ProcessId,
    },
    /// Ends a process and everything in its process group.
    EndProcess {
        /// The process to end.
        process: ProcessId,
    },
    /// Reads retained output of a process.
    ReadOutput(ReadOutput),
    /// A request about files.
    File {
        /// What to do.
        action: FileAction,
        /// What the client restricts the access to, if anything.
        intent: Option<Box<SandboxIntent>>,
    },
    /// Makes an HTTP request.
    Http(Box<HttpRequest>),
}

/// How to start a process with numbered events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartSequenced {
    /// The program. Its `env` is laid over what `inherit` leaves of the executor's environment.
    pub start: StartProcess,
    /// Which variables of the executor the process inherits; `None` inherits nothing.
    pub inherit: Option<EnvironmentPolicy>,
    /// What the client restricts the process to, if anything.
    pub intent: Option<SandboxIntent>,
    /// What the client starts the process for, if it says so.
    pub origin: Option<WorkOrigin>,
}

/// What a client does something for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkOrigin {
    /// The client's conversation.
    pub thread: String,
    /// The tool call in the conversation.
    pub call: Option<String>,
}

/// Which variables of the executor's environment a process inherits. Patterns are globs and ignore case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvironmentPolicy {
    /// What the policy begins with.
    pub base: EnvironmentBase,
    /// Whether variables whose names suggest secrets are kept.
    pub keep_secrets: bool,
    /// Patterns of variables to remove.
    pub exclude: Vec<String>,
    /// Variables to set.
    pub set: Vec<(String, String)>,
    /// If not empty, only variables with these patterns stay.
    pub include_only: Vec<String>,
}

/// The variables that an [`EnvironmentPolicy`] begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EnvironmentBase {
    /// All variables of the executor.
    All,
    /// A few that most programs need, such as `PATH` and `HOME`.
    Core,
    /// None.
    Empty,
}

/// A read of retained output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadOutput {
    /// The process to read from.
    pub process: ProcessId,
    /// Only chunks with larger numbers are returned.
    pub after: u64,
    /// Chunks are added while they have at most this many bytes in all; the first one is always returned.
    pub max_bytes: Option<u64>,
    /// How long to wait for a chunk or an end.
    pub wait: Duration,
}

/// The reply to an accepted [`ExecutorRequest`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExecutorReply {
    /// The reply to [`ExecutorRequest::Process`].
    Process(ProcessReply),
    /// The session is open. It has the machine of the executor.
    SessionOpened(EnvironmentInfo),
    /// The machine of the executor.
    Environment(EnvironmentInfo),
    /// The process runs.
    SequencedStarted {
        /// Whether it runs in a sandbox.
        is_sandboxed: bool,
    },
    /// Whether a write was queued.
    Write(WriteOutcome),
    /// The process group got the signal, or is gone.
    InterruptSent,
    /// The process is being ended, or had ended before.
    EndingProcess {
        /// Whether the process was alive when the request arrived.
        was_running: bool,
    },
    /// Retained output.
    Output(OutputPage),
    /// The reply to [`ExecutorRequest::File`].
    File(FileReply),
    /// The reply to [`ExecutorRequest::Http`].
    Http(HttpReply),
}

/// What became of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteOutcome {
    /// The bytes are queued, or were already written under the same id, or the process has ended.
    Accepted,
    /// There is no such process.
    UnknownProcess,
    /// The process was started without an open standard input.
    StdinClosed,
}

/// Retained output and the state of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputPage {
    /// The chunks, oldest first.
    pub chunks: Vec<SequencedChunk>,
    /// The number after the last returned one; without a limit, the next number that the process will use.
    pub next_seq: u64,
    /// How the process ended, if it did.
    pub ending: Option<ProcessExit>,
    /// Whether the process has ended and all its output was read.
    pub is_closed: bool,
    /// Whether its sandbox probably made it fail.
    pub is_denied: bool,
}

/// A piece of output with its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SequencedChunk {
    /// The number in the process's sequence of events.
    pub seq: u64,
    /// The stream that the process wrote to.
    pub stream: OutputStream,
    /// The bytes; never empty. Shared with the retained output.
    pub bytes: Arc<Vec<u8>>,
}

/// What the executor reports without a request. The numbers of one process begin at 1 and have no gaps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExecutorEvent {
    /// A process in the first family of methods.
    Process(ProcessEvent),
    /// A process wrote output.
    SequencedOutput {
        /// The process that wrote.
        process: ProcessId,
        /// The bytes.
        chunk: SequencedChunk,
    },
    /// A process ended. Output may follow.
    SequencedExited {
        /// The process that ended.
        process: ProcessId,
        /// The number of the event.
        seq: u64,
        /// An exit status or a signal.
        ending: ProcessExit,
        /// Whether its sandbox probably made it fail.
        is_denied: bool,
    },
    /// A piece of the body of a streamed answer to [`ExecutorRequest::Http`].
    HttpBody {
        /// The id of the request.
        request: String,
        /// The number of the piece; the first is 1.
        seq: u64,
        /// The bytes.
        bytes: Vec<u8>,
        /// Whether the body has ended. The last piece is empty.
        is_last: bool,
        /// Why the body has ended too early.
        error: Option<String>,
    },
    /// A process ended and all its output was reported. Always its last event.
    SequencedClosed {
        /// The process.
        process: ProcessId,
        /// The number of the event.
        seq: u64,
    },
}

/// What a client learns of the executor's machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvironmentInfo {
    /// The random id of the session, in the form of a UUID.
    pub session: String,
    /// The name of the user's shell: `bash`, `zsh` or `sh`.
    pub shell_name: &'static str,
    /// The path of the shell.
    pub shell_path: String,
    /// The working folder, if the system knows it.
    pub folder: Option<PathBuf>,
    /// The user's home folder.
    pub home: Option<PathBuf>,
    /// The folder for temporary files.
    pub temporary_folder: PathBuf,
}

/// Why the executor refuses a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExecutorRefusal {
    /// The refusal of a request about processes.
    #[error(transparent)]
    Process(#[from] ProcessRefusal),
    /// There is no session with this id, or it was kept long enough.
    #[error("unknown session id {0}")]
    UnknownSession(String),
    /// The session has another connection.
    #[error("session {0} is already attached to another connection")]
    SessionAttached(String),
    /// The refusal of an HTTP request.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// The client wants restrictions that the executor cannot enforce.
    #[error("sandbox intent cannot be enforced on this executor")]
    UnenforceableIntent,
    /// The kernel of this machine cannot enforce a sandbox.
    #[error("sandbox intent cannot be enforced on this executor: {0}")]
    NoSandbox(String),
    /// The file does not exist.
    #[error("{0}")]
    FileNotFound(String),
    /// The path, the options or the permissions of the file do not allow it.
    #[error("{0}")]
    FileRefused(String),
    /// Another error of the file system.
    #[error("{0}")]
    FileFailed(String),
}
