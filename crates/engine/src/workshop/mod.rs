//! The workshop: one Ruby, the SketchUp that may be behind it, and parlor's own tools, for all callers.
//!
//! [`Workshop`] is shared; each connection has a [`Workbench`] (`bench.rs`). What takes time is a call:
//! it takes its turn in one lane (`perform.rs`), and is known by its key until its answer has
//! arrived, so that a client that asks again gets that answer and nothing is done twice (`calls.rs`).
//!
//! Deliberately absent: envelopes, numbers of errors, and the texts of any protocol.

mod bench;
mod calls;
mod console;
mod perform;
mod private;
mod reach;
mod sessions;

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parlor_ruby::RubyHost;
use parlor_tools::{Context, Toolbox};
use parlor_vocab::{Caller, Clock, ModelFailure, Timestamp, Work};
use tokio::sync::{Mutex, Semaphore};
use tokio_util::sync::CancellationToken;

use self::calls::Calls;
use self::console::Console;
use self::sessions::Sessions;

pub use bench::{Receipt, Said, Workbench};
pub use reach::Reach;

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

/// What a workshop is made of.
pub struct WorkshopMeans {
    /// How Ruby is run.
    pub ruby: parlor_ruby::Settings,
    /// Where the console log and the snippets of consoles are kept. It is made if it is missing, and what is
    /// in it may be evaluated.
    pub state: PathBuf,
    /// Which files may be evaluated besides.
    pub reach: Reach,
    /// The SketchUp to work with, if there is one, and whether code is evaluated there.
    pub sketchup: Option<(Arc<dyn SketchUp>, Evaluates)>,
    /// Parlor's own tools and what they may use, where they are on.
    pub tools: Option<(Toolbox, Context)>,
    /// Tells the time.
    pub clock: Arc<dyn Clock>,
    /// Spells a moment as people here read it: `2026-03-04T12:00:00.123`.
    pub spell: fn(Timestamp) -> String,
}

/// Where code is evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evaluates {
    /// In SketchUp, where its model is.
    There,
    /// In parlor's own Ruby.
    Here,
}

/// A SketchUp that is somewhere else. Chosen at start-up, hence used as `dyn`.
#[async_trait]
pub trait SketchUp: Send + Sync {
    /// Has `work` done and gives back its result, a JSON object, as it was written.
    ///
    /// - Called for one piece of work at a time.
    /// - What may have been done is never asked for again.
    async fn perform(&self, caller: &Caller, work: &Work) -> Result<String, ModelFailure>;

    /// The same SketchUp for the lines of one console, which has a connection there for as long as this is
    /// kept. None where consoles are not forwarded.
    fn console(&self) -> Option<Arc<dyn SketchUp>>;
}

/// The workshop. Clones are the same one.
#[derive(Clone)]
pub struct Workshop {
    shop: Arc<Shop>,
}

/// What all callers share.
struct Shop {
    ruby: RubyHost,
    /// Whoever holds it has Ruby and SketchUp to itself.
    lane: Mutex<()>,
    reach: Reach,
    sketchup: Option<(Arc<dyn SketchUp>, Evaluates)>,
    tools: Option<(Toolbox, Context)>,
    tool_places: Semaphore,
    console: Console,
    sessions: Sessions,
    calls: Calls,
    closing: CancellationToken,
}

impl Workshop {
    /// Opens a workshop. Call within a runtime whose threads live as long as the program.
    pub fn open(means: WorkshopMeans) -> io::Result<Self> {
        let WorkshopMeans { ruby, state, reach, sketchup, tools, clock, spell } = means;
        let console = Console::open(&state, Arc::clone(&clock), spell)?;
        let sessions = Sessions::open(&state, clock, spell)?;
        let closing = CancellationToken::new();
        let tools = tools.map(|(tools, context)| (tools, Context { cancel: closing.clone(), ..context }));
        let shop = Shop {
            ruby: RubyHost::new(ruby),
            lane: Mutex::new(()),
            reach: reach.with(state),
            sketchup,
            tools,
            tool_places: Semaphore::new(MAX_TOOL_CALLS),
            console,
            sessions,
            calls: Calls::default(),
            closing,
        };
        Ok(Self { shop: Arc::new(shop) })
    }

    /// A place for one connection. `Q` is its name for a question.
    pub fn bench<Q>(&self) -> Workbench<Q> {
        Workbench::new(Arc::clone(&self.shop))
    }

    /// Ends everything. Calls that run or wait are answered, and so are all that come later.
    pub async fn close(&self) {
        self.shop.closing.cancel();
        self.shop.ruby.stop().await;
        if let Some((_, context)) = &self.shop.tools {
            context.shells.end_all().await;
        }
        self.shop.console.end();
    }
}

impl fmt::Debug for Workshop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Workshop(…)")
    }
}

#[cfg(test)]
mod tests;
