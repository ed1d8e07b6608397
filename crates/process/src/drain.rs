//! How long to wait for output that other processes hold open after the exit of a child. All streams share one silence
//! and one deadline.

use std::time::Duration;

use tokio::time::Instant;

use crate::output_reader::ReadMode;
use crate::{DRAIN_SILENCE, DRAIN_WAIT, HURRY_SILENCE};

/// The time limits of one drain.
#[derive(Debug)]
pub(crate) struct Drain {
    silence: Duration,
    silent_until: Instant,
    deadline: Instant,
    is_late: bool,
}

impl Drain {
    /// The child has exited by itself.
    pub(crate) fn after_exit() -> Self {
        Self::new(DRAIN_SILENCE, DRAIN_WAIT)
    }

    /// The child has exited and its group was killed. What they wrote can be read without waiting, so the limits are
    /// short.
    pub(crate) fn after_kill() -> Self {
        Self::new(HURRY_SILENCE, HURRY_SILENCE)
    }

    fn new(silence: Duration, total: Duration) -> Self {
        let now = Instant::now();
        Self { silence, silent_until: now + silence, deadline: now + total, is_late: false }
    }

    /// When to call [`Self::on_timer`]. `None` after the deadline.
    pub(crate) fn timer(&self) -> Option<Instant> {
        (!self.is_late).then(|| self.silent_until.min(self.deadline))
    }

    /// After the deadline, the streams are read as far as that needs no waiting: a slow consumer does not lose what the
    /// child wrote.
    pub(crate) fn mode(&self) -> ReadMode {
        if self.is_late { ReadMode::Available } else { ReadMode::Limited }
    }

    /// Some stream had output.
    pub(crate) fn on_output(&mut self) {
        self.silent_until = Instant::now() + self.silence;
    }

    /// The timer has elapsed. Returns whether the drain is over, which it is after silence. `has_output` says whether a
    /// stream has output that the consumer had no room for; that is not silence.
    pub(crate) fn on_timer(&mut self, has_output: bool) -> bool {
        if Instant::now() >= self.deadline {
            self.is_late = true;
        } else if has_output {
            self.on_output();
        } else {
            return true;
        }
        false
    }
}
