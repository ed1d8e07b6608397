//! Makes failures that are about a path.

use parlor_vocab::{Failure, FailureCode};
use rustix::io::Errno;

/// Makes a failure. The code decides whether it is retryable.
pub(crate) fn failure(code: FailureCode, message: impl Into<String>) -> Failure {
    let retryable = code == FailureCode::PathChanged;
    Failure { code, message: message.into(), retryable }
}

/// The failure of a check of the input.
pub fn invalid(message: impl Into<String>) -> Failure {
    failure(FailureCode::InvalidInput, message)
}

/// Makes a failure of a system call on `path`, for `map_err`. The message quotes the path as the caller gave it.
pub fn system(attempt: &'static str, path: &str) -> impl Fn(Errno) -> Failure {
    let path = path.to_owned();
    move |errno| match errno {
        Errno::NOENT => failure(FailureCode::NotFound, format!("`{path}` does not exist")),
        Errno::NOTDIR => {
            failure(FailureCode::NotFound, format!("`{path}` does not exist: a part of it is not a folder"))
        }
        Errno::ISDIR => failure(FailureCode::Unsupported, format!("`{path}` is a folder")),
        Errno::NAMETOOLONG => invalid(format!("`{path}` is too long for a path")),
        errno => failure(FailureCode::ToolError, format!("cannot {attempt} `{path}`: {}", errno_text(errno))),
    }
}

/// The text of a system error in lower case, without the number that `std` appends.
pub fn errno_text(errno: Errno) -> String {
    let text = std::io::Error::from(errno).to_string();
    text.split(" (os error").next().unwrap_or(&text).to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_system_failure_has_the_error_text_without_the_number() {
        let failure = system("write", "a/b")(Errno::NOSPC);
        assert_eq!(failure.code, FailureCode::ToolError);
        assert_eq!(failure.message, "cannot write `a/b`: no space left on device");
        assert!(!system("open", "x")(Errno::NOENT).retryable);
    }
}
