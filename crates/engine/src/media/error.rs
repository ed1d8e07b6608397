//! Why a file could not be stored or found.

use std::io;
use std::path::PathBuf;

use parlor_vocab::MediaId;

use super::LOCK_WAIT;

/// Why a file could not be stored or found. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum MediaError {
    /// It is larger than the caller allows.
    #[error("the file is larger than the limit of {limit} bytes; send a smaller one")]
    TooLarge {
        /// The most bytes that were allowed.
        limit: u64,
    },
    /// No stored file has this id.
    #[error("no file {0} is stored; send the file again")]
    Missing(MediaId),
    /// The stored bytes are not the ones that were stored.
    #[error("the stored file {path:?} was changed or damaged; send the file again, which repairs it")]
    Corrupt {
        /// The file.
        path: PathBuf,
    },
    /// As many uploads are under way as may be.
    #[error("{limit} uploads are under way, which is the limit; wait for one to end")]
    TooManyUploads {
        /// How many may be.
        limit: usize,
    },
    /// A write of the upload failed or was given up, and its bytes are gone.
    #[error("the upload has failed already; begin it again")]
    Broken,
    /// The disk, or the quota, is full.
    #[error("no room left on the disk that holds {path:?}; free some and try again")]
    Full {
        /// The file or folder.
        path: PathBuf,
    },
    /// The place may be read only.
    #[error("{path:?} cannot be written; make the folder and its files writable, or choose another folder")]
    ReadOnly {
        /// The file or folder.
        path: PathBuf,
    },
    /// Another process kept the folder to itself for too long.
    #[error("the folder {path:?} was kept busy by another process for {} seconds; try again", LOCK_WAIT.as_secs())]
    Busy {
        /// The folder.
        path: PathBuf,
    },
    /// The operating system failed in another way.
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

impl MediaError {
    /// For `map_err`: the system refused to `attempt`.
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
