//! The words by which programs tell failures apart, and the only place of this crate that makes a [`Failure`].

use parlor_vocab::{Failure, FailureCode};

pub(crate) use parlor_files::code::{in_words, invalid, system};

/// Makes a failure. Whether the same call may succeed later follows from the code.
pub(crate) fn failure(code: FailureCode, message: impl Into<String>) -> Failure {
    let retryable =
        [FailureCode::PathChanged, FailureCode::LimitReached, FailureCode::Timeout, FailureCode::Cancelled]
            .contains(&code);
    Failure { code, message: message.into(), retryable }
}

/// The call was cancelled before it had done anything.
pub(crate) fn cancelled() -> Failure {
    failure(FailureCode::Cancelled, "cancelled")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_may_pass_is_worth_another_try() {
        assert!(failure(FailureCode::Timeout, "").retryable);
        assert!(!failure(FailureCode::PathRefused, "").retryable);
    }
}
