//! The errors of a script file, with their location.

use std::fmt;
use std::io;
use std::path::PathBuf;

use parlor_vocab::truncate_chars;

use crate::{
    MAX_PATTERN_BYTES, MAX_SCRIPT_BYTES, MAX_SCRIPT_DEPTH, MAX_SCRIPT_PATTERNS, MAX_SCRIPT_STEPS, MAX_WAIT,
};

use super::template::UnknownCapture;

/// How many characters of a pattern an error quotes.
const MAX_PATTERN_CHARS: usize = 80;

/// Why a script cannot be loaded.
#[derive(Debug, thiserror::Error)]
#[error("{}: {location}{fault}", file.display())]
pub struct ScriptError {
    /// The path of the script.
    pub file: PathBuf,
    /// Where in the script.
    pub location: ScriptLocation,
    /// What is wrong there.
    pub fault: ScriptFault,
}

/// A part of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScriptLocation {
    /// The script as a whole.
    File,
    /// A part of an `[[on]]` table.
    On {
        /// The number of the table, counted from 1.
        number: usize,
        /// The pattern, if the table has one.
        pattern: Option<String>,
        /// The path of the step, counted from 1: the step, then the step within its subagent, and so on. Empty for
        /// the table itself.
        step: Vec<usize>,
    },
    /// A part of the `[otherwise]` table.
    Otherwise {
        /// The path of the step, as in [`On`](Self::On).
        step: Vec<usize>,
    },
}

impl fmt::Display for ScriptLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let step = match self {
            Self::File => return Ok(()),
            Self::On { number, pattern, step } => {
                write!(f, "[[on]] number {number}")?;
                if let Some(pattern) = pattern {
                    write!(f, " (match = {:?})", truncate_chars(pattern, MAX_PATTERN_CHARS))?;
                }
                step
            }
            Self::Otherwise { step } => {
                f.write_str("[otherwise]")?;
                step
            }
        };
        for (depth, number) in step.iter().enumerate() {
            write!(f, ", {} {number}", if depth == 0 { "step" } else { "its step" })?;
        }
        f.write_str(": ")
    }
}

/// What can be wrong with a part of a script.
#[derive(Debug, thiserror::Error)]
pub enum ScriptFault {
    /// The file cannot be read.
    #[error("cannot be read: {0}")]
    Unreadable(io::Error),
    /// The file is larger than [`MAX_SCRIPT_BYTES`].
    #[error("a script has at most {MAX_SCRIPT_BYTES} bytes")]
    TooLarge,
    /// The file is not valid TOML, or has unknown tables.
    #[error("line {line}: {message}")]
    Line {
        /// The line, counted from 1.
        line: usize,
        /// The text of the TOML parser.
        message: String,
    },
    /// A member is unknown, missing or of the wrong type.
    #[error("{0}")]
    Shape(String),
    /// A pattern is not a regular expression.
    #[error("the pattern cannot be used: {0}")]
    Pattern(String),
    /// A pattern is larger than [`MAX_PATTERN_BYTES`] once it is compiled.
    #[error("the pattern needs more than {MAX_PATTERN_BYTES} bytes")]
    PatternTooLarge,
    /// A text refers to a capture that the pattern does not have.
    #[error("{0}")]
    Capture(String),
    /// A step has no kind.
    #[error("a step is one of think, say, wait_ms, usage, tool, subagent and fail")]
    NoKind,
    /// A step has two kinds.
    #[error("`{0}` and `{1}` are two steps")]
    TwoKinds(&'static str, &'static str),
    /// A step has a member of another kind.
    #[error("`{member}` does not belong to `{kind}`")]
    Stray {
        /// The name of the member.
        member: &'static str,
        /// The kind of the step.
        kind: &'static str,
    },
    /// A step lacks a member.
    #[error("`{kind}` needs `{member}`")]
    Missing {
        /// The kind of the step.
        kind: &'static str,
        /// The name of the member.
        member: &'static str,
    },
    /// A number that TOML has and JSON has not.
    #[error("nan and inf cannot be given to a tool: its input is JSON")]
    NotJson,
    /// A wait is longer than [`MAX_WAIT`].
    #[error("`wait_ms` is at most {}", MAX_WAIT.as_millis())]
    WaitTooLong,
    /// There are more than [`MAX_SCRIPT_PATTERNS`].
    #[error("a script has at most {MAX_SCRIPT_PATTERNS} [[on]]")]
    TooManyPatterns,
    /// There are more than [`MAX_SCRIPT_STEPS`].
    #[error("a script has at most {MAX_SCRIPT_STEPS} steps")]
    TooManySteps,
    /// Subagents are nested deeper than [`MAX_SCRIPT_DEPTH`].
    #[error("subagents are at most {MAX_SCRIPT_DEPTH} deep")]
    TooDeep,
}

impl From<UnknownCapture> for ScriptFault {
    fn from(unknown: UnknownCapture) -> Self {
        Self::Capture(unknown.to_string())
    }
}

impl From<toml::de::Error> for ScriptFault {
    fn from(error: toml::de::Error) -> Self {
        Self::Shape(error.message().to_owned())
    }
}
