//! Stores a file that arrives in pieces and need not fit into memory.

use parlor_vocab::Media;
use tokio::sync::OwnedSemaphorePermit;

use super::content_scanner::ContentScanner;
use super::temp::TempFile;
use super::{MediaError, MediaStore, PIECE_BYTES, clean_name, run_blocking};

/// A file that is being stored. Dropping it before [`Upload::finish`] deletes what was written.
pub struct Upload {
    /// `None` after a write failed or was cancelled.
    state: Option<UploadState>,
    store: MediaStore,
    _permit: OwnedSemaphorePermit,
}

struct UploadState {
    temp: TempFile,
    scanner: ContentScanner,
    /// Bytes that are not written yet: at most [`PIECE_BYTES`].
    buffer: Vec<u8>,
}

impl Upload {
    pub(super) fn new(
        temp: TempFile,
        scanner: ContentScanner,
        permit: OwnedSemaphorePermit,
        store: MediaStore,
    ) -> Self {
        let state = UploadState { temp, scanner, buffer: Vec::new() };
        Self { state: Some(state), store, _permit: permit }
    }

    /// Adds the next bytes. After a failed or cancelled call, all later calls fail.
    pub async fn write(&mut self, mut bytes: &[u8]) -> Result<(), MediaError> {
        loop {
            let mut state = self.state.take().ok_or(MediaError::UploadFailed)?;
            let room = PIECE_BYTES - state.buffer.len();
            let (fitting, rest) = bytes.split_at(room.min(bytes.len()));
            state.scanner.check(state.buffer.len() + bytes.len())?;
            state.buffer.extend_from_slice(fitting);
            bytes = rest;
            if state.buffer.len() == PIECE_BYTES {
                let written =
                    run_blocking(self.store.folder_path.path(), move || state.flush().map(|()| state));
                state = written.await?;
            }
            self.state = Some(state);
            if bytes.is_empty() {
                return Ok(());
            }
        }
    }

    /// Ends the upload: stores the file under the hash of its bytes, and returns when it is synced to disk.
    pub async fn finish(mut self, name: &str) -> Result<Media, MediaError> {
        let mut state = self.state.take().ok_or(MediaError::UploadFailed)?;
        let name = clean_name(name);
        let stored = run_blocking(self.store.folder_path.path(), move || {
            state.flush()?;
            state.store(name)
        });
        let media = stored.await?;
        self.store.share_cached(&media.id).await?;
        Ok(media)
    }
}

impl UploadState {
    fn flush(&mut self) -> Result<(), MediaError> {
        self.scanner.update(&self.buffer)?;
        self.temp.write(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }

    fn store(mut self, name: String) -> Result<Media, MediaError> {
        let media = self.scanner.finish(name);
        if !self.temp.is_stored_as(&media)? {
            self.temp.commit(&media.id)?;
        }
        Ok(media)
    }
}
