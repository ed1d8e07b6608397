//! The words by which programs tell failures apart, and the only place of this crate that makes a [`Failure`].

use parlor_vocab::Failure;

pub use parlor_files::code::{INVALID_INPUT, NOT_FOUND, PATH_CHANGED, PATH_REFUSED, TOOL_ERROR, UNSUPPORTED};
pub(crate) use parlor_files::code::{in_words, invalid, system};

/// No tool has that name.
pub const UNKNOWN_TOOL: &str = "UNKNOWN_TOOL";
/// It is larger than the tool's limit.
pub const TOO_LARGE: &str = "TOO_LARGE";
/// The text to replace is not there, or not as often as was said.
pub const EDIT_MISMATCH: &str = "EDIT_MISMATCH";
/// As many background processes run as may run.
pub const LIMIT_REACHED: &str = "LIMIT_REACHED";
/// It took too long and was ended.
pub const TIMEOUT: &str = "TIMEOUT";
/// The call was cancelled.
pub const CANCELLED: &str = "CANCELLED";

/// Makes a failure. Whether the same call may succeed later follows from the code.
pub(crate) fn failure(code: &'static str, message: impl Into<String>) -> Failure {
    let retryable = [PATH_CHANGED, LIMIT_REACHED, TIMEOUT, CANCELLED].contains(&code);
    Failure { code: code.to_owned(), message: message.into(), retryable }
}

/// The call was cancelled before it had done anything.
pub(crate) fn cancelled() -> Failure {
    failure(CANCELLED, "cancelled")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_may_pass_is_worth_another_try() {
        assert!(failure(TIMEOUT, "").retryable);
        assert!(!failure(PATH_REFUSED, "").retryable);
    }
}
