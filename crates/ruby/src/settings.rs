//! How workers are started and how far they may go.

use std::path::PathBuf;
use std::time::Duration;

use crate::{MEMORY_LIMIT, TIME_LIMIT};

/// How workers are started and how far they may go.
#[derive(Clone, Debug)]
pub struct RubySettings {
    /// The RubyTool program: a path if it holds a slash, else looked up in the `PATH` of `env`, where folders that are not
    /// named in full do not count.
    pub program: String,
    /// The working folder of workers. Must be absolute.
    pub folder: PathBuf,
    /// The complete environment of workers: nothing is inherited. `SUPEX_STDLIB_PATH` names a file
    /// to load at their start.
    pub env: Vec<(String, String)>,
    /// How long one evaluation may take.
    pub time_limit: Duration,
    /// How many bytes a worker may have in memory that it can write to and shares with nobody. For
    /// each process that it starts the same holds anew.
    pub memory_limit: u64,
}

impl RubySettings {
    /// `ruby` from the `PATH` of `env`, with the usual limits.
    pub fn new(folder: PathBuf, env: Vec<(String, String)>) -> Self {
        Self { program: "ruby".to_owned(), folder, env, time_limit: TIME_LIMIT, memory_limit: MEMORY_LIMIT }
    }
}
