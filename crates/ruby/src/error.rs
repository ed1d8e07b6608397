//! Why an evaluation failed, with the texts that callers see.

use std::time::Duration;

use crate::hint;

/// Why a call has no value.
///
/// Not `#[non_exhaustive]`, so that a door without a code for a new case does not compile.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RubyError {
    /// The code raised an exception of any class.
    #[error("{}", .0.message)]
    Raised(Box<RubyException>),
    /// The code, or a file that it loaded, has a syntax error.
    #[error("{}", .0.message)]
    Syntax(Box<RubyException>),
    /// The code is longer than [`MAX_CODE_BYTES`](crate::MAX_CODE_BYTES). It did not run.
    #[error("the code has {bytes} bytes; {limit} are the most that is taken")]
    CodeTooLarge {
        /// The size of the code.
        bytes: usize,
        /// The largest allowed size.
        limit: usize,
    },
    /// The code ran, and the text of its value is longer than
    /// [`MAX_VALUE_BYTES`](crate::MAX_VALUE_BYTES).
    #[error("the value has {bytes} bytes as text; {limit} are the most that is given back")]
    ValueTooLarge {
        /// The size of the text.
        bytes: u64,
        /// The largest allowed size.
        limit: usize,
    },
    /// The code took too long. It was stopped, and its worker was ended.
    #[error("execution expired: the code took longer than {} s", .limit.as_secs_f32())]
    TimedOut {
        /// The longest allowed time.
        limit: Duration,
    },
    /// The call was cancelled.
    #[error("{}", if *.started { "execution was cancelled" } else { "execution was cancelled before it began" })]
    Cancelled {
        /// Whether the code had started to run. If so, its worker was ended.
        started: bool,
    },
    /// The worker was lost before it could answer. It is unknown how much of the code ran.
    #[error("worker exited ({reason}); the code may have begun")]
    WorkerLost {
        /// How the worker was lost.
        reason: String,
    },
    /// The Ruby program cannot be executed.
    #[error("Ruby is not available: cannot run {program:?}: {reason}")]
    NoRuby {
        /// The program from the settings.
        program: String,
        /// The system's error.
        reason: String,
    },
    /// The program was executed, but no worker came up.
    #[error("the Ruby worker did not start: {reason}")]
    NotStarted {
        /// What happened instead.
        reason: String,
    },
    /// [`MAX_WAITING`](crate::MAX_WAITING) calls are waiting already.
    #[error("{limit} evaluations are waiting for their turn, which is the limit")]
    TooManyWaiting {
        /// How many may wait.
        limit: usize,
    },
    /// The host was stopped, so nothing runs any more.
    #[error("{}", if *.started { STOPPED_WHILE_RUNNING } else { "the server is stopping; the code has not run" })]
    Stopped {
        /// Whether the code had started to run. If so, it was ended with its worker.
        started: bool,
    },
}

const STOPPED_WHILE_RUNNING: &str =
    "the server stopped while the code ran: the code had begun, and was ended before its end";

impl RubyError {
    /// Whether everything that earlier calls defined is lost.
    pub fn is_state_lost(&self) -> bool {
        match self {
            Self::TimedOut { .. } | Self::WorkerLost { .. } | Self::Cancelled { started: true } => true,
            Self::Raised(_)
            | Self::Syntax(_)
            | Self::CodeTooLarge { .. }
            | Self::ValueTooLarge { .. }
            | Self::Cancelled { started: false }
            | Self::NoRuby { .. }
            | Self::NotStarted { .. }
            | Self::TooManyWaiting { .. }
            | Self::Stopped { .. } => false,
        }
    }

    /// What the user can do about the error, if anything.
    pub fn hint(&self) -> Option<&str> {
        match self {
            Self::Raised(raised) | Self::Syntax(raised) => raised.hint.as_deref(),
            Self::TimedOut { .. } | Self::WorkerLost { .. } | Self::Cancelled { started: true } => {
                Some(hint::LOST_STATE)
            }
            Self::CodeTooLarge { .. } => Some("put the code into files and `load` them"),
            Self::ValueTooLarge { .. } => {
                Some("the code has run; write the value to a file, or ask for a part of it")
            }
            Self::NoRuby { .. } => Some(
                "install Ruby 3.0 or later (Debian: apt-get install ruby), or set PARLOR_RUBY to its path",
            ),
            Self::NotStarted { .. } => {
                Some("check that PARLOR_RUBY, if set, is a Ruby of version 3.0 or later")
            }
            Self::TooManyWaiting { .. } => Some("try again when some are done"),
            Self::Stopped { started: true } => Some(
                "check what the code has changed before you run it again; the next server starts a new Ruby",
            ),
            Self::Cancelled { started: false } | Self::Stopped { started: false } => None,
        }
    }
}

/// A Ruby exception.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RubyException {
    /// The name of the exception's class.
    pub class: String,
    /// The message, which may have several lines.
    pub message: String,
    /// The file in which the exception was raised, or that has the syntax error; `(eval)` for a snippet.
    pub file: Option<String>,
    /// The line in that file.
    pub line: Option<u64>,
    /// The backtrace without the worker's own frames, the innermost first.
    pub backtrace: Vec<String>,
    /// What the user can do about the exception.
    pub hint: Option<String>,
}
