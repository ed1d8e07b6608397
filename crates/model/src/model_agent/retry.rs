//! How long to wait before a model is asked again.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

use crate::provider::ProviderError;

/// How often one step asks a model before it is given up.
pub const MAX_TRIES: u32 = 5;

/// How long the first wait is. Each one after it is twice as long.
pub const FIRST_RETRY_WAIT: Duration = Duration::from_secs(1);

/// The longest wait that we choose ourselves.
pub const MAX_RETRY_WAIT: Duration = Duration::from_secs(30);

/// The longest wait that a provider can ask for. If it asks for more, the step is given up.
pub const MAX_RETRY_AFTER: Duration = Duration::from_secs(60);

/// How long to wait after the `tries`th try failed; none if it is not to be tried again.
pub(super) fn wait(error: &ProviderError, tries: u32) -> Option<Duration> {
    if !error.is_retryable() || tries >= MAX_TRIES {
        return None;
    }
    match error.retry_after() {
        Some(asked) => (asked <= MAX_RETRY_AFTER).then_some(asked),
        None => Some(jittered(own_wait(tries), chance())),
    }
}

fn own_wait(tries: u32) -> Duration {
    let doublings = tries.saturating_sub(1).min(16);
    FIRST_RETRY_WAIT.saturating_mul(1 << doublings).min(MAX_RETRY_WAIT)
}

/// Between three quarters and five quarters of `wait`, so that many who failed together do not come
/// back together.
fn jittered(wait: Duration, chance: u64) -> Duration {
    let thousandths = u32::try_from(chance % 501).unwrap_or(0);
    wait * (750 + thousandths) / 1000
}

/// The standard library's own source of chance, which is good enough to be spread by.
fn chance() -> u64 {
    RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_limit() {
        let waits: Vec<u64> = (1..8).map(|tries| own_wait(tries).as_secs()).collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 30, 30]);
        assert_eq!(own_wait(u32::MAX), MAX_RETRY_WAIT);
    }

    #[test]
    fn chance_spreads_them_a_little() {
        let second = Duration::from_secs(1);
        assert_eq!(jittered(second, 0).as_millis(), 750);
        assert_eq!(jittered(second, 500).as_millis(), 1250);
        assert!(jittered(second, chance()) <= second * 5 / 4);
    }

    #[test]
    fn a_provider_that_asks_for_a_while_gets_it_and_one_that_asks_for_long_is_given_up() {
        let busy = |seconds| ProviderError::Busy {
            said: String::new(),
            retry_after: Some(Duration::from_secs(seconds)),
        };
        assert_eq!(wait(&busy(60), 1), Some(Duration::from_secs(60)));
        assert_eq!(wait(&busy(61), 1), None);
        assert_eq!(wait(&busy(0), MAX_TRIES), None);
        assert_eq!(wait(&ProviderError::Auth { said: String::new() }, 1), None);
    }
}
