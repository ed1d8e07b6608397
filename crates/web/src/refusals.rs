//! Who was turned away, for whoever reads the log: a line each, and never so many that they fill a disk.
//!
//! What was sent is not repeated, but for the path: a header or a query may hold a token.

use std::net::IpAddr;

use parlor_transport::LogLimit;
use parlor_transport::Rate;

/// How many lines there may be.
pub const REFUSAL_LINES: Rate = Rate { per_second: 1.0, burst: 100.0 };

/// How much of a path is written.
pub const REFUSAL_PATH_CHARS: usize = 100;

/// Writes the lines, and counts those that are left out.
#[derive(Debug)]
pub(crate) struct Refusals(LogLimit);

impl Refusals {
    pub(crate) fn new() -> Self {
        Self(LogLimit::new(REFUSAL_LINES))
    }

    /// Tells that what `peer` wanted of `path` was refused.
    pub(crate) fn tell(&self, reason: &'static str, peer: Option<IpAddr>, path: &str) {
        let Some(left_out) = self.0.next_line() else { return };
        let peer = peer.map(|peer| peer.to_canonical().to_string()).unwrap_or_default();
        let path: String = path.chars().take(REFUSAL_PATH_CHARS).collect();
        tracing::info!(reason, peer, path, left_out, "refused");
    }
}
