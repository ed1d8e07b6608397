//! Child processes on a terminal or on pipes: starts, writes to, resizes, ends and reports on them.
//!
//! A process here means a whole process group; on a terminal, ending it means ending its whole session. The crate reads
//! output in large pieces and sends it to a bounded channel, so that a slow consumer slows the child down and costs no
//! memory. [`ChildEvent::Exited`] is the last event of a process: it follows all output, and nothing of the process group
//! is left.
//!
//! [`Processes`] is the backend of the exec door. [`Terminals`] are the terminals of the web page. The crate knows no wire
//! format. It needs Linux: pidfds, and `clone` with shared memory until the program is loaded.

mod allocator;
mod async_fd;
mod attached;
mod backend;
mod confine;
mod drain;
mod error;
mod executor;
mod launch;
mod mapped_code;
mod oom;
mod output_reader;
mod process;
mod program;
mod public_address;
mod sandbox;
mod session_groups;
mod stdin;
mod supervise;
mod tail;
mod terminal;
mod terminals;

use std::time::Duration;

use parlor_vocab::{OutputStream, ProcessExit};

pub use allocator::return_large_blocks_to_system;
pub use attached::AttachedProcess;
pub use backend::{MAX_PROCESSES, Processes, SHUTDOWN_GRACE, spawn_refusal};
pub use confine::{
    CHILD_FILE_BYTES, CHILD_FREE_DISK_BYTES, CHILD_OPEN_FILES, CHILD_PROCESSES, ChildLimits, set_child_limits,
};
pub use error::SpawnError;
pub use executor::{
    DENIAL_SEARCH_BYTES, Executor, ExecutorSessions, FILE_WAIT, HttpAnswer, HttpBody, HttpClient,
    KEPT_PROCESS_TIME, MAX_BLOCK_BYTES, MAX_COPY_DEPTH, MAX_FILE_BYTES, MAX_HANDLE_BYTES,
    MAX_HTTP_BODY_BYTES, MAX_HTTP_PIECE_BYTES, MAX_HTTP_REQUESTS, MAX_KEPT_PROCESSES, MAX_KEPT_SESSIONS,
    MAX_LISTED_FILES, MAX_OPEN_FILES, MAX_READ_WAIT, MAX_STUCK_FILES, MAX_UNATTRIBUTED_CHANGES,
    MAX_WAITING_READS, MAX_WALK_DEPTH, MAX_WALK_ENTRIES, MAX_WALK_FOLDERS, OBSERVED_OUTPUT_BYTES,
    ObservedChange, ObservedWork, RETAINED_CHUNK_BYTES, RETAINED_CHUNKS, SESSION_KEEP_TIME, SessionExecutor,
    StopProcess, WALK_BYTES, WRITE_IDS, WorkObserver,
};
pub use mapped_code::unmap_code;
pub use oom::{CHILD_OOM_SCORE, prepare_child_oom_score};
pub use process::{
    Process, spawn, spawn_in, spawn_sequenced, spawn_sequenced_in, spawn_unconfined, spawn_with_socket,
};
pub use program::{DEFAULT_PATH, find_program};
pub use public_address::is_public_address;
pub use sandbox::{
    DISK_CHECK_INTERVAL, MAX_PROXY_CONNECTIONS, MIN_FREE_FILES, PROXY_CONNECT_WAIT, PROXY_HEAD_BYTES,
    PROXY_HEAD_WAIT, ProxyAddresses, ProxyDecision, ProxyRules, SANDBOX_END_WAIT, SANDBOX_TEMP_BYTES,
    Sandbox, SandboxNetwork, SandboxSupport, sandbox_support,
};
pub use stdin::{WriteError, WriteId, WriteStatus};
pub use tail::{MAX_RETAINED_RUNS, OutputChunk, RetainedOutput};
pub use terminal::TerminalDimensions;
pub use terminals::{
    MAX_ENDED_TERMINALS, MAX_TERMINALS, TERMINAL_BYTES, TERMINAL_INPUT_BYTES, TerminalEvent, TerminalInfo,
    TerminalView, Terminals,
};

/// How long a process group may take to end after SIGTERM, before SIGKILL.
pub const TERMINATE_GRACE: Duration = Duration::from_secs(1);

/// After the exit of a child, how long all its streams must be silent while another process has one of them open.
pub const DRAIN_SILENCE: Duration = Duration::from_millis(200);

/// After the exit of a child, how long to wait for output in all, of all streams, while another process has one of them
/// open.
pub const DRAIN_WAIT: Duration = Duration::from_secs(2);

/// After the exit of a child, how much output of a stream to read while another process has it open. More than any pipe or
/// terminal buffers, so everything that the child itself wrote is included.
pub const DRAIN_BYTES: usize = 4 << 20;

/// After a group was killed, how long to wait for output in all while a process outside of the group has a stream open.
pub const HURRY_SILENCE: Duration = Duration::from_millis(20);

/// How long to wait for killed members of a group to be gone before the exit is reported.
pub const GROUP_END_WAIT: Duration = Duration::from_millis(200);

/// The limit of [`StartProcess::retain_bytes`](parlor_vocab::StartProcess::retain_bytes).
pub const MAX_RETAINED_BYTES: usize = 1 << 20;

/// The limit of arguments and environment with their pointers, in bytes. The kernel accepts no more.
pub const MAX_ARGUMENT_BYTES: usize = 6 << 20;

/// A write is accepted at once while fewer bytes than this wait for the process to read them.
pub const STDIN_QUEUE_BYTES: usize = 1 << 20;

/// How many bytes may wait for one process to read them. A single larger write is allowed when nothing else waits.
pub const STDIN_BACKLOG_BYTES: usize = 32 << 20;

/// How many writes may wait for one process to read them.
pub const STDIN_BACKLOG_WRITES: usize = 4096;

/// The size of output reads at first: the default size of a pipe.
pub const OUTPUT_PIECE_BYTES: usize = 64 * 1024;

/// The size of output reads, and of the pipe, of a process that writes in bulk. Not from the start, because the kernel
/// limits the pipe memory of a user, and most processes write little.
pub const BULK_PIECE_BYTES: usize = 256 * 1024;

/// Identifies a process in a [`ProcessReport`]. The caller of [`spawn`] chooses a number and never uses it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProcessNumber(pub u64);

/// An event of one process.
#[derive(Debug, PartialEq, Eq)]
pub struct ProcessReport {
    /// The process.
    pub process: ProcessNumber,
    /// What happened.
    pub event: ChildEvent,
}

/// What can happen to a child process.
#[derive(Debug, PartialEq, Eq)]
pub enum ChildEvent {
    /// The process wrote output.
    Output {
        /// The stream that it wrote to.
        stream: OutputStream,
        /// The bytes; never empty.
        bytes: Vec<u8>,
    },
    /// A write that had to wait was accepted.
    WriteAccepted(WriteId),
    /// A write that had to wait was dropped, because the process has ended.
    WriteLost(WriteId),
    /// The child of [`spawn_sequenced`] has exited. Output may follow, and `Exited` will.
    LeaderExited(ProcessExit),
    /// The process has ended. Always its last event.
    Exited(ProcessExit),
}
