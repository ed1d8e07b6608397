//! Which lost workers a connection was told of, so that each client learns when what it defined is gone.
//!
//! All clients share one worker. The first answer after a loss tells it to one client; the others have to be told with
//! their own next answer.

use std::sync::{Arc, Mutex, PoisonError};

use crate::WorkerLosses;

/// How many losses a connection knows of; `None` before its first evaluation. Clones share the value.
#[derive(Clone, Debug, Default)]
pub(super) struct KnownLosses(Arc<Mutex<Option<u64>>>);

impl KnownLosses {
    /// Takes note of all losses so far.
    pub(super) fn learn(&self, losses: &WorkerLosses) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(losses.count);
    }

    /// Takes note of the losses up to an answer. Returns why the last worker was lost if the client has defined
    /// something in an earlier one and was not told. `tells_loss` says that the answer itself tells of the last loss.
    pub(super) fn learn_from_answer(&self, losses: &WorkerLosses, tells_loss: bool) -> Option<String> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner).replace(losses.count)?;
        let told = if tells_loss { losses.count } else { known };
        losses.last_reason.as_deref().filter(|_| told < losses.count).map(str::to_owned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn losses(count: u64) -> WorkerLosses {
        WorkerLosses { count, last_reason: (count > 0).then(|| "killed".into()) }
    }

    #[test]
    fn a_loss_is_told_once_to_a_connection_that_evaluated_before_it() {
        let known = KnownLosses::default();
        assert_eq!(known.learn_from_answer(&losses(3), false), None, "nothing was defined before");
        assert_eq!(known.learn_from_answer(&losses(3), false), None);
        assert_eq!(known.learn_from_answer(&losses(5), false).as_deref(), Some("killed"));
        assert_eq!(known.learn_from_answer(&losses(5), false), None);
    }

    #[test]
    fn a_loss_that_the_client_caused_or_was_told_as_an_error_is_not_told_again() {
        let known = KnownLosses::default();
        known.learn_from_answer(&losses(0), false);
        assert_eq!(known.learn_from_answer(&losses(1), true), None);
        assert_eq!(known.learn_from_answer(&losses(1), false), None);
        known.learn(&losses(2));
        assert_eq!(known.learn_from_answer(&losses(2), false), None);
    }
}
