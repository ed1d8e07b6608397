//! Settings of the Ruby host.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parlor_process::Sandbox;

use crate::{MEMORY_LIMIT, TIME_LIMIT};

/// How workers are started, and their limits.
#[derive(Clone, Debug)]
pub struct RubySettings {
    /// The Ruby program: a path if it has a slash, else a name that is searched in the `PATH` of `env`. Relative
    /// folders in that `PATH` are ignored.
    pub program: String,
    /// The absolute working folder of workers.
    pub folder: PathBuf,
    /// The complete environment of workers; they inherit nothing. `SUPEX_STDLIB_PATH` names a file that each worker
    /// loads at its start.
    pub env: Vec<(String, String)>,
    /// The time limit of one evaluation.
    pub time_limit: Duration,
    /// The limit in bytes for a worker's private writable memory (`RLIMIT_DATA`). Each process that it starts has the
    /// same limit of its own.
    pub memory_limit: u64,
    /// Confines workers. `None`: they can do what the user can do.
    pub sandbox: Option<Arc<Sandbox>>,
}

impl RubySettings {
    /// `ruby` from the `PATH` of `env`, with the default limits.
    pub fn new(folder: PathBuf, env: Vec<(String, String)>) -> Self {
        Self {
            program: "ruby".to_owned(),
            folder,
            env,
            time_limit: TIME_LIMIT,
            memory_limit: MEMORY_LIMIT,
            sandbox: None,
        }
    }
}
