//! Why there is no value.

use std::time::Duration;

use crate::hint;

/// Why a call has no value.
///
/// Not `#[non_exhaustive]`: a missing arm is how doors learn that a new case needs a code.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RubyError {
    /// The code raised an exception, of whatever kind.
    #[error("{}", .0.message)]
    Raised(Box<Raised>),
    /// The code, or code that it has loaded, is no Ruby.
    #[error("{}", .0.message)]
    Syntax(Box<Raised>),
    /// The code is longer than [`MAX_CODE_BYTES`](crate::MAX_CODE_BYTES). It did not run.
    #[error("the code has {bytes} bytes; {limit} are the most that is taken")]
    CodeTooLarge {
        /// How long it is.
        bytes: usize,
        /// How long it may be.
        limit: usize,
    },
    /// The code ran, and the text of its value is longer than
    /// [`MAX_VALUE_BYTES`](crate::MAX_VALUE_BYTES).
    #[error("the value has {bytes} bytes as text; {limit} are the most that is given back")]
    ValueTooLarge {
        /// How long it is.
        bytes: u64,
        /// How long it may be.
        limit: usize,
    },
    /// The code took too long and was stopped, with its worker.
    #[error("execution expired: the code took longer than {} s", .limit.as_secs_f32())]
    TimedOut {
        /// How long it may take.
        limit: Duration,
    },
    /// The call was cancelled.
    #[error("{}", if *.started { "execution was cancelled" } else { "execution was cancelled before it began" })]
    Cancelled {
        /// Whether the code had begun to run. Then it was stopped, with its worker.
        started: bool,
    },
    /// The worker ended before it could answer. How far the code came is not known.
    #[error("worker exited ({reason})")]
    WorkerLost {
        /// How it ended.
        reason: String,
    },
    /// There is no Ruby to run the code.
    #[error("Ruby is not available: cannot run {program:?}: {reason}")]
    NoRuby {
        /// What was to be run.
        program: String,
        /// What the system said.
        reason: String,
    },
    /// There is a program, and it did not become a worker.
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
    /// The host was stopped.
    #[error("the Ruby host has stopped")]
    Stopped,
}

impl RubyError {
    /// Whether what earlier calls have defined is gone because of this.
    pub fn lost_state(&self) -> bool {
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
            | Self::Stopped => false,
        }
    }

    /// What the user can do about it, if there is something to say.
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
            Self::Cancelled { started: false } | Self::Stopped => None,
        }
    }
}

/// An exception.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Raised {
    /// The name of its class.
    pub class: String,
    /// Its message. May have several lines.
    pub message: String,
    /// The file in which it was raised, or which is no Ruby; `(eval)` for a snippet.
    pub file: Option<String>,
    /// The line in that file.
    pub line: Option<u64>,
    /// Its backtrace without the worker's own frames, the innermost first.
    pub backtrace: Vec<String>,
    /// What the user can do about it.
    pub hint: Option<String>,
}
