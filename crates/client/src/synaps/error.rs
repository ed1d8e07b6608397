//! What can go wrong between a client and its child, sorted by whose fault it is.

use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use parlor_doors::synaps::{MAX_FRAME_BYTES, RPC_PROTOCOL_VERSION};

/// Why a command, or a turn, failed.
///
/// Can be cloned, because the end of a connection is news to every handle on it.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SynapsError {
    /// The child's program could not be started.
    #[error("cannot start the child {}", program.display())]
    Spawn {
        /// The program that was asked for.
        program: PathBuf,
        /// What the operating system said.
        source: Arc<io::Error>,
    },
    /// The child did not say `ready` in time. It was killed.
    #[error("the child was not ready within {limit:?}; its stderr may say why")]
    NotReady {
        /// The time it had.
        limit: Duration,
    },
    /// The child speaks another version of the protocol. It was killed.
    #[error(
        "the child speaks version {offered} of the protocol, and this client speaks {RPC_PROTOCOL_VERSION}"
    )]
    Version {
        /// What the child offered.
        offered: u32,
    },
    /// The child died, or closed its output, or the connection broke.
    #[error("the child is gone{}", parenthesis(status.as_ref()))]
    Closed {
        /// How the child ended, if this client started it and it has ended.
        status: Option<ExitStatus>,
        /// What the operating system said, if the connection did not just end.
        source: Option<Arc<io::Error>>,
    },
    /// The child answered a command with an error. A turn that it refused never began.
    #[error("the child refused: {0}")]
    Refused(String),
    /// The child said something that the protocol does not allow. The connection is over.
    #[error("the child broke the protocol: {0}")]
    Protocol(String),
    /// The command would be a longer frame than a child has to accept.
    #[error("a command of {bytes} bytes is longer than the limit of {MAX_FRAME_BYTES}")]
    CommandTooLong {
        /// How long the frame would be.
        bytes: usize,
    },
}

impl SynapsError {
    /// The connection ended, and nothing more is known.
    pub(super) const CLOSED: Self = Self::Closed { status: None, source: None };

    /// A breach of the protocol. The text may quote the child, so it is cut to a readable length.
    pub(super) fn protocol(what: &str) -> Self {
        const READABLE: usize = 300;
        Self::Protocol(what.chars().take(READABLE).collect())
    }
}

fn parenthesis(status: Option<&ExitStatus>) -> String {
    status.map(|status| format!(" ({status})")).unwrap_or_default()
}
