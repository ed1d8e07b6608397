//! Requests about child processes, and what the process backend reports of them.

use std::path::PathBuf;

use crate::ProcessId;

/// A request to the process backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProcessRequest {
    /// Starts a child process.
    StartProcess(StartProcess),
    /// Queues bytes for the standard input of a process.
    WriteProcess {
        /// The process to write to.
        process: ProcessId,
        /// The bytes to write.
        bytes: Vec<u8>,
    },
    /// Ends a process and everything in its process group.
    TerminateProcess {
        /// The process to end.
        process: ProcessId,
    },
}

/// How to start a child process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartProcess {
    /// The id that the client chose for the process.
    pub process: ProcessId,
    /// A path if it contains a slash; otherwise a name to look up in the `PATH` of `env`.
    pub program: String,
    /// The arguments, without argument 0.
    pub args: Vec<String>,
    /// Argument 0; `None` uses `program`.
    pub arg0: Option<String>,
    /// The working folder. Must be absolute.
    pub folder: PathBuf,
    /// The complete environment; the child inherits nothing.
    pub env: Vec<(String, String)>,
    /// A terminal or pipes.
    pub stdio: StdioKind,
    /// How many of the last output bytes to keep for each stream.
    pub retain_bytes: usize,
}

/// What a child's standard streams are connected to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StdioKind {
    /// A pseudoterminal: the client can write input, and both outputs are one stream.
    Terminal,
    /// One pipe for each output. Standard input is at its end from the start.
    Pipes,
    /// One pipe for each output, and one for standard input, to which the client can write.
    PipesWithInput,
}

/// The reply to an accepted [`ProcessRequest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessReply {
    /// The process runs.
    ProcessStarted,
    /// The bytes are queued. Writes reach the process in the order of their requests.
    WriteAccepted,
    /// The process is being ended, or had ended before.
    ProcessTerminating {
        /// Whether the process was alive when the request arrived.
        was_running: bool,
    },
}

/// What the process backend reports without a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProcessEvent {
    /// A process wrote output. Events of one stream come in the order of its bytes.
    ProcessOutput {
        /// The process that wrote.
        process: ProcessId,
        /// The stream that it wrote to.
        stream: OutputStream,
        /// The bytes; never empty.
        bytes: Vec<u8>,
    },
    /// A process ended. Always the last event of the process.
    ProcessExited {
        /// The process that ended.
        process: ProcessId,
        /// An exit status or a signal.
        ending: ProcessExit,
    },
}

/// An output stream of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputStream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// A terminal, which merges both.
    Terminal,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessExit {
    /// It exited with this status.
    Code(u8),
    /// A signal killed it that parlor did not send.
    Signal(i32),
    /// A client asked to terminate it, and a signal from parlor killed it.
    Terminated,
    /// The operating system did not report how.
    Unknown,
}
