//! What the actor of a session can do with a run that goes on: steer it and stop it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use parlor_vocab::StopCause;
use tokio_util::sync::CancellationToken;

/// How many steering texts may wait until the agent takes them.
const MAX_STEERING: usize = 64;

/// The actor's handle of a run driver.
pub(in super::super) struct RunHandle {
    pub(super) cancel: CancellationToken,
    pub(super) shared: Arc<Shared>,
}

/// What a [`RunDriver`](super::RunDriver) and its [`RunHandle`] share.
#[derive(Default)]
pub(super) struct Shared {
    pub(super) steering: Mutex<VecDeque<String>>,
    pub(super) stop_cause: Mutex<Option<StopCause>>,
}

impl RunHandle {
    /// The handle of a run that fails before it has a driver, or that a client carries out. It keeps a stop that comes meanwhile.
    pub(in super::super) fn without_driver() -> Self {
        Self { cancel: CancellationToken::new(), shared: Arc::default() }
    }

    /// Cancelled when the run is stopped.
    pub(in super::super) fn token(&self) -> CancellationToken {
        self.cancel.clone()
    }

    /// Passes text of the user to the running agent. Beyond [`MAX_STEERING`] texts the oldest is dropped; the log
    /// holds it all the same.
    pub(in super::super) fn steer(&self, text: String) {
        let mut steering = self.shared.steering.lock().unwrap_or_else(PoisonError::into_inner);
        steering.push_back(text);
        if steering.len() > MAX_STEERING {
            steering.pop_front();
        }
    }

    /// Who or what stopped the run, if it was stopped.
    pub(in super::super) fn stop_cause(&self) -> Option<StopCause> {
        self.shared.stop_cause.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Stops the run. A later cause replaces an earlier one.
    pub(in super::super) fn cancel(&self, cause: StopCause) {
        *self.shared.stop_cause.lock().unwrap_or_else(PoisonError::into_inner) = Some(cause);
        self.cancel.cancel();
    }
}
