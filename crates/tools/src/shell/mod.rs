//! The `shell` and `processes` tools: commands in the foreground, where the call waits for the end, and in the
//! background.

mod background;
mod capture;
mod command;
mod foreground;
mod processes;
mod unread_output;
mod utf8;

pub use background::{BACKGROUND_KEPT, BACKGROUND_RUNNING, BackgroundProcesses, BackgroundStatus};
pub use capture::SHELL_OUTPUT_BYTES;
pub use command::{COMMAND_BYTES, SHELL_TIMEOUT, SHELL_TIMEOUT_MAX, ShellTool};
pub use foreground::LIVE_BYTES;
pub use processes::{BACKGROUND_WAIT_MAX, ProcessesTool};
pub use unread_output::{BACKGROUND_BYTES, BACKGROUND_READ_BYTES};

use std::time::Duration;

use parlor_process::SpawnError;
use parlor_vocab::{Failure, FailureCode, ProcessExit};

use crate::failure::{errno_text, failure, invalid};

/// How long a command may take to end after SIGTERM before it is killed. Short enough that a stopped server ends all
/// of its commands within a second.
pub const STOP_GRACE: Duration = Duration::from_millis(500);

/// The output of a command that wrote nothing, as results show it.
pub const NO_OUTPUT: &str = "[no output]";

/// How many reports of a process can be queued. When the queue is full, the process waits.
const REPORT_QUEUE: usize = 4;

/// How a command ended, as every result shows it.
fn exit_text(exit: ProcessExit) -> String {
    match exit {
        ProcessExit::Code(code) => format!("exit code {code}"),
        ProcessExit::Signal(signal) => format!("killed by signal {signal}"),
        ProcessExit::Terminated => "terminated".to_owned(),
        ProcessExit::Unknown => "ended, exit status unknown".to_owned(),
    }
}

/// The failure for a command that did not start. `folder` is the path of the working folder for the message.
fn spawn_failure(error: SpawnError, folder: &str) -> Failure {
    match error {
        SpawnError::NulByte(_) => invalid("the command or its environment holds a NUL byte"),
        SpawnError::RelativeFolder(_) => invalid(format!("the working folder `{folder}` is not absolute")),
        SpawnError::Folder { errno, .. } => failure(
            FailureCode::NotFound,
            format!("cannot enter the working folder `{folder}`: {}", errno_text(errno)),
        ),
        SpawnError::Program { program, errno } => {
            failure(FailureCode::ToolError, format!("cannot run `{program}`: {}", errno_text(errno)))
        }
        SpawnError::Sandbox(reason) => failure(
            FailureCode::Unsupported,
            format!("the command was not started, because its sandbox cannot be set up: {reason}"),
        ),
        SpawnError::System { attempt, errno } => {
            failure(FailureCode::LimitReached, format!("cannot {attempt}: {}", errno_text(errno)))
        }
    }
}
