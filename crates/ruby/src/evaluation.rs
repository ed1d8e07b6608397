//! What can be asked of the host.

use std::path::PathBuf;

use tokio_util::sync::CancellationToken;

/// Code to evaluate.
#[derive(Clone, Debug)]
pub struct Evaluation {
    /// The code, and in which manner.
    pub source: RubySource,
    /// Ends the call. One that waits leaves the queue; one that runs costs the worker.
    pub cancel: CancellationToken,
}

impl Evaluation {
    /// An evaluation that nobody cancels.
    pub fn new(source: RubySource) -> Self {
        Self { source, cancel: CancellationToken::new() }
    }
}

/// Code, and the manner of its evaluation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RubySource {
    /// Code without a file. It has a scope of its own: its local variables end with it, while
    /// instance variables, methods and constants stay in the `SupexRuntime::BridgeServer` that is
    /// its `self`. The value is shown by `to_s`.
    Snippet {
        /// The code.
        code: String,
    },
    /// A file, at the top level, in the scope that all files and consoles share. The value is shown
    /// by `to_s`.
    File {
        /// Where the content is from, for `__FILE__`, `require_relative` and backtraces.
        path: PathBuf,
        /// The code, as bytes: it may name its own encoding.
        content: Vec<u8>,
    },
    /// A line from a console: as a file, but the value is shown by `inspect`.
    Console {
        /// The name of the snippet, for `__FILE__` and backtraces.
        path: PathBuf,
        /// The code.
        code: String,
    },
}

impl RubySource {
    /// How many bytes of code it is.
    pub(crate) fn size(&self) -> usize {
        match self {
            Self::Snippet { code } | Self::Console { code, .. } => code.len(),
            Self::File { content, .. } => content.len(),
        }
    }
}
