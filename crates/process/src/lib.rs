//! Child processes on a terminal or on pipes: start, write, resize, end, and hear of them.
//!
//! A process here is a whole process group, on a terminal its whole session when it is told to end. Its output is read in large pieces and handed to a
//! bounded channel, so a consumer that stops receiving slows the child down and costs no memory.
//! [`ProcessNews::Exited`] is the last word on a process: all its output came before, and nothing of its
//! group is left.
//!
//! Deliberately absent: names (an [`ProcessNumber`] is a number), base64, and any idea of a connection.
//! Linux only: it relies on pidfds, and on `clone` sharing memory until the program is loaded.

mod allocator;
mod backend;
mod confine;
mod error;
mod launch;
mod oom;
mod process;
mod program;
mod relatives;
mod source;
mod startup_code;
mod stdin;
mod supervise;
mod tail;
mod terminal;
mod terminals;
mod watched;

use std::time::Duration;

use parlor_vocab::{OutputStream, ProcessExit};

pub use allocator::give_back_large_blocks;
pub use backend::{MAX_PROCESSES, Processes, SHUTDOWN_GRACE, spawn_refusal};
pub use confine::{CHILD_FILE_BYTES, CHILD_OPEN_FILES, CHILD_PROCESSES, ChildLimits, limit_children};
pub use error::SpawnError;
pub use oom::{CHILD_OOM_SCORE, prepare_child_scores};
pub use process::{Process, ReadSoFar, Retained, spawn, spawn_for_person};
pub use program::{DEFAULT_PATH, find_program};
pub use startup_code::give_back_startup_code;
pub use stdin::{WriteError, WriteId, Written};
pub use terminal::TerminalDimensions;
pub use terminals::{
    MAX_ENDED_TERMINALS, MAX_TERMINALS, TERMINAL_BYTES, TerminalEvent, TerminalInfo, TerminalView, Terminals,
};

/// How long a process group may take to end after it was asked to, before it is killed.
pub const TERMINATE_GRACE: Duration = Duration::from_secs(1);

/// Once a child is gone, how long its output may stay silent, if somebody still holds it open.
pub const DRAIN_SILENCE: Duration = Duration::from_millis(200);

/// Once a child is gone, how long its output is waited for in all, if somebody still holds it open.
pub const DRAIN_WAIT: Duration = Duration::from_secs(2);

/// Once a child is gone, how much output of those who hold it open is still read. More than any
/// pipe or terminal of ours buffers, so what the child itself wrote is always part of it.
pub const DRAIN_BYTES: usize = 4 << 20;

/// Once a group was killed, how long output may stay silent that somebody outside of the group still
/// holds open, and how long it is waited for in all.
pub const HURRY_SILENCE: Duration = Duration::from_millis(20);

/// How long the exit of a process waits for killed members of its group to be gone.
pub const GROUP_END_WAIT: Duration = Duration::from_millis(200);

/// The most bytes that are kept of one output stream, whatever is asked for.
pub const MAX_RETAINED_BYTES: usize = 1 << 20;

/// The most bytes of arguments and environment, with their pointers: the kernel never takes more.
pub const MAX_ARGUMENT_BYTES: usize = 6 << 20;

/// Writes are accepted at once while fewer bytes than this wait to be read by the process.
pub const STDIN_QUEUE_BYTES: usize = 1 << 20;

/// The most bytes that may wait to be read by one process. A single larger write is still taken
/// when nothing else waits.
pub const STDIN_BACKLOG_BYTES: usize = 32 << 20;

/// The most writes that may wait to be read by one process.
pub const STDIN_BACKLOG_WRITES: usize = 4096;

/// The piece in which output is read at first: what a pipe holds by default.
pub const OUTPUT_PIECE_BYTES: usize = 64 * 1024;

/// The piece in which the output of a process that writes in bulk is read, and the size that its
/// pipe is given. Not from the start: pipe memory is the user's, and most processes say little.
pub const BULK_PIECE_BYTES: usize = 256 * 1024;

/// Which process a [`ProcessReport`] is about: a number that its starter chose and uses once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProcessNumber(pub u64);

/// What a process has to tell.
#[derive(Debug, PartialEq, Eq)]
pub struct ProcessReport {
    /// Which process.
    pub instance: ProcessNumber,
    /// What happened.
    pub news: ProcessNews,
}

/// What can happen to a process.
#[derive(Debug, PartialEq, Eq)]
pub enum ProcessNews {
    /// It wrote something.
    Output {
        /// Where to.
        stream: OutputStream,
        /// What. Never empty.
        bytes: Vec<u8>,
    },
    /// A write that had to wait is accepted now.
    WriteAccepted(WriteId),
    /// A write that had to wait will never be read: the process has ended.
    WriteLost(WriteId),
    /// It is over. Nothing follows.
    Exited(ProcessExit),
}
