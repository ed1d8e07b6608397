//! The words by which programs tell failures apart that are about a path.

use parlor_vocab::Failure;
use rustix::io::Errno;

/// The path is not one: empty, relative where it may not be, too long.
pub const INVALID_INPUT: &str = "INVALID_INPUT";
/// There is no such file or folder.
pub const NOT_FOUND: &str = "NOT_FOUND";
/// The path leads out of the allowed folders.
pub const PATH_REFUSED: &str = "PATH_REFUSED";
/// Symbolic links or files on the way changed again and again while they were looked at.
pub const PATH_CHANGED: &str = "PATH_CHANGED";
/// What is there is of a kind that is not handled: a folder, a device, a binary file.
pub const UNSUPPORTED: &str = "UNSUPPORTED";
/// The system said no: permissions, a full disk, a program that cannot be run.
pub const TOOL_ERROR: &str = "TOOL_ERROR";

/// Makes a failure. Whether the same may succeed later follows from the code.
pub(crate) fn failure(code: &'static str, message: impl Into<String>) -> Failure {
    Failure { code: code.to_owned(), message: message.into(), retryable: code == PATH_CHANGED }
}

/// For the many checks of an input.
pub fn invalid(message: impl Into<String>) -> Failure {
    failure(INVALID_INPUT, message)
}

/// For `map_err`: the system refused something about `path`, which is quoted as it was given.
pub fn system(attempt: &'static str, path: &str) -> impl Fn(Errno) -> Failure {
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
        assert_eq!(failure.code, TOOL_ERROR);
        assert_eq!(failure.message, "cannot write `a/b`: no space left on device");
        assert!(!system("open", "x")(Errno::NOENT).retryable);
    }
}
