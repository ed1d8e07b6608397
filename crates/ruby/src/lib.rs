//! The Ruby host: evaluates Ruby code in one long-lived `ruby` process, and answers every call once.
//!
//! [`RubyHost`] is the handle. Behind it one task (`lane.rs`) takes calls in the order in which they
//! came and hands them to a worker (`worker.rs`), a child process that runs `worker.rb`. Requests and
//! replies pass over a socket of their own (`channel.rs`, `frame.rs`), while all that code prints goes
//! into a pipe (`printing.rs`, `capture.rs`). A worker that dies, takes too long or is cancelled
//! is replaced, and the answer says so.
//!
//! Deliberately absent: protocols and their error numbers, which belong to doors; the decision which
//! files may be evaluated; reading of the environment. It is no sandbox: evaluated code can do all
//! that the user can who runs it.

mod answer;
mod backend;
mod capture;
mod channel;
mod error;
mod evaluation;
mod frame;
mod hint;
mod host;
mod lane;
mod printing;
mod reply;
mod settings;
mod worker;

use std::time::Duration;

pub use answer::{PrintedOutput, PrintedPiece, RubyAnswer};
pub use backend::{
    AllowedRoots, CONSOLE_LOG_BYTES, DeliveryReceipt, EvaluateAt, KEEP_ANSWER, KEPT_BYTES, KEPT_SESSIONS,
    KEPT_SNIPPETS, MAX_CALLS, MAX_TOOL_CALLS, RubyBackend, RubyBackendConfig, RubyConnection, ToolRunner,
    Upstream,
};
pub use error::{Raised, RubyError};
pub use evaluation::{Evaluation, RubySource};
pub use host::RubyHost;
pub use settings::RubySettings;

/// What `Sketchup.version` is in a worker.
pub const SKETCHUP_VERSION: &str = "26.0.0";

/// What `SupexRuntime::VERSION` is in a worker.
pub const SUPEX_VERSION: &str = "0.2.0";

/// How long one evaluation may take, unless the settings say otherwise.
pub const TIME_LIMIT: Duration = Duration::from_secs(60);

/// How many bytes of memory a worker may write to, unless the settings say otherwise.
pub const MEMORY_LIMIT: u64 = 1 << 30;

/// How long a worker may take to start, on a machine that is busy with other things.
pub const START_LIMIT: Duration = Duration::from_secs(30);

/// How many workers are started for one call, if somebody kills them before they are up.
pub const START_TRIES: usize = 3;

/// How long a worker that has hung up may take to exit by itself, before it is killed; and a killed
/// one to be gone, before it is left to the kernel.
pub const EXIT_WAIT: Duration = Duration::from_secs(2);

/// How many calls may wait for their turn.
pub const MAX_WAITING: usize = 64;

/// The most code that one call may bring.
pub const MAX_CODE_BYTES: usize = 4 << 20;

/// The longest text of a value. It leaves room for an envelope in the 10 MiB of Supex clients.
pub const MAX_VALUE_BYTES: usize = 8 << 20;

/// The most printed text that one answer carries. The rest is counted.
pub const MAX_OUTPUT_BYTES: usize = 1 << 20;

/// How many pieces that text may have. What comes after belongs to the last one, whichever stream
/// it was printed to.
pub const MAX_OUTPUT_PIECES: usize = 4096;

/// The most that is looked for in the pipe of printed text when an answer is there: what such a pipe
/// can hold at most. What is beyond goes along with the next answer.
pub const MAX_PIPE_BYTES: usize = 1 << 20;

/// The longest message, class name or backtrace line of an exception. The rest is counted.
pub const MAX_MESSAGE_BYTES: usize = 64 * 1024;

/// How many lines of a backtrace are given, from the innermost.
pub const MAX_BACKTRACE_LINES: usize = 50;
