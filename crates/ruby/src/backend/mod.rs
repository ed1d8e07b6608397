//! The backend of the supex door: Ruby, an optional upstream runtime, and parlor's own tools, without a session.
//!
//! [`RubyBackend`] is shared by all connections; each has a [`RubyConnection`] (`connection.rs`). Anything that takes
//! time is a job: jobs take turns in one lane (`jobs.rs`). A job is known by its key until its answer was delivered, so
//! a client that repeats a request gets that answer and nothing runs twice (`calls.rs`).
//!
//! Deliberately absent: envelopes, error numbers, and the texts of any protocol.

mod allowed_roots;
mod calls;
mod connection;
mod console_log;
mod console_sessions;
mod jobs;
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

/// How many calls may be known at a time: those that run or wait, and answers that are kept.
pub const MAX_CALLS: usize = 1024;

/// How long an answer is kept for a client that has not got it.
pub const KEEP_ANSWER: Duration = Duration::from_secs(60);

/// How many bytes of such answers are kept. The oldest go first.
pub const KEPT_BYTES: usize = 32 << 20;

/// How many of parlor's own tools run at a time. More wait.
pub const MAX_TOOL_CALLS: usize = 16;

/// How long the console log may become before it is put aside, and one begun anew.
pub const CONSOLE_LOG_BYTES: u64 = 5_242_880;

/// How many sessions of consoles keep their folder.
pub const KEPT_SESSIONS: usize = 20;

/// How many snippets of a session are kept.
pub const KEPT_SNIPPETS: u64 = 100;

/// What a [`RubyBackend`] works with.
pub struct RubyBackendConfig {
    /// How Ruby is run.
    pub ruby: crate::RubySettings,
    /// Where the console log and the snippets of consoles are kept. It is made if it is missing, and the files in it
    /// may be evaluated.
    pub state: PathBuf,
    /// Which files may be evaluated besides.
    pub roots: AllowedRoots,
    /// The upstream runtime to work with, if there is one, and whether code is evaluated there.
    pub upstream: Option<(Arc<dyn Upstream>, EvaluateAt)>,
    /// Parlor's own tools, where they are on.
    pub tools: Option<Arc<dyn ToolRunner>>,
    /// Tells the time.
    pub clock: Arc<dyn Clock>,
    /// Spells a moment in the user's time zone: `2026-03-04T12:00:00.123`.
    pub spell: fn(Timestamp) -> String,
}

/// Where code is evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EvaluateAt {
    /// In the upstream runtime, where its model is.
    Upstream,
    /// In parlor's own Ruby.
    Local,
}

/// A runtime elsewhere that evaluates Ruby and has tools of its own. Chosen at start-up, hence used as `dyn`.
#[async_trait]
pub trait Upstream: Send + Sync {
    /// Has `job` done and returns its result, a JSON object, as the runtime wrote it.
    ///
    /// - Called for one job at a time.
    /// - A job that may have been done is never sent again.
    async fn perform(&self, caller: &Caller, job: &RubyJob) -> Result<String, UpstreamError>;

    /// The same runtime for the lines of one console, which keeps a connection there until this is dropped. `None`
    /// where consoles are not forwarded.
    fn console(&self) -> Option<Arc<dyn Upstream>>;
}

/// Parlor's own tools. A trait, because the crate of tools depends on this one: its `ruby` tool evaluates here.
#[async_trait]
pub trait ToolRunner: Send + Sync {
    /// The tools there are.
    fn list(&self) -> Vec<ToolInfo>;

    /// Calls a tool with `input`, a JSON object as text. `None` if there is no tool of that name.
    async fn call(&self, name: &str, input: &str) -> Option<Result<ToolOutput, Failure>>;

    /// Cancels the calls that run, and ends what they left running.
    async fn close(&self);
}

/// Ruby, the upstream runtime and the tools of one server. Clones are the same one.
#[derive(Clone)]
pub struct RubyBackend {
    shared: Arc<RubyShared>,
}

/// What all connections share.
struct RubyShared {
    ruby: RubyHost,
    /// Whoever holds it has Ruby and the upstream runtime to itself.
    lane: Mutex<()>,
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
    /// Opens it. Call within a runtime whose threads live as long as the program.
    pub fn open(config: RubyBackendConfig) -> io::Result<Self> {
        let RubyBackendConfig { ruby, state, roots, upstream, tools, clock, spell } = config;
        let console = ConsoleLogFile::open(&state, Arc::clone(&clock), spell)?;
        let sessions = ConsoleSessions::open(&state, clock, spell)?;
        let shared = RubyShared {
            ruby: RubyHost::new(ruby),
            lane: Mutex::new(()),
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

    /// The backend of one connection.
    pub fn connect(&self) -> RubyConnection {
        RubyConnection::new(Arc::clone(&self.shared))
    }

    /// Ends everything. Calls that run or wait are answered, and so are all that come later.
    pub async fn close(&self) {
        self.shared.closing.cancel();
        self.shared.ruby.stop().await;
        if let Some(tools) = &self.shared.tools {
            tools.close().await;
        }
        self.shared.console.end();
    }
}

impl fmt::Debug for RubyBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RubyBackend(…)")
    }
}

#[cfg(test)]
mod tests;
