//! Turns a panic inside of a future into the failure that clients see, so that the rest of the server goes on.
//!
//! The panic hook has logged where the panic happened; the error tells clients nothing about it. State that the future
//! shares with other tasks must stay usable after a panic: code locks such mutexes in spite of poisoning, and changes
//! what they guard in one step.

use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;
use parlor_vocab::{Failure, FailureCode};

/// The error of a future that panicked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Panicked;

impl Panicked {
    /// The failure that clients see. `what` names what ended, for example "The run".
    pub fn failure(self, what: &str) -> Failure {
        let message = format!("{what} ended by an internal error; the log of the server has the details.");
        Failure { code: FailureCode::InternalError, message, retryable: false }
    }
}

/// Awaits `future` and catches its panic. This is not an `async fn`, because that would store the future twice: as
/// the argument and as the awaited future.
pub fn catch_panic<T>(future: impl Future<Output = T>) -> impl Future<Output = Result<T, Panicked>> {
    AssertUnwindSafe(future).catch_unwind().map(|done| done.map_err(|_| Panicked))
}
