//! Why a record cannot be read, or an undo cannot begin.

use std::io;
use std::path::{Path, PathBuf};

use parlor_vocab::{Failure, RunId, SessionId};

/// Why the store of changes cannot do what it is asked.
#[derive(Debug, thiserror::Error)]
pub enum UndoError {
    /// The run has no record: it changed nothing, or its record was removed to make room.
    #[error(
        "no changes of run {0} are kept: it changed no files, or it is so old that its record was removed"
    )]
    NoRecord(RunId),
    /// A run of the session is changing files, or another undo is.
    #[error(
        "files of session {0} are being changed now; wait for the end of the run, or stop it, and try again"
    )]
    Busy(SessionId),
    /// The working folder cannot be opened.
    #[error("the working folder cannot be used: {0}")]
    Folder(String),
    /// A file of the store is damaged.
    #[error("`{}` was changed or damaged", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
    },
    /// A system call failed.
    #[error("cannot {action} `{}`: {source}", path.display())]
    Io {
        /// What was tried, such as `read`.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
}

impl UndoError {
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { action, path: path.to_owned(), source }
    }
}

impl From<Failure> for UndoError {
    fn from(failure: Failure) -> Self {
        Self::Folder(failure.message)
    }
}
