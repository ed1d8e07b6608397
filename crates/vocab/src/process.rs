//! What a door can ask of child processes, and what it hears of them.

use std::path::PathBuf;

use crate::ProcessId;

/// Something that a door wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProcessRequest {
    /// Start a child process.
    StartProcess(StartProcess),
    /// Queue bytes for the standard input of a process.
    WriteProcess {
        /// The process to write to.
        process: ProcessId,
        /// What to write.
        bytes: Vec<u8>,
    },
    /// End a process and everything in its process group.
    TerminateProcess {
        /// The process to end.
        process: ProcessId,
    },
}

/// How to start a child process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartProcess {
    /// The name under which the client will speak of it.
    pub process: ProcessId,
    /// The program: a path if it holds a slash, else looked up in the `PATH` of `env`.
    pub program: String,
    /// Its arguments, without the zeroth.
    pub args: Vec<String>,
    /// The zeroth argument, where it is not to be `program`.
    pub arg0: Option<String>,
    /// The working folder. Must be absolute.
    pub folder: PathBuf,
    /// The complete environment: nothing is inherited.
    pub env: Vec<(String, String)>,
    /// What the child's standard streams are.
    pub stdio: StdioKind,
    /// How many of the last output bytes to keep, for each stream.
    pub retain: usize,
}

/// What a child's standard streams are connected to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StdioKind {
    /// A terminal of its own: input can be written, output is one stream.
    Terminal,
    /// Two pipes for the two outputs; standard input is at its end from the start.
    Pipes,
}

/// What an accepted command gives back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessReply {
    /// The process runs.
    ProcessStarted,
    /// The bytes are queued and will be written before any that follow.
    WriteAccepted,
    /// The process is being ended, or was not there to be ended.
    ProcessTerminating {
        /// Whether it was alive when asked.
        was_running: bool,
    },
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProcessEvent {
    /// A process wrote something. Pieces of one stream come in the order of its bytes.
    ProcessOutput {
        /// The writer.
        process: ProcessId,
        /// Which of its streams.
        stream: OutputStream,
        /// What it wrote. Never empty.
        bytes: Vec<u8>,
    },
    /// A process is over: the last event of its life.
    ProcessExited {
        /// Which one.
        process: ProcessId,
        /// How it ended.
        ending: ProcessExit,
    },
}

/// Which of its outputs a process wrote to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputStream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// A terminal, which makes one stream of both.
    Terminal,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessExit {
    /// It exited with this status.
    Code(u8),
    /// This signal killed it.
    Signal(i32),
    /// It was asked to end and a signal of ours did it, whichever was needed.
    Terminated,
    /// The operating system did not say.
    Unknown,
}
