//! Decides how long to wait before a failed request is repeated.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

use crate::provider::ProviderError;

/// How many times one step sends a request to a model.
pub const MAX_TRIES: u32 = 5;

/// The first wait. Each further wait is twice as long.
pub const FIRST_RETRY_WAIT: Duration = Duration::from_secs(1);

/// The longest wait, unless the provider asks for a longer one.
pub const MAX_RETRY_WAIT: Duration = Duration::from_secs(30);

/// The longest wait that a provider can ask for. If it asks for more, the request is not repeated.
pub const MAX_RETRY_AFTER: Duration = Duration::from_secs(60);

/// How long to wait after `tries` failed tries; `None` if the request must not be repeated.
pub(super) fn retry_wait(error: &ProviderError, tries: u32) -> Option<Duration> {
    if !error.is_retryable() || tries >= MAX_TRIES {
        return None;
    }
    match error.retry_after() {
        Some(wait) => (wait <= MAX_RETRY_AFTER).then_some(wait),
        None => Some(jittered(backoff(tries), random())),
    }
}

fn backoff(tries: u32) -> Duration {
    let doublings = tries.saturating_sub(1).min(16);
    FIRST_RETRY_WAIT.saturating_mul(1 << doublings).min(MAX_RETRY_WAIT)
}

/// A random duration between 75 % and 125 % of `wait`, so that requests that failed together are not repeated
/// together.
fn jittered(wait: Duration, random: u64) -> Duration {
    let thousandths = u32::try_from(random % 501).unwrap_or(0);
    wait * (750 + thousandths) / 1000
}

/// A random number from the standard library's hasher, which is good enough for jitter.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_limit() {
        let waits: Vec<u64> = (1..8).map(|tries| backoff(tries).as_secs()).collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 30, 30]);
        assert_eq!(backoff(u32::MAX), MAX_RETRY_WAIT);
    }

    #[test]
    fn jitter_changes_a_wait_by_a_quarter_at_most() {
        let second = Duration::from_secs(1);
        assert_eq!(jittered(second, 0).as_millis(), 750);
        assert_eq!(jittered(second, 500).as_millis(), 1250);
        assert!(jittered(second, random()) <= second * 5 / 4);
    }

    #[test]
    fn a_short_retry_after_is_obeyed_and_a_long_one_ends_the_retries() {
        let busy = |seconds| ProviderError::Busy {
            message: String::new(),
            retry_after: Some(Duration::from_secs(seconds)),
        };
        assert_eq!(retry_wait(&busy(60), 1), Some(Duration::from_secs(60)));
        assert_eq!(retry_wait(&busy(61), 1), None);
        assert_eq!(retry_wait(&busy(0), MAX_TRIES), None);
        assert_eq!(retry_wait(&ProviderError::Auth { message: String::new() }, 1), None);
    }
}
