//! A file that comes piece by piece and need not fit into memory.

use std::path::PathBuf;

use parlor_vocab::Media;
use tokio::sync::OwnedSemaphorePermit;

use super::gauge::Gauge;
use super::temp::Temp;
use super::{MediaError, PIECE_BYTES, blocking, clean_name};

/// A file that is being stored. Dropped before it is finished, it leaves nothing behind.
pub struct Upload {
    /// None once a write has failed or was given up.
    work: Option<Work>,
    folder: PathBuf,
    _permit: OwnedSemaphorePermit,
}

struct Work {
    temp: Temp,
    gauge: Gauge,
    /// What is not written yet: at most [`PIECE_BYTES`].
    gathered: Vec<u8>,
}

impl Upload {
    pub(super) fn new(temp: Temp, gauge: Gauge, permit: OwnedSemaphorePermit, folder: PathBuf) -> Self {
        let work = Work { temp, gauge, gathered: Vec::new() };
        Self { work: Some(work), folder, _permit: permit }
    }

    /// Takes the next bytes. After a failure, and after a call that was given up, all others fail.
    pub async fn write(&mut self, mut bytes: &[u8]) -> Result<(), MediaError> {
        loop {
            let mut work = self.work.take().ok_or(MediaError::Broken)?;
            let room = PIECE_BYTES - work.gathered.len();
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            work.gauge.check(work.gathered.len() + bytes.len())?;
            work.gathered.extend_from_slice(now);
            bytes = later;
            if work.gathered.len() == PIECE_BYTES {
                let written = blocking(&self.folder, move || work.flush().map(|()| work));
                work = written.await?;
            }
            self.work = Some(work);
            if bytes.is_empty() {
                return Ok(());
            }
        }
    }

    /// That was all: stores it under the hash of its bytes, and returns when it is on the disk.
    pub async fn finish(mut self, name: &str) -> Result<Media, MediaError> {
        let mut work = self.work.take().ok_or(MediaError::Broken)?;
        let name = clean_name(name);
        blocking(&self.folder, move || {
            work.flush()?;
            work.store(name)
        })
        .await
    }
}

impl Work {
    fn flush(&mut self) -> Result<(), MediaError> {
        self.gauge.take(&self.gathered)?;
        self.temp.write(&self.gathered)?;
        self.gathered.clear();
        Ok(())
    }

    fn store(mut self, name: String) -> Result<Media, MediaError> {
        let media = self.gauge.finish(name);
        if !self.temp.is_stored_as(&media)? {
            self.temp.settle(&media.id)?;
        }
        Ok(media)
    }
}
