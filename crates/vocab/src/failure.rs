//! What went wrong in a run or in a tool call.

use std::fmt;

/// What went wrong, for programs and for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Tells programs which failure it is.
    pub code: FailureCode,
    /// A sentence for people.
    pub message: String,
    /// Whether the same again may succeed.
    pub retryable: bool,
}

/// Defines [`FailureCode`] with one spelling for each code.
macro_rules! failure_codes {
    ($($(#[$doc:meta])* $variant:ident = $text:literal,)*) => {
        /// Tells programs which failure it is. Every code has one spelling, here; the log and all doors use it.
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        pub enum FailureCode {
            $($(#[$doc])* $variant,)*
            /// A code of an agent's own script, or one that another version of parlor recorded.
            Custom(Box<str>),
        }

        impl FailureCode {
            /// The code's spelling.
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$variant => $text,)*
                    Self::Custom(text) => text,
                }
            }
        }

        impl From<&str> for FailureCode {
            fn from(text: &str) -> Self {
                match text {
                    $($text => Self::$variant,)*
                    other => Self::Custom(other.into()),
                }
            }
        }

        #[cfg(test)]
        const KNOWN: &[FailureCode] = &[$(FailureCode::$variant,)*];
    };
}

failure_codes! {
    /// The program ended in the middle of the run, or of the call.
    RunInterrupted = "RUN_INTERRUPTED",
    /// Somebody stopped the run that the call belongs to.
    Cancelled = "CANCELLED",
    /// Somebody stopped what was going on.
    Stopped = "STOPPED",
    /// What happened could not be recorded.
    LogUnavailable = "LOG_UNAVAILABLE",
    /// The working folder of the session cannot be used.
    FolderUnusable = "FOLDER_UNUSABLE",
    /// A part of parlor panicked.
    InternalError = "INTERNAL_ERROR",
    /// The local agent was told to fail.
    Failed = "FAILED",

    /// The input does not fit the tool.
    InvalidInput = "INVALID_INPUT",
    /// There is no such file, folder or process.
    NotFound = "NOT_FOUND",
    /// The path leads out of the allowed folders.
    PathRefused = "PATH_REFUSED",
    /// Files or links on the way changed again and again while they were opened.
    PathChanged = "PATH_CHANGED",
    /// It is of a kind that is not handled: a folder, a device, a binary file.
    Unsupported = "UNSUPPORTED",
    /// The system refused: permissions, a full disk, a program that cannot be run.
    ToolError = "TOOL_ERROR",
    /// No tool has that name.
    UnknownTool = "UNKNOWN_TOOL",
    /// It is larger than the tool's limit.
    TooLarge = "TOO_LARGE",
    /// The text to replace is not there, or not as often as was said.
    EditMismatch = "EDIT_MISMATCH",
    /// As many background processes run as may run.
    LimitReached = "LIMIT_REACHED",
    /// It took too long and was ended.
    Timeout = "TIMEOUT",

    /// No model of that name is configured.
    UnknownModel = "UNKNOWN_MODEL",
    /// The provider cannot be reached, or does not answer in a way that can be read.
    ModelUnavailable = "MODEL_UNAVAILABLE",
    /// The provider has too much to do.
    ModelBusy = "MODEL_BUSY",
    /// The provider refused the request.
    ModelRefused = "MODEL_REFUSED",
    /// The provider does not accept the key or the login.
    ModelAuth = "MODEL_AUTH",
    /// The settings of the model cannot be used.
    ModelSettings = "MODEL_SETTINGS",
    /// The conversation is longer than the model can read.
    ContextOverflow = "CONTEXT_OVERFLOW",
    /// The run has taken as many steps as it may.
    StepLimit = "STEP_LIMIT",
    /// The run has used as many tokens as it may.
    TokenLimit = "TOKEN_LIMIT",
    /// The run has taken as long as it may.
    TimeLimit = "TIME_LIMIT",
    /// The run has cost as much as it may.
    CostLimit = "COST_LIMIT",
    /// The session has cost as much as it may.
    SessionSpendLimit = "SESSION_SPEND_LIMIT",
    /// All sessions together have cost as much as they may today.
    DaySpendLimit = "DAY_SPEND_LIMIT",
    /// The model asked for more calls at once than are carried out.
    TooManyCalls = "TOO_MANY_CALLS",
    /// The answer was cut at its limit.
    AnswerTooLong = "ANSWER_TOO_LONG",
    /// The model said nothing.
    EmptyAnswer = "EMPTY_ANSWER",
    /// A step of a script is longer than it may be.
    ScriptStepTooLarge = "SCRIPT_STEP_TOO_LARGE",
}

impl fmt::Display for FailureCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_read_back_as_it_is_spelled() {
        for code in KNOWN {
            assert_eq!(FailureCode::from(code.as_str()), *code);
        }
        assert_eq!(FailureCode::from("MINE"), FailureCode::Custom("MINE".into()));
        assert_eq!(FailureCode::from("MINE").to_string(), "MINE");
    }
}
