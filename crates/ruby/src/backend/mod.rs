//! The backend of the supex door: Ruby, an optional upstream runtime, and parlor's own tools, without a session.
//!
//! [`RubyBackend`] is shared by all connections; each has a [`RubyConnection`] (`connection.rs`). Anything that takes
//! time is a job, and jobs that use Ruby run one after another (`jobs.rs`). The table of calls (`calls.rs`) holds a
//! job until its answer is delivered, so a client that hangs up and repeats a request gets that answer and nothing runs
//! twice.
//!
//! Deliberately absent: envelopes, error numbers, and the texts of any protocol.

mod allowed_roots;
mod calls;
mod connection;
mod console_log;
mod console_sessions;
mod jobs;
mod known_losses;
mod private;

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parlor_vocab::{Caller, Clock, Failure, RubyJob, Timestamp, ToolInfo, ToolOutput, UpstreamError};
use tokio::sync::{Mutex, Semaphore};
use tokio_util::sync::CancellationToken;

use self::calls::Calls;
use self::console_log::ConsoleLogFile;
use self::console_sessions::ConsoleSessions;
use crate::RubyHost;

pub use allowed_roots::AllowedRoots;
pub use connection::{DeliveryReceipt, RubyConnection};

/// How many calls the table holds: those that run or wait, and answers that are kept.
pub const MAX_CALLS: usize = 1024;

/// How long an answer is kept for a client that has not received it.
pub const KEEP_ANSWER: Duration = Duration::from_secs(60);

/// How many bytes of such answers are kept. The oldest are dropped first.
pub const KEPT_ANSWER_BYTES: usize = 32 << 20;

/// How many calls of parlor's own tools run at a time. More calls wait.
pub const MAX_TOOL_CALLS: usize = 16;

/// The size at which the console log is renamed to `console.log.old` and a new one begun.
pub const CONSOLE_LOG_BYTES: u64 = 5_242_880;

/// How many console sessions keep their folders. The oldest are deleted.
pub const KEPT_CONSOLE_SESSIONS: usize = 20;

/// How many snippets of a console session are kept. The oldest are deleted.
pub const KEPT_SNIPPETS: u64 = 100;

/// What a [`RubyBackend`] needs from the program.
pub struct RubyBackendConfig {
    /// How the Ruby worker is started.
    pub ruby: crate::RubySettings,
    /// The folder for the console log and the snippets of consoles. It is created if it is missing, and files in it
    /// may be evaluated.
    pub state: PathBuf,
    /// Which other files may be evaluated.
    pub roots: AllowedRoots,
    /// The upstream runtime, if there is one, and whether code is evaluated there.
    pub upstream: Option<(Arc<dyn Upstream>, EvaluateAt)>,
    /// Parlor's own tools, if they are enabled.
    pub tools: Option<Arc<dyn ToolRunner>>,
    /// The source of timestamps.
    pub clock: Arc<dyn Clock>,
    /// Formats a time in the user's time zone: `2026-03-04T12:00:00.123`.
    pub format_time: fn(Timestamp) -> String,
}

/// Where code is evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EvaluateAt {
    /// In the upstream runtime, which has the model.
    Upstream,
    /// In parlor's own Ruby worker.
    Local,
}

/// A runtime elsewhere that evaluates Ruby and has tools of its own. Chosen at start-up, hence used as `dyn`.
#[async_trait]
pub trait Upstream: Send + Sync {
    /// Runs `job` and returns its result, a JSON object, as the runtime wrote it.
    ///
    /// - Callers run one job at a time.
    /// - Implementations never send a job again that may have run already.
    async fn run_job(&self, caller: &Caller, job: &RubyJob) -> Result<String, UpstreamError>;

    /// The same runtime for the lines of one console, with a connection of its own until it is dropped. `None` if
    /// console lines are not forwarded.
    fn console(&self) -> Option<Arc<dyn Upstream>>;
}

/// Tells whether the client of a connection has hung up.
pub type HangUpCheck = Box<dyn Fn() -> bool + Send + Sync>;

/// Parlor's own tools. A trait, because the `tools` crate depends on this one for its `ruby` tool.
#[async_trait]
pub trait ToolRunner: Send + Sync {
    /// All tools.
    fn list(&self) -> Vec<ToolInfo>;

    /// Calls a tool with `input`, a JSON object as text. `None` if there is no tool of that name.
    async fn call(&self, name: &str, input: &str) -> Option<Result<ToolOutput, Failure>>;

    /// Cancels running calls, and ends the processes that calls left in the background.
    async fn close(&self);
}

/// Ruby, the upstream runtime and the tools of one server. Clones share the same state.
#[derive(Clone)]
pub struct RubyBackend {
    shared: Arc<RubyShared>,
}

/// What all connections share.
struct RubyShared {
    ruby: RubyHost,
    /// Held while a job uses Ruby or the upstream runtime, so that jobs run one after another.
    turn: Mutex<()>,
    roots: AllowedRoots,
    upstream: Option<(Arc<dyn Upstream>, EvaluateAt)>,
    tools: Option<Arc<dyn ToolRunner>>,
    tool_slots: Semaphore,
    console: ConsoleLogFile,
    sessions: ConsoleSessions,
    calls: Calls,
    closing: CancellationToken,
}

impl RubyBackend {
    /// Opens the backend. Must be called within a tokio runtime whose threads live as long as the program.
    pub fn open(config: RubyBackendConfig) -> io::Result<Self> {
        let RubyBackendConfig { ruby, state, roots, upstream, tools, clock, format_time } = config;
        let console = ConsoleLogFile::open(&state, Arc::clone(&clock), format_time)?;
        let sessions = ConsoleSessions::open(&state, clock, format_time)?;
        let shared = RubyShared {
            ruby: RubyHost::new(ruby),
            turn: Mutex::new(()),
            roots: roots.with(state),
            upstream,
            tools,
            tool_slots: Semaphore::new(MAX_TOOL_CALLS),
            console,
            sessions,
            calls: Calls::default(),
            closing: CancellationToken::new(),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// A backend for one connection. `has_hung_up` must tell at once when the client has hung up, because a client that
    /// does so and repeats its request gets the answer of the first one.
    pub fn connect(&self, has_hung_up: HangUpCheck) -> RubyConnection {
        RubyConnection::new(Arc::clone(&self.shared), has_hung_up)
    }

    /// Ends the Ruby worker and the tools. Calls that run, wait or come later are answered with an error.
    pub async fn close(&self) {
        self.shared.closing.cancel();
        self.shared.ruby.stop().await;
        if let Some(tools) = &self.shared.tools {
            tools.close().await;
        }
        self.shared.console.mark_end();
    }
}

impl fmt::Debug for RubyBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RubyBackend(…)")
    }
}

#[cfg(test)]
mod tests;
