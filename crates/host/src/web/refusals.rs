//! Who was turned away, for whoever reads the log: a line each, and never so many that they fill a disk.
//!
//! What was sent is not repeated, but for the path: a header or a query may hold a token.

use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use tokio::time::Instant;

use super::rate::{Bucket, Rate};

/// How many lines there may be.
pub const REFUSAL_LINES: Rate = Rate { per_second: 1.0, burst: 100.0 };

/// How much of a path is written.
pub const REFUSAL_PATH_CHARS: usize = 100;

/// Writes the lines, and counts those that are left out.
#[derive(Debug)]
pub(super) struct Refusals(Mutex<Lines>);

#[derive(Debug)]
struct Lines {
    bucket: Bucket,
    /// How many were left out since the last one.
    left_out: u64,
}

impl Refusals {
    pub(super) fn new() -> Self {
        let bucket = Bucket::full(REFUSAL_LINES, Instant::now());
        Self(Mutex::new(Lines { bucket, left_out: 0 }))
    }

    /// Tells that what `peer` wanted of `path` was refused.
    pub(super) fn tell(&self, reason: &'static str, peer: Option<IpAddr>, path: &str) {
        let Some(left_out) = self.next() else { return };
        let peer = peer.map(|peer| peer.to_canonical().to_string()).unwrap_or_default();
        let path: String = path.chars().take(REFUSAL_PATH_CHARS).collect();
        tracing::info!(reason, peer, path, left_out, "refused");
    }

    /// Whether a line may be written now, with how many were left out before.
    fn next(&self) -> Option<u64> {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.bucket.take(REFUSAL_LINES, Instant::now()) {
            return Some(std::mem::take(&mut lines.left_out));
        }
        lines.left_out += 1;
        None
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_flood_is_counted_and_not_written() {
        let refusals = Refusals::new();
        let written = (0..1000).filter(|_| refusals.next() == Some(0)).count();
        assert_eq!(written, REFUSAL_LINES.burst as usize);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(refusals.next(), Some(900));
        assert_eq!(refusals.next(), None);
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!((refusals.next(), refusals.next()), (Some(1), Some(0)));
    }
}
