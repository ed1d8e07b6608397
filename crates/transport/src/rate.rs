//! A rate as a bucket of permits, which fills up by itself.

use tokio::time::Instant;

/// How often something may be done.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// How many in a second, for long.
    pub per_second: f64,
    /// How many at once.
    pub burst: f64,
}

/// Permits that come back by themselves.
#[derive(Clone, Copy, Debug)]
pub struct Bucket {
    left: f64,
    at: Instant,
}

impl Bucket {
    /// All permits that there may be at once.
    pub fn full(rate: Rate, now: Instant) -> Self {
        Self { left: rate.burst, at: now }
    }

    /// Takes one, if there is one.
    pub fn take(&mut self, rate: Rate, now: Instant) -> bool {
        *self = self.filled(rate, now);
        let has_one = self.left >= 1.0;
        if has_one {
            self.left -= 1.0;
        }
        has_one
    }

    /// Whether all permits have come back.
    pub fn is_full(self, rate: Rate, now: Instant) -> bool {
        self.filled(rate, now).left >= rate.burst
    }

    fn filled(self, rate: Rate, now: Instant) -> Self {
        let gained = now.saturating_duration_since(self.at).as_secs_f64() * rate.per_second;
        Self { left: (self.left + gained).min(rate.burst), at: now }
    }
}
