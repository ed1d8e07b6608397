//! The error of starting a process.

use std::path::PathBuf;

use rustix::io::Errno;

/// Why a process could not be started. No process is left behind.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// The working folder is not an absolute path.
    #[error("working folder {0:?} is not an absolute path")]
    RelativeFolder(PathBuf),
    /// A text for the program contains a NUL byte, which the kernel does not accept.
    #[error("{0} holds a NUL byte")]
    NulByte(&'static str),
    /// The working folder cannot be entered.
    #[error("cannot enter working folder {folder:?}: {errno}")]
    Folder {
        /// The folder of the request.
        folder: PathBuf,
        /// The error of the operating system.
        errno: Errno,
    },
    /// The program cannot be run.
    #[error("cannot run {program:?}: {errno}")]
    Program {
        /// The program of the request.
        program: String,
        /// The error of the operating system.
        errno: Errno,
    },
    /// The sandbox cannot be set up. The process was not started without it.
    #[error("cannot set up the sandbox: {0}")]
    Sandbox(String),
    /// The operating system has no free descriptors, terminals or processes.
    #[error("cannot {attempt}: {errno}")]
    System {
        /// The step that failed, such as `open a pipe`.
        attempt: &'static str,
        /// The error of the operating system.
        errno: Errno,
    },
}

impl SpawnError {
    /// Makes a [`System`](Self::System) error, for `map_err`.
    pub(crate) fn system(attempt: &'static str) -> impl FnOnce(Errno) -> Self {
        move |errno| Self::System { attempt, errno }
    }

    /// Like [`system`](Self::system), for calls that return an `io::Error`.
    pub(crate) fn runtime<E: Into<std::io::Error>>(attempt: &'static str) -> impl FnOnce(E) -> Self {
        move |error| Self::System { attempt, errno: Errno::from_io_error(&error.into()).unwrap_or(Errno::IO) }
    }
}
