//! The contract of a store for the content of attached files that all nodes of a log share.

use std::time::Duration;

use async_trait::async_trait;
use parlor_vocab::MediaId;

use crate::LogError;

/// The content of attached files by their ids, beside the events that refer to them.
///
/// An id is the SHA-256 of the content in hexadecimal digits; callers check it. A file is stored, or renewed, before an
/// event refers to it. It is deleted with the last session that refers to it, unless it was renewed since.
#[async_trait]
pub trait SharedMedia: Send + Sync {
    /// Stores a file, and returns when it is durable. Replaces a damaged one.
    async fn store(&self, id: &MediaId, content: &[u8]) -> Result<MediaVersion, LogError>;

    /// Renews a file if all of its content is there and undamaged. Returns whether it is.
    async fn renew_intact(&self, id: &MediaId) -> Result<bool, LogError>;

    /// Renews a file without a look at its content. Returns whether it exists.
    async fn renew(&self, id: &MediaId) -> Result<bool, LogError>;

    /// The size of a file in bytes.
    async fn file_size(&self, id: &MediaId) -> Result<Option<u64>, LogError>;

    /// Reads the piece with this number, which is 0 for the first; `None` after the last. Does not check the content.
    async fn piece(&self, id: &MediaId, number: u64) -> Result<Option<Vec<u8>>, LogError>;

    /// Removes a file if nobody has stored or renewed it since, and no event refers to it.
    async fn remove_unchanged(&self, id: &MediaId, version: MediaVersion) -> Result<(), LogError>;

    /// Removes the files that no event refers to and that nobody stored or renewed within `grace`, by the store's clock.
    /// With `dry_run`, only counts them. One process sweeps at a time; another finds nothing meanwhile.
    async fn sweep(&self, grace: Duration, dry_run: bool) -> Result<SweptMedia, LogError>;
}

/// Changes whenever a file is stored or renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MediaVersion(pub(crate) i64);

/// What a sweep of shared files removed, or would remove.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SweptMedia {
    /// The number of files.
    pub files: u64,
    /// Their total size in bytes.
    pub bytes: u64,
}
