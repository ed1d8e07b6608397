//! Why a process could not be started.

use std::path::PathBuf;

use rustix::io::Errno;

/// Why a process could not be started. Nothing is left behind.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// The working folder is not an absolute path.
    #[error("working folder {0:?} is not an absolute path")]
    RelativeFolder(PathBuf),
    /// A NUL byte cannot be handed to a program.
    #[error("{0} holds a NUL byte")]
    NulByte(&'static str),
    /// The working folder cannot be entered.
    #[error("cannot enter working folder {folder:?}: {errno}")]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// What the system said.
        errno: Errno,
    },
    /// The program cannot be run.
    #[error("cannot run {program:?}: {errno}")]
    Program {
        /// The program as it was named.
        program: String,
        /// What the system said.
        errno: Errno,
    },
    /// The system has no room: descriptors, terminals or processes.
    #[error("cannot {attempt}: {errno}")]
    System {
        /// What was attempted.
        attempt: &'static str,
        /// What the system said.
        errno: Errno,
    },
}

impl SpawnError {
    /// For `map_err`: the system refused to `attempt`.
    pub(crate) fn system(attempt: &'static str) -> impl FnOnce(Errno) -> Self {
        move |errno| Self::System { attempt, errno }
    }

    /// For `map_err`, where the runtime speaks of `io::Error`.
    pub(crate) fn runtime<E: Into<std::io::Error>>(attempt: &'static str) -> impl FnOnce(E) -> Self {
        move |error| Self::System { attempt, errno: Errno::from_io_error(&error.into()).unwrap_or(Errno::IO) }
    }
}
