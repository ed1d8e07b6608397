//! The error texts of the peer door.

use super::VERSIONS;
use crate::truncate::truncate_bytes;

/// The most bytes of an error text that quote the other process, which may have sent megabytes.
const MAX_QUOTED_BYTES: usize = 256;

/// Why the owner closes a connection. The other process sees the text in an `error` frame.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeerFrameError {
    /// The line is not a frame of this protocol.
    #[error("not a frame of the peer door: {}", quoted(_0.clone()))]
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
    #[error("this program speaks version {VERSIONS:?} of the peer door, the other one {}", quoted(format!("{_0:?}")))]
    NoCommonVersion(Vec<u32>),
}

fn quoted(text: String) -> String {
    truncate_bytes(text, MAX_QUOTED_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_quote_is_truncated() {
        let many = PeerFrameError::NoCommonVersion(vec![2; 1_000_000]).to_string();
        assert!(many.len() < 2 * MAX_QUOTED_BYTES && many.ends_with('…'), "{many}");
        let long = PeerFrameError::Malformed("x".repeat(1_000_000)).to_string();
        assert!(long.len() < 2 * MAX_QUOTED_BYTES && long.ends_with('…'), "{long}");
    }
}
