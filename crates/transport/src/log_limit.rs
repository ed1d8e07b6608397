//! Limits how often one kind of log line is written, so that a flood of events cannot fill the disk.

use std::sync::{Mutex, PoisonError};

use tokio::time::Instant;

use crate::token_bucket::{Rate, TokenBucket};

/// Allows log lines at a given rate, and counts the lines it suppresses.
#[derive(Debug)]
pub struct LogLimit {
    rate: Rate,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    bucket: TokenBucket,
    /// How many lines were suppressed since the last line that was written.
    suppressed: u64,
}

impl LogLimit {
    /// A limit that starts with a full bucket: the first `rate.burst` lines are allowed at once.
    pub fn new(rate: Rate) -> Self {
        let bucket = TokenBucket::full(rate, Instant::now());
        Self { rate, state: Mutex::new(State { bucket, suppressed: 0 }) }
    }

    /// If a line may be written now, returns how many lines were suppressed before it. Otherwise counts the line as
    /// suppressed.
    pub fn allow_line(&self) -> Option<u64> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.bucket.take(self.rate, Instant::now()) {
            return Some(std::mem::take(&mut state.suppressed));
        }
        state.suppressed += 1;
        None
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn lines_over_the_rate_are_counted_and_not_written() {
        let limit = LogLimit::new(Rate { per_second: 1.0, burst: 100.0 });
        let written = (0..1000).filter(|_| limit.allow_line() == Some(0)).count();
        assert_eq!(written, 100);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(limit.allow_line(), Some(900));
        assert_eq!(limit.allow_line(), None);
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!((limit.allow_line(), limit.allow_line()), (Some(1), Some(0)));
    }
}
