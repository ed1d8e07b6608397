//! Commands: in the foreground, where the call waits for the end, and in the background.

mod background;
mod capture;
mod command;
mod foreground;
mod journal;
mod letters;
mod processes;

pub use background::{BACKGROUND_KEPT, BACKGROUND_RUNNING, BackgroundStatus, Shells};
pub use capture::SHELL_OUTPUT_BYTES;
pub use command::{COMMAND_BYTES, SHELL_TIMEOUT, SHELL_TIMEOUT_MAX, ShellTool};
pub use foreground::LIVE_BYTES;
pub use journal::{BACKGROUND_BYTES, BACKGROUND_READ_BYTES};
pub use processes::{BACKGROUND_WAIT_MAX, ProcessesTool};

use std::time::Duration;

use parlor_process::SpawnError;
use parlor_vocab::{Failure, FailureCode, ProcessExit};

use crate::code::{failure, in_words, invalid};

/// How long a command that is stopped, or whose session ends, may take before it is killed. Short
/// enough that a program which is told to end is gone within a second, commands and all.
pub const STOP_GRACE: Duration = Duration::from_millis(500);

/// How many reports of a process may wait. A few pieces: the process waits when they are full.
const REPORTS: usize = 4;

/// How a command ended, in the words in which every result says it.
fn ending_in_words(ending: ProcessExit) -> String {
    match ending {
        ProcessExit::Code(code) => format!("exit code {code}"),
        ProcessExit::Signal(signal) => format!("killed by signal {signal}"),
        ProcessExit::Terminated => "terminated".to_owned(),
        ProcessExit::Unknown => "ended, nobody knows how".to_owned(),
    }
}

/// Why a command could not be started. `folder` is the working folder as it is known outside.
fn not_started(error: SpawnError, folder: &str) -> Failure {
    match error {
        SpawnError::NulByte(_) => invalid("the command or its environment holds a NUL byte"),
        SpawnError::RelativeFolder(_) => invalid(format!("the working folder `{folder}` is not absolute")),
        SpawnError::Folder { errno, .. } => failure(
            FailureCode::NotFound,
            format!("cannot enter the working folder `{folder}`: {}", in_words(errno)),
        ),
        SpawnError::Program { program, errno } => {
            failure(FailureCode::ToolError, format!("cannot run `{program}`: {}", in_words(errno)))
        }
        SpawnError::System { attempt, errno } => {
            failure(FailureCode::LimitReached, format!("cannot {attempt}: {}", in_words(errno)))
        }
    }
}
