//! The code that the host evaluates.

use std::path::PathBuf;

use tokio_util::sync::CancellationToken;

/// Code to evaluate.
#[derive(Clone, Debug)]
pub struct Evaluation {
    /// The code, and how to evaluate it.
    pub source: RubySource,
    /// Cancels the call. A waiting call leaves the queue; for a running call, the worker is ended.
    pub cancel: CancellationToken,
}

impl Evaluation {
    /// An evaluation with a new token, which the caller may clone to cancel it.
    pub fn new(source: RubySource) -> Self {
        Self { source, cancel: CancellationToken::new() }
    }
}

/// Code, and how to evaluate it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RubySource {
    /// Code without a file. Its `self` is a `SupexRuntime::BridgeServer`, in which instance variables, methods and
    /// constants stay. Local variables last for one snippet. The value is shown by `to_s`.
    Snippet {
        /// The code.
        code: String,
    },
    /// A file, evaluated at the top level, in the scope that all files and consoles share. The value is shown by
    /// `to_s`.
    File {
        /// The path of the file, for `__FILE__`, `require_relative` and backtraces.
        path: PathBuf,
        /// The code, as bytes, because it may declare its own encoding.
        content: Vec<u8>,
    },
    /// A line from a console, evaluated like a file, but the value is shown by `inspect`.
    Console {
        /// The path of the saved line, for `__FILE__` and backtraces.
        path: PathBuf,
        /// The code.
        code: String,
    },
}

impl RubySource {
    /// The size of the code in bytes.
    pub(crate) fn size(&self) -> usize {
        match self {
            Self::Snippet { code } | Self::Console { code, .. } => code.len(),
            Self::File { content, .. } => content.len(),
        }
    }
}
