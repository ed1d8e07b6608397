//! The words by which programs tell failures apart that are about a path.

use parlor_vocab::{Failure, FailureCode};
use rustix::io::Errno;

/// Makes a failure. Whether the same may succeed later follows from the code.
pub(crate) fn failure(code: FailureCode, message: impl Into<String>) -> Failure {
    let retryable = code == FailureCode::PathChanged;
    Failure { code, message: message.into(), retryable }
}

/// For the many checks of an input.
pub fn invalid(message: impl Into<String>) -> Failure {
    failure(FailureCode::InvalidInput, message)
}

/// For `map_err`: the system refused something about `path`, which is quoted as it was given.
pub fn system(attempt: &'static str, path: &str) -> impl Fn(Errno) -> Failure {
    let path = path.to_owned();
    move |errno| match errno {
        Errno::NOENT => failure(FailureCode::NotFound, format!("`{path}` does not exist")),
        Errno::NOTDIR => {
            failure(FailureCode::NotFound, format!("`{path}` does not exist: a part of it is not a folder"))
        }
        Errno::ISDIR => failure(FailureCode::Unsupported, format!("`{path}` is a folder")),
        Errno::NAMETOOLONG => invalid(format!("`{path}` is too long for a path")),
        errno => failure(FailureCode::ToolError, format!("cannot {attempt} `{path}`: {}", in_words(errno))),
    }
}

/// The system's own words, without the number that `std` puts behind them.
pub fn in_words(errno: Errno) -> String {
    let words = std::io::Error::from(errno).to_string();
    words.split(" (os error").next().unwrap_or(&words).to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_speaks_in_words_and_not_in_numbers() {
        let failure = system("write", "a/b")(Errno::NOSPC);
        assert_eq!(failure.code, FailureCode::ToolError);
        assert_eq!(failure.message, "cannot write `a/b`: no space left on device");
        assert!(!system("open", "x")(Errno::NOENT).retryable);
    }
}
