//! What can be wrong with a script, and where.

use std::fmt;
use std::io;
use std::path::PathBuf;

use crate::quote::cut;
use crate::{
    MAX_PATTERN_BYTES, MAX_SCRIPT_BYTES, MAX_SCRIPT_DEPTH, MAX_SCRIPT_PATTERNS, MAX_SCRIPT_STEPS, MAX_WAIT,
};

use super::template::UnknownCapture;

/// How much of a pattern is repeated to say which one is meant.
const MAX_PATTERN_CHARS: usize = 80;

/// Why a script cannot be performed.
#[derive(Debug, thiserror::Error)]
#[error("{}: {place}{flaw}", file.display())]
pub struct ScriptError {
    /// The file.
    pub file: PathBuf,
    /// Where in the file.
    pub place: ScriptLocation,
    /// What is wrong there.
    pub flaw: ScriptFault,
}

/// A part of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScriptLocation {
    /// No certain part.
    File,
    /// An `[[on]]`.
    On {
        /// Which one, from 1.
        number: usize,
        /// Its pattern, if it has one.
        pattern: Option<String>,
        /// The step, then the step within that subagent, and so on, from 1. Empty for the whole.
        step: Vec<usize>,
    },
    /// The `[otherwise]`.
    Otherwise {
        /// As in an `[[on]]`.
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
                    write!(f, " (match = {:?})", cut(pattern, MAX_PATTERN_CHARS))?;
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
    /// The file is not TOML, or not of this shape.
    #[error("line {line}: {message}")]
    Line {
        /// Where, from 1.
        line: usize,
        /// What was found and what was expected.
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
    /// A text asks for a capture that the pattern does not make.
    #[error("{0}")]
    Capture(String),
    /// A step does nothing.
    #[error("a step is one of think, say, wait_ms, usage, tool, subagent and fail")]
    NoKind,
    /// A step does two things.
    #[error("`{0}` and `{1}` are two steps")]
    TwoKinds(&'static str, &'static str),
    /// A member of one kind of step in another.
    #[error("`{member}` does not belong to `{kind}`")]
    Stray {
        /// The member.
        member: &'static str,
        /// What the step does.
        kind: &'static str,
    },
    /// A member is needed.
    #[error("`{kind}` needs `{member}`")]
    Missing {
        /// What the step does.
        kind: &'static str,
        /// The member.
        member: &'static str,
    },
    /// A number that TOML can say and JSON cannot.
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
