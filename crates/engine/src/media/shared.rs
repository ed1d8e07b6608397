//! The content of files in the log that all nodes share. The folder of a node is a cache: ids are hashes, so that a cached
//! file is never out of date, and a file that is missing or damaged there is fetched again.

use std::time::Duration;

use parlor_log::{MediaVersion, SharedMedia};
use parlor_vocab::MediaId;

use super::content_scanner::{ContentScanner, id_of};
use super::folder::{FolderPath, is_id};
use super::temp::TempFile;
use super::{CreatedFile, MediaError, MediaStore, SweepReport, read};

/// Reads a file of at most `max` bytes from a store of all nodes without a folder, and checks that it matches its id.
pub async fn read_shared(shared: &dyn SharedMedia, id: &MediaId, max: u64) -> Result<Vec<u8>, MediaError> {
    let size = shared.file_size(id).await?.ok_or_else(|| MediaError::Missing(id.clone()))?;
    if size > max {
        return Err(MediaError::TooLarge { limit: max });
    }
    let mut content = Vec::new();
    for number in 0.. {
        let Some(piece) = shared.piece(id, number).await? else { break };
        if content.len() as u64 + piece.len() as u64 > size {
            break;
        }
        content.extend_from_slice(&piece);
    }
    if id_of(&content) == *id { Ok(content) } else { Err(MediaError::SharedCorrupt(id.clone())) }
}

impl MediaStore {
    /// Whether a file that could not be read from the folder can be in the store of all nodes.
    pub(super) fn may_be_elsewhere<T>(&self, cached: &Result<T, MediaError>) -> bool {
        self.shared.is_some() && matches!(cached, Err(MediaError::Missing(_) | MediaError::Corrupt { .. }))
    }

    /// Stores content for all nodes, or renews it. Returns its version if it was not there before.
    pub(super) async fn share(
        &self,
        id: &MediaId,
        content: &[u8],
    ) -> Result<Option<MediaVersion>, MediaError> {
        let Some(shared) = &self.shared else { return Ok(None) };
        if shared.renew_intact(id).await? {
            return Ok(None);
        }
        Ok(Some(shared.store(id, content).await?))
    }

    /// Stores a file of the folder for all nodes.
    pub(super) async fn share_cached(&self, id: &MediaId) -> Result<(), MediaError> {
        if self.shared.is_none() {
            return Ok(());
        }
        let read_id = id.clone();
        let content = self.run_blocking(move |folder| read(folder, &read_id, u64::MAX)).await?;
        self.share(id, &content).await.map(|_| ())
    }

    /// Renews a file in the store of all nodes. Returns false if there is no such store. A file that only the folder has, such
    /// as one from before the log was shared, is stored for all nodes.
    pub(super) async fn renew_shared(&self, id: &MediaId) -> Result<bool, MediaError> {
        let Some(shared) = &self.shared else { return Ok(false) };
        if !is_id(id.as_str()) {
            return Err(MediaError::Missing(id.clone()));
        }
        if !shared.renew(id).await? {
            self.share_cached(id).await?;
        }
        Ok(true)
    }

    /// Brings a file of at most `max` bytes from the store of all nodes into the folder, if its content matches its id.
    pub(super) async fn fetch(&self, id: &MediaId, max: u64) -> Result<(), MediaError> {
        let missing = || MediaError::Missing(id.clone());
        let shared = self.shared.as_ref().filter(|_| is_id(id.as_str())).ok_or_else(missing)?;
        let size = shared.file_size(id).await?.ok_or_else(missing)?;
        if size > max {
            return Err(MediaError::TooLarge { limit: max });
        }
        // Each fetch holds a piece in memory and a file open.
        let _permit = self.uploads.acquire().await.map_err(|_| MediaError::UploadFailed)?;
        let mut temp =
            self.run_blocking(|folder: &FolderPath| TempFile::create(folder.open_or_create()?)).await?;
        let mut scanner = ContentScanner::new(size);
        let mut number = 0;
        while let Some(piece) = shared.piece(id, number).await? {
            scanner.update(&piece).map_err(|_| MediaError::SharedCorrupt(id.clone()))?;
            temp = self.run_blocking(move |_| temp.write(&piece).map(|()| temp)).await?;
            number += 1;
        }
        let found = scanner.finish(String::new());
        if found.id != *id {
            return Err(MediaError::SharedCorrupt(id.clone()));
        }
        self.run_blocking(move |_| temp.commit(&found.id)).await.map(|_| ())
    }

    /// Removes the files from the store of all nodes that this store has created, unless somebody uses them.
    pub(super) async fn remove_shared(&self, files: &[CreatedFile]) -> Result<(), MediaError> {
        let Some(shared) = &self.shared else { return Ok(()) };
        for CreatedFile { id, shared: version, .. } in files {
            if let Some(version) = version {
                shared.remove_unchanged(id, *version).await?;
            }
        }
        Ok(())
    }

    /// Sweeps the store of all nodes, if there is one.
    pub(super) async fn sweep_shared(
        &self,
        grace: Duration,
        dry_run: bool,
    ) -> Result<Option<SweepReport>, MediaError> {
        let Some(shared) = &self.shared else { return Ok(None) };
        let swept = shared.sweep(grace, dry_run).await?;
        Ok(Some(SweepReport { files: swept.files, bytes: swept.bytes }))
    }
}
