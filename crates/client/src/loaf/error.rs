//! What can go wrong between a client and its server, sorted by whose fault it is.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// Why a call failed, or why there are no more events.
///
/// Can be cloned, because the end of a connection is news to every handle on it.
#[derive(Clone, Debug, thiserror::Error)]
pub enum LoafError {
    /// The server's program could not be started.
    #[error("cannot start the server {}", program.display())]
    Spawn {
        /// The program that was asked for.
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
        /// Which kind of error.
        code: i64,
        /// What to tell a person.
        message: String,
        /// The word for programs, if there is one.
        reason: Option<String>,
    },
    /// The server said something that the protocol does not allow. The connection is over.
    #[error("the server broke the protocol: {0}")]
    Protocol(String),
}

impl LoafError {
    /// A breach of the protocol. The text may quote the server, so it is cut to a readable length.
    pub(super) fn protocol(what: &str) -> Self {
        const READABLE: usize = 300;
        Self::Protocol(what.chars().take(READABLE).collect())
    }

    /// The word for programs of an error that the server answered with.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Refused { reason, .. } => reason.as_deref(),
            Self::Spawn { .. } | Self::Closed | Self::Protocol(_) => None,
        }
    }
}
