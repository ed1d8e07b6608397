//! The errors of the exec client.

use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::Arc;

use parlor_doors::exec::{MAX_LINE_BYTES, PROTOCOL_VERSION};
use parlor_doors::jsonrpc::ErrorObject;

use crate::child::driver::ConnectionError;

/// Why a call or a process failed.
///
/// It can be cloned, because every handle on a connection learns why the connection ended.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ExecServerError {
    /// The server's program could not be started.
    #[error("cannot start the exec server {}", program.display())]
    Spawn {
        /// The program that the caller wanted to start.
        program: PathBuf,
        /// What the operating system said.
        source: Arc<io::Error>,
    },
    /// The server died, or closed the connection, or the connection broke.
    #[error("the exec server is gone{}", parenthesis(status.as_ref()))]
    Closed {
        /// How the server's process ended, if this client started it and it has ended.
        status: Option<ExitStatus>,
        /// The I/O error, if there was one.
        source: Option<Arc<io::Error>>,
    },
    /// The server answered a request with an error.
    #[error("the exec server refused: {message} ({code})")]
    Refused {
        /// The JSON-RPC code.
        code: i64,
        /// The server's error message.
        message: String,
    },
    /// The server sent something that the protocol does not allow. The connection has ended.
    #[error("the exec server broke the protocol: {0}")]
    Protocol(String),
    /// The server speaks another version of the protocol.
    #[error("the exec server speaks {offered:?}, and this client speaks {PROTOCOL_VERSION:?}")]
    Version {
        /// The version that the server sent.
        offered: String,
    },
    /// A process of this client with that id has not exited yet.
    ///
    /// The client refuses this without asking the server: notifications carry only the id, so two processes with the same
    /// id could not be told apart.
    #[error("process id {0:?} is in use by a process of this client that has not exited")]
    DuplicateProcess(String),
    /// The server no longer retains all output of a process that a new connection goes on with, or skipped a number.
    #[error("output of process {process_id:?} is lost: the server no longer retains all of it")]
    OutputLost {
        /// The process.
        process_id: String,
    },
    /// A write to a process that was started without a terminal and without a standard input.
    #[error("process {0:?} has no standard input; start it with `stdin()` or `tty()`")]
    NoInput(String),
    /// The address is no WebSocket URL, or the server there refused the connection.
    #[error("cannot connect to {url}: {reason}")]
    Address {
        /// The address.
        url: String,
        /// What is wrong with it, or the server's answer.
        reason: String,
    },
    /// The process that the call was for has exited.
    #[error("process {0:?} has exited")]
    ProcessExited(String),
    /// The request is longer than the line limit of the protocol. It was not sent.
    #[error("a request of {bytes} bytes is longer than the limit of {MAX_LINE_BYTES}")]
    RequestTooLong {
        /// The length of the line.
        bytes: usize,
    },
}

impl ExecServerError {
    /// The connection ended without an exit status or an I/O error.
    pub(super) const CLOSED: Self = Self::Closed { status: None, source: None };

    /// A protocol error. The text may quote the server, so it is cut to a readable length.
    pub(super) fn protocol(what: &str) -> Self {
        const MAX_CHARS: usize = 300;
        Self::Protocol(what.chars().take(MAX_CHARS).collect())
    }
}

impl ConnectionError for ExecServerError {
    fn closed(status: Option<ExitStatus>, source: Option<Arc<io::Error>>) -> Self {
        Self::Closed { status, source }
    }
}

impl From<ErrorObject> for ExecServerError {
    fn from(error: ErrorObject) -> Self {
        Self::Refused { code: error.code, message: error.message }
    }
}

/// The exit status in parentheses, or nothing.
fn parenthesis(status: Option<&ExitStatus>) -> String {
    status.map(|status| format!(" ({status})")).unwrap_or_default()
}
