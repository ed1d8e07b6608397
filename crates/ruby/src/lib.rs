//! The Ruby host: evaluates Ruby code in one long-lived `ruby` process, and answers every call once.
//!
//! [`RubyHost`] is the handle. Behind it, one task (`worker_task.rs`) takes calls in the order in which they came and
//! passes them to a worker (`worker.rs`), a child process that runs `worker.rb`. Requests and replies have pipes of
//! their own (`channel.rs`, `frame.rs`), and everything that code prints goes into another pipe (`output_pipe.rs`,
//! `capture.rs`). A worker that dies, takes too long or is cancelled is replaced, and the answer says so.
//! [`RubyBackend`] (`backend/`) serves connections.
//!
//! Deliberately absent: protocols and their error numbers, which belong to doors, and reading the environment. This
//! is not a sandbox: evaluated code can do everything that the user who runs it can do.

mod answer;
mod backend;
mod capture;
mod channel;
mod error;
mod evaluation;
mod frame;
mod hint;
mod host;
mod output_pipe;
mod reply;
mod settings;
mod worker;
mod worker_task;

use std::time::Duration;

pub use answer::{PrintedOutput, PrintedPiece, RubyAnswer, WorkerLosses};
pub use backend::{
    AllowedRoots, CONSOLE_LOG_BYTES, DeliveryReceipt, EvaluateAt, HangUpCheck, KEEP_ANSWER,
    KEPT_ANSWER_BYTES, KEPT_CONSOLE_SESSIONS, KEPT_SNIPPETS, MAX_CALLS, MAX_TOOL_CALLS, RubyBackend,
    RubyBackendConfig, RubyConnection, ToolRunner, Upstream,
};
pub use error::{RubyError, RubyException};
pub use evaluation::{Evaluation, RubySource};
pub use host::RubyHost;
pub use settings::RubySettings;

/// The value of `Sketchup.version` in a worker.
pub const SKETCHUP_VERSION: &str = "26.0.0";

/// The value of `SupexRuntime::VERSION` in a worker.
pub const SUPEX_VERSION: &str = "0.2.0";

/// The default time limit of one evaluation.
pub const TIME_LIMIT: Duration = Duration::from_secs(60);

/// The default limit in bytes for the writable memory of a worker.
pub const MEMORY_LIMIT: u64 = 1 << 30;

/// How long a worker may take to start. Long, because the machine may be busy.
pub const START_LIMIT: Duration = Duration::from_secs(30);

/// How many workers are started for one call if each is killed before it is up.
pub const START_TRIES: usize = 3;

/// How long the host waits for a worker that closed its connection to exit before it kills it, and for a killed
/// worker to be gone before it stops waiting.
pub const EXIT_WAIT: Duration = Duration::from_secs(2);

/// How many calls may wait in the queue.
pub const MAX_WAITING: usize = 64;

/// The largest code of one call.
pub const MAX_CODE_BYTES: usize = 4 << 20;

/// The longest text of a value: the longest reply that Supex clients accept. With its envelope a reply may still be too
/// long, which the door checks.
pub const MAX_VALUE_BYTES: usize = 10 << 20;

/// The limit for printed text in one answer. The bytes beyond it are counted and dropped.
pub const MAX_OUTPUT_BYTES: usize = 1 << 20;

/// How many pieces that text may have. Later text joins the last piece, whichever stream it was printed to.
pub const MAX_OUTPUT_PIECES: usize = 4096;

/// How many bytes of printed text are read from the pipe when a reply has come: the most that a pipe can hold. Text
/// beyond it goes with the next answer.
pub const MAX_PIPE_BYTES: usize = 1 << 20;

/// The longest message, class name or backtrace line of an exception. Longer ones are cut, with a note of how many
/// bytes.
pub const MAX_MESSAGE_BYTES: usize = 64 * 1024;

/// How many lines of a backtrace are returned, from the innermost.
pub const MAX_BACKTRACE_LINES: usize = 50;
