//! Errors of the media store.

use std::io;
use std::path::PathBuf;

use parlor_log::LogError;
use parlor_vocab::MediaId;

use super::LOCK_WAIT;

/// Why the media store could not store or find a file. The store is unchanged.
#[derive(Debug, thiserror::Error)]
pub enum MediaError {
    /// The file is larger than the caller allows.
    #[error("the file is larger than the limit of {limit} bytes; send a smaller one")]
    TooLarge {
        /// The allowed size in bytes.
        limit: u64,
    },
    /// No stored file has this id.
    #[error("no file {0} is stored; send the file again")]
    Missing(MediaId),
    /// The hash of the stored bytes is not the file's id.
    #[error("the stored file {path:?} was changed or damaged; send the file again, which repairs it")]
    Corrupt {
        /// The damaged file.
        path: PathBuf,
    },
    /// The limit of concurrent uploads is reached.
    #[error("{limit} uploads are under way, which is the limit; wait for one to end")]
    TooManyUploads {
        /// How many uploads may be under way.
        limit: usize,
    },
    /// An earlier write of this upload failed or was cancelled; its bytes are deleted.
    #[error("the upload has failed already; begin it again")]
    UploadFailed,
    /// The disk or the user's quota is full.
    #[error("no room left on the disk that holds {path:?}; free some and try again")]
    Full {
        /// The file or folder that needed the space.
        path: PathBuf,
    },
    /// The file system or its permissions forbid writing.
    #[error("{path:?} cannot be written; make the folder and its files writable, or choose another folder")]
    ReadOnly {
        /// The file or folder that cannot be written.
        path: PathBuf,
    },
    /// Another process held the folder's lock for longer than [`LOCK_WAIT`].
    #[error("the folder {path:?} was kept busy by another process for {} seconds; try again", LOCK_WAIT.as_secs())]
    Busy {
        /// The locked folder.
        path: PathBuf,
    },
    /// The log that all nodes share failed.
    #[error("the attached file is in the shared log, which failed: {0}")]
    Shared(#[from] LogError),
    /// The content in the shared log has another hash than its id.
    #[error("the file {0} in the shared log was changed or damaged; send the file again, which repairs it")]
    SharedCorrupt(MediaId),
    /// The operating system failed in another way.
    #[error("cannot {attempt} {path:?}: {source}")]
    Io {
        /// The failed operation, as a verb phrase for the error text.
        attempt: &'static str,
        /// The file or folder of the operation.
        path: PathBuf,
        /// The error of the system call.
        source: io::Error,
    },
}

impl MediaError {
    /// Makes a function for `map_err` that turns a system error of `attempt` into a [`MediaError`].
    pub(super) fn io<E: Into<io::Error>>(
        attempt: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(E) -> Self {
        let path = path.into();
        move |source| {
            use io::ErrorKind::{PermissionDenied, QuotaExceeded, ReadOnlyFilesystem, StorageFull};
            let source = source.into();
            if matches!(source.kind(), StorageFull | QuotaExceeded) {
                Self::Full { path }
            } else if matches!(source.kind(), ReadOnlyFilesystem | PermissionDenied) {
                Self::ReadOnly { path }
            } else {
                Self::Io { attempt, path, source }
            }
        }
    }
}
