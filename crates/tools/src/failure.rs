//! Constructors of [`Failure`]: the other files of this crate make failures only through this one.

use parlor_vocab::{Failure, FailureCode};

pub(crate) use parlor_files::failure::{errno_text, invalid, system};

/// A failure with this code. The code decides whether the failure is retryable.
pub(crate) fn failure(code: FailureCode, message: impl Into<String>) -> Failure {
    let retryable =
        [FailureCode::PathChanged, FailureCode::LimitReached, FailureCode::Timeout, FailureCode::Cancelled]
            .contains(&code);
    Failure { code, message: message.into(), retryable }
}

/// The failure of a call that was cancelled before it changed anything.
pub(crate) fn cancelled() -> Failure {
    failure(FailureCode::Cancelled, "cancelled")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_temporary_failures_are_retryable() {
        assert!(failure(FailureCode::Timeout, "").retryable);
        assert!(!failure(FailureCode::PathRefused, "").retryable);
    }
}
