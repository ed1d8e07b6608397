//! How an exec server is started.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::process::Command;

use super::ExecServerError;
use crate::child::process::{SpawnedChild, spawn};

/// How long a server may run on after its input has closed. It only has to kill the processes that it started.
const EXIT_GRACE: Duration = Duration::from_secs(2);

/// How to start an exec server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecServerLaunchCommand {
    /// The program: a path, or a name to be looked up in `PATH`.
    pub program: PathBuf,
    /// Its arguments, without the program itself.
    pub args: Vec<String>,
}

impl ExecServerLaunchCommand {
    /// Starts `program` without arguments.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self { program: program.into(), args: Vec::new() }
    }
}

pub(super) fn launch(command: ExecServerLaunchCommand) -> Result<SpawnedChild, ExecServerError> {
    let ExecServerLaunchCommand { program, args } = command;
    let mut command = Command::new(&program);
    command.args(args);
    spawn(command, EXIT_GRACE).map_err(|error| ExecServerError::Spawn { program, source: Arc::new(error) })
}
