//! Keeps one kind of log line from filling a disk.

use std::sync::{Mutex, PoisonError};

use tokio::time::Instant;

use crate::rate::{Bucket, Rate};

/// Lets a line through as often as its rate says, and counts the others.
#[derive(Debug)]
pub struct LogLimit {
    rate: Rate,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    bucket: Bucket,
    /// Lines that were left out since the last one.
    left_out: u64,
}

impl LogLimit {
    /// Lets `rate` lines through.
    pub fn new(rate: Rate) -> Self {
        let bucket = Bucket::full(rate, Instant::now());
        Self { rate, state: Mutex::new(State { bucket, left_out: 0 }) }
    }

    /// Whether a line may be written now, with how many were left out before it.
    pub fn next_line(&self) -> Option<u64> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.bucket.take(self.rate, Instant::now()) {
            return Some(std::mem::take(&mut state.left_out));
        }
        state.left_out += 1;
        None
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_flood_is_counted_and_not_written() {
        let limit = LogLimit::new(Rate { per_second: 1.0, burst: 100.0 });
        let written = (0..1000).filter(|_| limit.next_line() == Some(0)).count();
        assert_eq!(written, 100);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(limit.next_line(), Some(900));
        assert_eq!(limit.next_line(), None);
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!((limit.next_line(), limit.next_line()), (Some(1), Some(0)));
    }
}
