//! Failures of runs and tool calls, and the codes of these failures.

use std::fmt;

/// What went wrong in a run or a tool call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The kind of failure, for programs.
    pub code: FailureCode,
    /// A sentence for people.
    pub message: String,
    /// Whether a repetition may succeed.
    pub retryable: bool,
}

/// Defines [`FailureCode`] with one spelling for each code.
macro_rules! failure_codes {
    ($($(#[$doc:meta])* $variant:ident = $text:literal,)*) => {
        /// The kind of a failure. The log and all doors use the spelling that this enum defines.
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        pub enum FailureCode {
            $($(#[$doc])* $variant,)*
            /// A code from an agent's script, or one that another version of parlor recorded.
            Custom(Box<str>),
        }

        impl FailureCode {
            /// The code as the log and the doors write it.
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
    /// The program ended during the run or the call.
    RunInterrupted = "RUN_INTERRUPTED",
    /// The run that made the call was stopped.
    Cancelled = "CANCELLED",
    /// A client stopped the work.
    Stopped = "STOPPED",
    /// The log could not record the run's events.
    LogUnavailable = "LOG_UNAVAILABLE",
    /// The session's working folder cannot be used.
    FolderUnusable = "FOLDER_UNUSABLE",
    /// A part of parlor panicked.
    InternalError = "INTERNAL_ERROR",
    /// The user told the built-in test agent to fail.
    Failed = "FAILED",

    /// The tool does not accept the input.
    InvalidInput = "INVALID_INPUT",
    /// The file, folder or process does not exist.
    NotFound = "NOT_FOUND",
    /// The path is outside of the allowed folders.
    PathRefused = "PATH_REFUSED",
    /// Folders or links on the path kept changing while the tool opened the file.
    PathChanged = "PATH_CHANGED",
    /// The tool does not handle this kind of file: a folder, a device, a binary file.
    Unsupported = "UNSUPPORTED",
    /// The operating system reported an error: permissions, a full disk, a program that cannot be run.
    ToolError = "TOOL_ERROR",
    /// No tool has that name.
    UnknownTool = "UNKNOWN_TOOL",
    /// The file or the result is larger than the tool's limit.
    TooLarge = "TOO_LARGE",
    /// The file does not contain the text to replace, or contains it more or less often than expected.
    EditMismatch = "EDIT_MISMATCH",
    /// The limit of background processes is reached.
    LimitReached = "LIMIT_REACHED",
    /// The policy or a person refused the call.
    PolicyDenied = "POLICY_DENIED",
    /// The call took longer than its time limit and was ended.
    Timeout = "TIMEOUT",

    /// No model with this name is configured.
    UnknownModel = "UNKNOWN_MODEL",
    /// The provider cannot be reached, or its answer cannot be parsed.
    ModelUnavailable = "MODEL_UNAVAILABLE",
    /// The provider is overloaded or limits the request rate.
    ModelBusy = "MODEL_BUSY",
    /// The provider refused the request.
    ModelRefused = "MODEL_REFUSED",
    /// The provider rejected the key or the login.
    ModelAuth = "MODEL_AUTH",
    /// The model's settings are invalid.
    ModelSettings = "MODEL_SETTINGS",
    /// The conversation is larger than the model's context window.
    ContextOverflow = "CONTEXT_OVERFLOW",
    /// The run reached its limit of steps.
    StepLimit = "STEP_LIMIT",
    /// The run reached its limit of tokens.
    TokenLimit = "TOKEN_LIMIT",
    /// The run reached its time limit.
    TimeLimit = "TIME_LIMIT",
    /// The run reached its cost limit.
    CostLimit = "COST_LIMIT",
    /// The session reached its cost limit.
    SessionSpendLimit = "SESSION_SPEND_LIMIT",
    /// All sessions together reached the cost limit of the day.
    DaySpendLimit = "DAY_SPEND_LIMIT",
    /// The model requested more tool calls in one answer than parlor carries out.
    TooManyCalls = "TOO_MANY_CALLS",
    /// The model's answer was cut off at its length limit.
    AnswerTooLong = "ANSWER_TOO_LONG",
    /// The model's answer was empty.
    EmptyAnswer = "EMPTY_ANSWER",
    /// A step of a script is larger than its limit.
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
    fn every_code_is_parsed_from_its_own_spelling() {
        for code in KNOWN {
            assert_eq!(FailureCode::from(code.as_str()), *code);
        }
        assert_eq!(FailureCode::from("MINE"), FailureCode::Custom("MINE".into()));
        assert_eq!(FailureCode::from("MINE").to_string(), "MINE");
    }
}
