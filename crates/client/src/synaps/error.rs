//! The errors of the synaps client.

use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use parlor_doors::synaps::{MAX_FRAME_BYTES, RPC_PROTOCOL_VERSION};

use crate::child::driver::ConnectionError;

/// Why a command or a turn failed.
///
/// It can be cloned, because every handle on a connection learns why the connection ended.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SynapsError {
    /// The child's program could not be started.
    #[error("cannot start the child {}", program.display())]
    Spawn {
        /// The program that the caller wanted to start.
        program: PathBuf,
        /// What the operating system said.
        source: Arc<io::Error>,
    },
    /// The child did not send `ready` in time. It was killed.
    #[error("the child was not ready within {limit:?}; its stderr may say why")]
    NotReady {
        /// The time limit, from [`SynapsLaunch::ready_wait`](super::SynapsLaunch::ready_wait).
        limit: Duration,
    },
    /// The child speaks another version of the protocol. It was killed.
    #[error(
        "the child speaks version {offered} of the protocol, and this client speaks {RPC_PROTOCOL_VERSION}"
    )]
    Version {
        /// The version that the child sent.
        offered: u32,
    },
    /// The child died, or closed its output, or the connection broke.
    #[error("the child is gone{}", parenthesis(status.as_ref()))]
    Closed {
        /// How the child ended, if this client started it and it has ended.
        status: Option<ExitStatus>,
        /// The I/O error, if there was one.
        source: Option<Arc<io::Error>>,
    },
    /// The child answered a command with an error. A turn that it refused never began.
    #[error("the child refused: {0}")]
    Refused(String),
    /// The child sent something that the protocol does not allow. The connection has ended.
    #[error("the child broke the protocol: {0}")]
    Protocol(String),
    /// The command is longer than the frame limit of the protocol. It was not sent.
    #[error("a command of {bytes} bytes is longer than the limit of {MAX_FRAME_BYTES}")]
    CommandTooLong {
        /// The length of the frame.
        bytes: usize,
    },
}

impl SynapsError {
    /// The connection ended without an exit status or an I/O error.
    pub(super) const CLOSED: Self = Self::Closed { status: None, source: None };

    /// A protocol error. The text may quote the child, so it is cut to a readable length.
    pub(super) fn protocol(what: &str) -> Self {
        const MAX_CHARS: usize = 300;
        Self::Protocol(what.chars().take(MAX_CHARS).collect())
    }
}

impl ConnectionError for SynapsError {
    fn closed(status: Option<ExitStatus>, source: Option<Arc<io::Error>>) -> Self {
        Self::Closed { status, source }
    }
}

/// The exit status in parentheses, or nothing.
fn parenthesis(status: Option<&ExitStatus>) -> String {
    status.map(|status| format!(" ({status})")).unwrap_or_default()
}
