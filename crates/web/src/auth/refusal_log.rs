//! A log line for each refused request, at a limited rate, so that refused clients cannot fill the disk.
//!
//! Of the request, the line shows only the path: a header or a query may hold a token.

use std::net::IpAddr;

use parlor_transport::{LogLimit, Rate};

/// How many lines the server writes. It counts the others.
pub const REFUSAL_LINES: Rate = Rate { per_second: 1.0, burst: 100.0 };

/// How many characters of a path a line shows.
pub const REFUSAL_PATH_CHARS: usize = 100;

/// Writes the lines.
#[derive(Debug)]
pub(crate) struct RefusalLog(LogLimit);

impl RefusalLog {
    pub(crate) fn new() -> Self {
        Self(LogLimit::new(REFUSAL_LINES))
    }

    /// Logs that a request of `peer` for `path` was refused.
    pub(crate) fn write(&self, reason: &'static str, peer: Option<IpAddr>, path: &str) {
        let Some(left_out) = self.0.allow_line() else { return };
        let peer = peer.map(|peer| peer.to_canonical().to_string()).unwrap_or_default();
        let path: String = path.chars().take(REFUSAL_PATH_CHARS).collect();
        tracing::info!(reason, peer, path, left_out, "refused");
    }
}
