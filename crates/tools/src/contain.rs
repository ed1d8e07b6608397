//! Keeps a panic within the part that it happened in.
//!
//! The panic hook has written where it happened; here it becomes an error that says nothing of internals. What the
//! part has shared with others must stay usable: mutexes are taken in spite of poisoning, and each change of what they
//! guard is a single step.

use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;
use parlor_vocab::{Failure, FailureCode};

/// A part has panicked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Panicked;

impl Panicked {
    /// The failure that clients see. `what` is what ended, as in "The run".
    pub fn failure(self, what: &str) -> Failure {
        let message = format!("{what} ended by an internal error; the log of the server has the details.");
        Failure { code: FailureCode::InternalError, message, retryable: false }
    }
}

/// Awaits `future`, which may panic. Not an `async fn`, which would hold the future twice: as its argument, and as what
/// it awaits.
pub fn contain<T>(future: impl Future<Output = T>) -> impl Future<Output = Result<T, Panicked>> {
    AssertUnwindSafe(future).catch_unwind().map(|done| done.map_err(|_| Panicked))
}
