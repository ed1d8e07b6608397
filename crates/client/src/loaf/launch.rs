//! How a loaf server is started.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::process::Command;

use super::LoafError;
use crate::child::process::{SpawnedChild, spawn};

/// How long a server may run on after `system.shutdown`, or after its input has closed.
pub const EXIT_WAIT: Duration = Duration::from_secs(5);

/// How to start a server.
///
/// ```
/// use parlor_client::loaf::LoafLaunch;
///
/// assert_eq!(LoafLaunch::new("loaf").args, ["rpc"]);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoafLaunch {
    /// The program: a path, or a name to be looked up in `PATH`.
    pub program: PathBuf,
    /// Its arguments; `rpc` by default.
    pub args: Vec<String>,
    /// Environment variables in addition to those of this program.
    pub env: Vec<(String, String)>,
    /// The working folder; this program's own by default.
    pub cwd: Option<PathBuf>,
}

impl LoafLaunch {
    /// Starts `program` with the argument `rpc`, as `loaf` needs it.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self { program: program.into(), args: vec!["rpc".to_owned()], env: Vec::new(), cwd: None }
    }
}

pub(super) fn launch(launch: &LoafLaunch) -> Result<SpawnedChild, LoafError> {
    let mut command = Command::new(&launch.program);
    command.args(&launch.args).envs(launch.env.iter().cloned());
    if let Some(folder) = &launch.cwd {
        command.current_dir(folder);
    }
    spawn(command, EXIT_WAIT)
        .map_err(|error| LoafError::Spawn { program: launch.program.clone(), source: Arc::new(error) })
}
