//! Commands: in the foreground, where the call waits for the end, and in the background.

mod background;
mod capture;
mod command;
mod foreground;
mod journal;
mod letters;
mod processes;

pub use background::{BACKGROUND_KEPT, BACKGROUND_RUNNING, Shells, Status};
pub use capture::SHELL_OUTPUT_BYTES;
pub use command::{COMMAND_BYTES, SHELL_TIMEOUT, SHELL_TIMEOUT_MAX, Shell};
pub use foreground::LIVE_BYTES;
pub use journal::{BACKGROUND_BYTES, BACKGROUND_READ_BYTES};
pub use processes::{BACKGROUND_WAIT_MAX, Processes};

use std::time::Duration;

use parlor_process::SpawnError;
use parlor_vocab::{Ending, Failure};

use crate::code::{LIMIT_REACHED, NOT_FOUND, TOOL_ERROR, failure, in_words, invalid};

/// How long a command that is stopped, or whose session ends, may take before it is killed. Short
/// enough that a program which is told to end is gone within a second, commands and all.
pub const STOP_GRACE: Duration = Duration::from_millis(500);

/// How many reports of a process may wait. A few pieces: the process waits when they are full.
const REPORTS: usize = 4;

/// How a command ended, in the words in which every result says it.
fn ending_in_words(ending: Ending) -> String {
    match ending {
        Ending::Code(code) => format!("exit code {code}"),
        Ending::Signal(signal) => format!("killed by signal {signal}"),
        Ending::Terminated => "terminated".to_owned(),
        Ending::Unknown => "ended, nobody knows how".to_owned(),
    }
}

/// Why a command could not be started. `folder` is the working folder as it is known outside.
fn not_started(error: SpawnError, folder: &str) -> Failure {
    match error {
        SpawnError::NulByte(_) => invalid("the command or its environment holds a NUL byte"),
        SpawnError::RelativeFolder(_) => invalid(format!("the working folder `{folder}` is not absolute")),
        SpawnError::Folder { errno, .. } => {
            failure(NOT_FOUND, format!("cannot enter the working folder `{folder}`: {}", in_words(errno)))
        }
        SpawnError::Program { program, errno } => {
            failure(TOOL_ERROR, format!("cannot run `{program}`: {}", in_words(errno)))
        }
        SpawnError::System { attempt, errno } => {
            failure(LIMIT_REACHED, format!("cannot {attempt}: {}", in_words(errno)))
        }
    }
}
