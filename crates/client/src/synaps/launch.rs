//! How a child is started.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::process::Command;

use super::SynapsError;
use crate::child::process::{SpawnedChild, spawn};

/// How long a child may take to send `ready`, by default.
pub const READY_WAIT: Duration = Duration::from_secs(10);

/// How long a child may run on after `shutdown`, by default.
pub const EXIT_WAIT: Duration = Duration::from_secs(5);

/// How long a child may run on after its input has closed.
const EXIT_GRACE: Duration = Duration::from_secs(2);

/// How to start a child.
///
/// ```
/// use parlor_client::synaps::SynapsLaunch;
///
/// let launch = SynapsLaunch { model: Some("local".to_owned()), ..SynapsLaunch::new("synaps") };
/// assert_eq!(launch.args, ["rpc"]);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SynapsLaunch {
    /// The program: a path, or a name to be looked up in `PATH`.
    pub program: PathBuf,
    /// Its arguments before the flags below; `rpc` by default.
    pub args: Vec<String>,
    /// The session to continue: `--continue`.
    pub resume: Option<String>,
    /// The system instructions, or a file with them: `--system`.
    pub system: Option<String>,
    /// The id of the model: `--model`.
    pub model: Option<String>,
    /// The name of the profile: `--profile`.
    pub profile: Option<String>,
    /// Environment variables in addition to those of this program.
    pub env: Vec<(String, String)>,
    /// The working folder; this program's own by default.
    pub cwd: Option<PathBuf>,
    /// How long it may take to send `ready`; [`READY_WAIT`] by default.
    pub ready_wait: Duration,
    /// How long it may run on after `shutdown`; [`EXIT_WAIT`] by default.
    pub exit_wait: Duration,
}

impl SynapsLaunch {
    /// Starts `program` with the argument `rpc`, as `synaps` needs it.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            args: vec!["rpc".to_owned()],
            resume: None,
            system: None,
            model: None,
            profile: None,
            env: Vec::new(),
            cwd: None,
            ready_wait: READY_WAIT,
            exit_wait: EXIT_WAIT,
        }
    }

    /// All arguments. The flags are in the order in which known clients write them.
    fn arguments(&self) -> Vec<String> {
        let flags = [
            ("--continue", &self.resume),
            ("--system", &self.system),
            ("--model", &self.model),
            ("--profile", &self.profile),
        ];
        let flags = flags.into_iter().filter_map(|(flag, value)| Some((flag, value.as_ref()?)));
        let flag_args = flags.flat_map(|(flag, value)| {
            // As an argument of its own, the value would be taken for a flag.
            if value.starts_with('-') {
                return vec![format!("{flag}={value}")];
            }
            vec![flag.to_owned(), value.clone()]
        });
        self.args.iter().cloned().chain(flag_args).collect()
    }
}

pub(super) fn launch(launch: &SynapsLaunch) -> Result<SpawnedChild, SynapsError> {
    let mut command = Command::new(&launch.program);
    command.args(launch.arguments()).envs(launch.env.iter().cloned());
    if let Some(folder) = &launch.cwd {
        command.current_dir(folder);
    }
    spawn(command, EXIT_GRACE)
        .map_err(|error| SynapsError::Spawn { program: launch.program.clone(), source: Arc::new(error) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_written_as_known_clients_write_them() {
        let text = |text: &str| Some(text.to_owned());
        let launch = SynapsLaunch {
            profile: text("work"),
            model: text("m"),
            system: text("- be brief"),
            resume: text("s"),
            ..SynapsLaunch::new("synaps")
        };
        let expected = ["rpc", "--continue", "s", "--system=- be brief", "--model", "m", "--profile", "work"];
        assert_eq!(launch.arguments(), expected);
        assert_eq!(SynapsLaunch::new("synaps").arguments(), ["rpc"]);
    }
}
