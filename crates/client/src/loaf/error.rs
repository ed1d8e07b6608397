//! The errors of the loaf client.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// Why a call failed, or why there are no more events.
///
/// It can be cloned, because every handle on a connection learns why the connection ended.
#[derive(Clone, Debug, thiserror::Error)]
pub enum LoafError {
    /// The server's program could not be started.
    #[error("cannot start the server {}", program.display())]
    Spawn {
        /// The program that the caller wanted to start.
        program: PathBuf,
        /// What the operating system said.
        source: Arc<io::Error>,
    },
    /// The server died, or closed its output, or the connection broke.
    #[error("the server is gone; its stderr may say why")]
    Closed,
    /// The server answered a call with an error.
    #[error("{message}")]
    Refused {
        /// The JSON-RPC code.
        code: i64,
        /// The error message for people.
        message: String,
        /// The error name for programs, if the server sent one.
        reason: Option<String>,
    },
    /// The server sent something that the protocol does not allow. The connection has ended.
    #[error("the server broke the protocol: {0}")]
    Protocol(String),
}

impl LoafError {
    /// A protocol error. The text may quote the server, so it is cut to a readable length.
    pub(super) fn protocol(what: &str) -> Self {
        const MAX_CHARS: usize = 300;
        Self::Protocol(what.chars().take(MAX_CHARS).collect())
    }

    /// The error name for programs, if the server answered with an error and sent one.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Refused { reason, .. } => reason.as_deref(),
            Self::Spawn { .. } | Self::Closed | Self::Protocol(_) => None,
        }
    }
}
