//! What can go wrong between a client and its exec server, sorted by whose fault it is.

use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::Arc;

use parlor_doors::exec::{MAX_LINE_BYTES, PROTOCOL_VERSION};
use parlor_doors::jsonrpc::ErrorObject;

/// Why a call, or a process, failed.
///
/// Can be cloned, because the end of a connection is news to every handle on it.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ExecServerError {
    /// The server's program could not be started.
    #[error("cannot start the exec server {}", program.display())]
    Spawn {
        /// The program that was asked for.
        program: PathBuf,
        /// What the operating system said.
        source: Arc<io::Error>,
    },
    /// The server died, or closed the connection, or the connection broke.
    #[error("the exec server is gone{}", parenthesis(status.as_ref()))]
    Closed {
        /// How the server's process ended, if this client started it and it has ended.
        status: Option<ExitStatus>,
        /// What the operating system said, if the connection did not just end.
        source: Option<Arc<io::Error>>,
    },
    /// The server answered a request with an error.
    #[error("the exec server refused: {message} ({code})")]
    Refused {
        /// The JSON-RPC code.
        code: i64,
        /// The server's words.
        message: String,
    },
    /// The server said something that the protocol does not allow. The connection is over.
    #[error("the exec server broke the protocol: {0}")]
    Protocol(String),
    /// The server speaks another version of the protocol.
    #[error("the exec server speaks {offered:?}, and this client speaks {PROTOCOL_VERSION:?}")]
    Version {
        /// What the server offered.
        offered: String,
    },
    /// This client already has a living process of that id.
    ///
    /// Refused without asking the server: notifications carry nothing but the id, so two processes
    /// of one id could not be told apart.
    #[error("process id {0:?} is in use by a process of this client that has not exited")]
    DuplicateProcess(String),
    /// The process that was to be written to has exited.
    #[error("process {0:?} has exited")]
    ProcessExited(String),
    /// The request would be a longer line than a server has to accept.
    #[error("a request of {bytes} bytes is longer than the limit of {MAX_LINE_BYTES}")]
    RequestTooLong {
        /// How long the line would be.
        bytes: usize,
    },
}

impl ExecServerError {
    /// The connection ended, and nothing more is known.
    pub(super) const CLOSED: Self = Self::Closed { status: None, source: None };

    /// A breach of the protocol. The text may quote the server, so it is cut to a readable length.
    pub(super) fn protocol(what: &str) -> Self {
        const READABLE: usize = 300;
        Self::Protocol(what.chars().take(READABLE).collect())
    }
}

impl From<ErrorObject> for ExecServerError {
    fn from(error: ErrorObject) -> Self {
        Self::Refused { code: error.code, message: error.message }
    }
}

fn parenthesis(status: Option<&ExitStatus>) -> String {
    status.map(|status| format!(" ({status})")).unwrap_or_default()
}
