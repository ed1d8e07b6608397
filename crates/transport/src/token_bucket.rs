//! A token bucket: permits are used up by actions and refill at a constant rate.

use tokio::time::Instant;

/// How often something may be done.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// The sustained rate: permits that are refilled per second.
    pub per_second: f64,
    /// The capacity of the bucket: how many actions are allowed at once.
    pub burst: f64,
}

/// The permits that are left for one limit. The rate is passed to each call, so that a bucket stays small.
#[derive(Clone, Copy, Debug)]
pub struct TokenBucket {
    left: f64,
    /// When `left` was last computed.
    updated_at: Instant,
}

impl TokenBucket {
    /// A bucket with all `rate.burst` permits.
    pub fn full(rate: Rate, now: Instant) -> Self {
        Self { left: rate.burst, updated_at: now }
    }

    /// Takes one permit. Returns false if none is left.
    pub fn take(&mut self, rate: Rate, now: Instant) -> bool {
        *self = self.refilled(rate, now);
        let has_permit = self.left >= 1.0;
        if has_permit {
            self.left -= 1.0;
        }
        has_permit
    }

    /// Whether the bucket has refilled completely, so that it can be dropped and made anew later.
    pub fn is_full(self, rate: Rate, now: Instant) -> bool {
        self.refilled(rate, now).left >= rate.burst
    }

    fn refilled(self, rate: Rate, now: Instant) -> Self {
        let gained = now.saturating_duration_since(self.updated_at).as_secs_f64() * rate.per_second;
        Self { left: (self.left + gained).min(rate.burst), updated_at: now }
    }
}
