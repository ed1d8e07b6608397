//! How much a server may send without being asked. A server that sends more is ended.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{MCP_OPEN_PINGS, MCP_UNASKED_BURST, MCP_UNASKED_BYTES, MCP_UNASKED_PER_SECOND};

/// The budget of one connection: one unit for each message, and one for each [`MCP_UNASKED_BYTES`].
pub(super) struct MessageBudget {
    left: Mutex<(f64, Instant)>,
    /// Requests of the server whose answers are not sent yet.
    open_requests: AtomicUsize,
    exceeded: CancellationToken,
}

/// A server that sent more than its budget allows.
#[derive(Debug)]
pub(super) struct Flood;

impl fmt::Display for Flood {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "it was ended, because it sent too much that nobody asked for: more than {MCP_UNASKED_BURST} messages at once or \
             {MCP_UNASKED_PER_SECOND} in each second ({MCP_UNASKED_BYTES} bytes count as one message), or {MCP_OPEN_PINGS} \
             requests whose answers it does not read"
        )
    }
}

impl std::error::Error for Flood {}

impl MessageBudget {
    pub(super) fn new() -> Self {
        Self {
            left: Mutex::new((f64::from(MCP_UNASKED_BURST), Instant::now())),
            open_requests: AtomicUsize::new(0),
            exceeded: CancellationToken::new(),
        }
    }

    /// Pays for what the server sent.
    pub(super) fn charge(&self, messages: usize, bytes: usize) -> Result<(), Flood> {
        #[expect(clippy::cast_precision_loss, reason = "a chunk of input is far smaller than 2^52 bytes")]
        let cost = messages as f64 + bytes as f64 / MCP_UNASKED_BYTES as f64;
        let left = {
            let mut state = self.left.lock().unwrap_or_else(PoisonError::into_inner);
            let (left, at) = *state;
            let now = Instant::now();
            let earned = now.duration_since(at).as_secs_f64() * f64::from(MCP_UNASKED_PER_SECOND);
            let left = (left + earned).min(f64::from(MCP_UNASKED_BURST)) - cost;
            *state = (left, now);
            left
        };
        if left < 0.0 {
            self.exceeded.cancel();
        }
        if self.is_exceeded() { Err(Flood) } else { Ok(()) }
    }

    /// Gives the server the right to one answer.
    pub(super) fn expect_answer(&self) {
        self.left.lock().unwrap_or_else(PoisonError::into_inner).0 += 1.0;
    }

    /// Counts a request of the server that is being answered.
    pub(super) fn begin_answer(&self) -> Result<(), Flood> {
        if self.open_requests.fetch_add(1, Ordering::Relaxed) >= MCP_OPEN_PINGS {
            self.exceeded.cancel();
            return Err(Flood);
        }
        Ok(())
    }

    /// The answer to a request of the server was sent, or given up.
    pub(super) fn end_answer(&self) {
        let one_less = |open: usize| open.checked_sub(1);
        let _ = self.open_requests.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less);
    }

    pub(super) fn is_exceeded(&self) -> bool {
        self.exceeded.is_cancelled()
    }

    /// Waits until the server has sent too much.
    pub(super) async fn exceeded(&self) {
        self.exceeded.cancelled().await;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_is_allowed_and_a_flood_is_not() {
        let budget = MessageBudget::new();
        let burst = MCP_UNASKED_BURST as usize;
        assert!((0..burst).all(|_| budget.charge(1, 0).is_ok()));
        tokio::time::advance(Duration::from_secs(1)).await;
        let each_second = MCP_UNASKED_PER_SECOND as usize;
        assert!((0..each_second).all(|_| budget.charge(1, 0).is_ok()));
        assert!(budget.charge(1, 0).is_err());
        tokio::time::advance(Duration::from_secs(60)).await;
        assert!(budget.charge(1, 0).is_err(), "it has no second chance");
    }

    #[tokio::test(start_paused = true)]
    async fn bytes_count_and_answers_that_parlor_waits_for_do_not() {
        let budget = MessageBudget::new();
        assert!(budget.charge(0, MCP_UNASKED_BURST as usize * MCP_UNASKED_BYTES).is_ok());
        for _ in 0..100_000 {
            budget.expect_answer();
            assert!(budget.charge(1, 0).is_ok());
        }
        assert!(budget.charge(0, MCP_UNASKED_BYTES).is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn requests_of_the_server_that_wait_for_their_answers_have_a_limit() {
        let budget = MessageBudget::new();
        for _ in 0..10_000 {
            assert!(budget.begin_answer().is_ok());
            budget.end_answer();
        }
        assert!((0..MCP_OPEN_PINGS).all(|_| budget.begin_answer().is_ok()));
        assert!(budget.begin_answer().is_err() && budget.is_exceeded());
    }
}
