//! The words by which programs tell failures apart, and the only place that makes a [`Failure`].

use parlor_vocab::Failure;
use rustix::io::Errno;

/// The input is not what the tool's schema asks for. The message says what would be right.
pub const INVALID_INPUT: &str = "INVALID_INPUT";
/// No tool has that name.
pub const UNKNOWN_TOOL: &str = "UNKNOWN_TOOL";
/// There is no such file, folder or background process.
pub const NOT_FOUND: &str = "NOT_FOUND";
/// The path leads out of the allowed folders.
pub const PATH_REFUSED: &str = "PATH_REFUSED";
/// Symbolic links or files on the way changed again and again while they were looked at.
pub const PATH_CHANGED: &str = "PATH_CHANGED";
/// What is there is of a kind that the tool does not handle: a folder, a device, a binary file.
pub const UNSUPPORTED: &str = "UNSUPPORTED";
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
/// The system said no: permissions, a full disk, a program that cannot be run.
pub const TOOL_ERROR: &str = "TOOL_ERROR";

/// Makes a failure. Whether the same call may succeed later follows from the code.
pub(crate) fn failure(code: &'static str, message: impl Into<String>) -> Failure {
    let retryable = [PATH_CHANGED, LIMIT_REACHED, TIMEOUT, CANCELLED].contains(&code);
    Failure { code: code.to_owned(), message: message.into(), retryable }
}

/// For the many checks of an input.
pub(crate) fn invalid(message: impl Into<String>) -> Failure {
    failure(INVALID_INPUT, message)
}

/// The call was cancelled before it had done anything.
pub(crate) fn cancelled() -> Failure {
    failure(CANCELLED, "cancelled")
}

/// For `map_err`: the system refused something about `path`, which is quoted as it was given.
pub(crate) fn system(attempt: &'static str, path: &str) -> impl Fn(Errno) -> Failure {
    let path = path.to_owned();
    move |errno| match errno {
        Errno::NOENT => failure(NOT_FOUND, format!("`{path}` does not exist")),
        Errno::NOTDIR => failure(NOT_FOUND, format!("`{path}` does not exist: a part of it is not a folder")),
        Errno::ISDIR => failure(UNSUPPORTED, format!("`{path}` is a folder")),
        Errno::NAMETOOLONG => invalid(format!("`{path}` is too long for a path")),
        errno => failure(TOOL_ERROR, format!("cannot {attempt} `{path}`: {}", in_words(errno))),
    }
}

/// The system's own words, without the number that `std` puts behind them.
pub(crate) fn in_words(errno: Errno) -> String {
    let words = std::io::Error::from(errno).to_string();
    words.split(" (os error").next().unwrap_or(&words).to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_speaks_in_words_and_not_in_numbers() {
        let failure = system("write", "a/b")(Errno::NOSPC);
        assert_eq!(failure.code, TOOL_ERROR);
        assert_eq!(failure.message, "cannot write `a/b`: no space left on device");
    }

    #[test]
    fn only_what_may_pass_is_worth_another_try() {
        assert!(failure(TIMEOUT, "").retryable);
        assert!(!failure(PATH_REFUSED, "").retryable);
        assert!(!system("open", "x")(Errno::NOENT).retryable);
    }
}
