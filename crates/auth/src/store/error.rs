//! The errors of the secret store.

use std::io;
use std::path::PathBuf;

use super::{LOCK_WAIT, SECRET_BYTES};

/// Why a secret could not be stored or read. The text never contains the secret.
#[derive(Debug, thiserror::Error)]
pub enum SecretStoreError {
    /// The permissions allow other users to read or change it.
    #[error("{path:?} can be read or changed by others; look whether it was, then: chmod {mode} {path:?}")]
    Exposed {
        /// The file or folder.
        path: PathBuf,
        /// The mode that it should have.
        mode: &'static str,
    },
    /// It belongs to another user.
    #[error("{path:?} belongs to another user; move it away and log in again")]
    Foreign {
        /// The file or folder.
        path: PathBuf,
    },
    /// It is not a regular file or folder but a link or something else.
    #[error("{path:?} is not a plain {wanted}; move it away and log in again")]
    NotPlain {
        /// The path of the file that is in the way.
        path: PathBuf,
        /// "file" or "folder".
        wanted: &'static str,
    },
    /// The secret is longer than [`SECRET_BYTES`].
    #[error("a secret has at most {SECRET_BYTES} bytes")]
    TooLarge,
    /// The stored text is not a login.
    #[error("what is kept for {name} cannot be understood; log in again with: parlor login {name}")]
    Corrupt {
        /// The name of the provider.
        name: String,
    },
    /// Another process held the lock of the secret for longer than [`LOCK_WAIT`].
    #[error("{path:?} was held by another process for {} seconds; try again", LOCK_WAIT.as_secs())]
    Busy {
        /// Where the secret is stored.
        path: PathBuf,
    },
    /// The keyring has the secret and failed.
    #[error(
        "{name} is in the system's keyring, which cannot be used: {reason}; unlock it and try again; a login or \
         key that is given anew is kept in a file then"
    )]
    Keyring {
        /// The name of the secret.
        name: String,
        /// The error of the keyring.
        reason: String,
    },
    /// A system call failed.
    #[error("cannot {attempt} {path:?}: {source}")]
    Io {
        /// What the store tried to do, as a verb.
        attempt: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The error of the system call.
        source: io::Error,
    },
}

impl SecretStoreError {
    /// For `map_err`: an [`Io`](Self::Io) error of this `attempt`.
    pub(super) fn io<E: Into<io::Error>>(
        attempt: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(E) -> Self {
        let path = path.into();
        move |source| Self::Io { attempt, path, source: source.into() }
    }
}
