//! The error texts of the peer door.

use super::VERSIONS;

/// Why the owner closes a connection. The other process sees the text in an `error` frame.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeerFrameError {
    /// The line is not a frame of this protocol.
    #[error("not a frame of the peer door: {0}")]
    Malformed(String),
    /// The line is too long.
    #[error("the line is longer than {limit} bytes")]
    TooLong {
        /// The limit in bytes.
        limit: usize,
    },
    /// The first frame is not `hello`.
    #[error("say hello first")]
    HelloMissing,
    /// A second `hello`.
    #[error("hello was said before")]
    HelloRepeated,
    /// No `hello` came in time.
    #[error("no hello came in time")]
    HelloLate,
    /// The two programs have no version in common.
    #[error("this program speaks version {VERSIONS:?} of the peer door, the other one {0:?}")]
    NoCommonVersion(Vec<u32>),
}
