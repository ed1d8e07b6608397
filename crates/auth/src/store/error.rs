//! Why a secret could not be kept or found.

use std::io;
use std::path::PathBuf;

use super::{LOCK_WAIT, SECRET_BYTES};

/// Why a secret could not be kept or found. Never says anything of its content.
#[derive(Debug, thiserror::Error)]
pub enum SecretStoreError {
    /// Somebody other than the user could read or change it.
    #[error("{path:?} can be read or changed by others; look whether it was, then: chmod {mode} {path:?}")]
    Exposed {
        /// The file or folder.
        path: PathBuf,
        /// What its mode should be.
        mode: &'static str,
    },
    /// It belongs to another user.
    #[error("{path:?} belongs to another user; move it away and log in again")]
    Foreign {
        /// The file or folder.
        path: PathBuf,
    },
    /// A link, a folder or something else stands where a secret should.
    #[error("{path:?} is not a plain {wanted}; move it away and log in again")]
    NotPlain {
        /// What is in the way.
        path: PathBuf,
        /// What should be there.
        wanted: &'static str,
    },
    /// More than a secret can have.
    #[error("a secret has at most {SECRET_BYTES} bytes")]
    TooLarge,
    /// It is not what was written.
    #[error("what is kept for {name} cannot be understood; log in again with: parlor login {name}")]
    Corrupt {
        /// The provider.
        name: String,
    },
    /// Another process had the secret to itself for too long.
    #[error("{path:?} was held by another process for {} seconds; try again", LOCK_WAIT.as_secs())]
    Busy {
        /// The lock.
        path: PathBuf,
    },
    /// The system's keyring refused.
    #[error(
        "{name} is in the system's keyring, which cannot be used: {reason}; unlock it and try again; a login or \
         key that is given anew is kept in a file then"
    )]
    Keyring {
        /// What is to be had.
        name: String,
        /// What it said.
        reason: String,
    },
    /// The operating system failed.
    #[error("cannot {attempt} {path:?}: {source}")]
    Io {
        /// What was attempted.
        attempt: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl SecretStoreError {
    /// For `map_err`: the system refused to `attempt`.
    pub(super) fn io<E: Into<io::Error>>(
        attempt: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(E) -> Self {
        let path = path.into();
        move |source| Self::Io { attempt, path, source: source.into() }
    }
}
