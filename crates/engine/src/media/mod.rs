//! Files that come along with messages, stored by what is in them.
//!
//! [`MediaStore`] keeps each content once, in `$PARLOR_HOME/media`, under the hash of its bytes. What
//! it says is stored is on the disk, so that an event may refer to it. `docs/media.md` is the page
//! for those who run parlor.
//!
//! Deliberately absent: who refers to a file, how long sessions are kept, and so how much is stored
//! in all. Whoever knows the references calls [`MediaStore::sweep`].

mod error;
mod folder;
mod gauge;
mod name;
mod sniff;
mod sweep;
mod temp;
#[cfg(test)]
mod tests;
mod upload;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parlor_vocab::{Media, MediaId, Timestamp};
use tokio::sync::Semaphore;

pub use error::MediaError;
pub use folder::LOCK_WAIT;
pub use name::{MAX_NAME_CHARS, NAMELESS, clean_name};
pub use sweep::Swept;
pub use upload::Upload;

use folder::{Folder, Place, is_id};
use gauge::{Gauge, id_of};
use sweep::{Rule, remove_all, sweep};
use temp::Temp;

/// The largest file that doors take, unless they are told otherwise: 25 MiB.
pub const MAX_MEDIA_BYTES: u64 = 25 << 20;

/// How many uploads may be under way at a time. Each holds an open file and [`PIECE_BYTES`].
pub const MAX_UPLOADS: usize = 64;

/// How much of an upload is gathered in memory before it is written.
pub const PIECE_BYTES: usize = 256 << 10;

/// How old a file must be before a sweep takes it away: one day. A file is stored before the event
/// that refers to it, and nothing tells a sweep that the event is still to come.
pub const SWEEP_GRACE: Duration = Duration::from_secs(24 * 60 * 60);

/// The folder inside of the state folder.
const FOLDER: &str = "media";

/// The stored files of one state folder. Cheap to clone; several processes may use one folder.
///
/// A future that is dropped before it is done may have its effect later.
#[derive(Clone, Debug)]
pub struct MediaStore {
    place: Arc<Place>,
    uploads: Arc<Semaphore>,
}

impl MediaStore {
    /// The store in the state folder `home`. Makes nothing: there is no folder before the first file.
    pub fn open(home: &Path) -> Result<Self, MediaError> {
        let home = std::path::absolute(home).map_err(MediaError::io("find", home))?;
        let folder = home.join(FOLDER);
        let place = Place::new(home, folder);
        place.existing()?;
        Ok(Self { place: Arc::new(place), uploads: Arc::new(Semaphore::new(MAX_UPLOADS)) })
    }

    /// Stores `bytes`, if they are at most `limit`, and returns when they are on the disk. Content
    /// that is there already is not written again, and counts as new from now on.
    ///
    /// `name` is what people called it; see [`clean_name`].
    pub async fn put(
        &self,
        name: &str,
        bytes: impl AsRef<[u8]> + Send + 'static,
        limit: u64,
    ) -> Result<Media, MediaError> {
        let name = clean_name(name);
        self.work(move |place| put(place, name, bytes.as_ref(), limit)).await
    }

    /// Begins to store something that comes piece by piece and is at most `limit` bytes in the end.
    pub async fn begin(&self, limit: u64) -> Result<Upload, MediaError> {
        let permit = Arc::clone(&self.uploads).try_acquire_owned();
        let permit = permit.map_err(|_| MediaError::TooManyUploads { limit: MAX_UPLOADS })?;
        let temp = self.work(|place| Temp::create(place.made()?)).await?;
        Ok(Upload::new(temp, Gauge::new(limit), permit, self.place.path().to_owned()))
    }

    /// All bytes of a stored file, if they are at most `max`. Looks whether they are still the ones
    /// that were stored.
    pub async fn read(&self, id: &MediaId, max: u64) -> Result<Vec<u8>, MediaError> {
        let id = id.clone();
        self.work(move |place| read(place, &id, max)).await
    }

    /// A stored file and its size in bytes, for what is too large for [`Self::read`]. The bytes are
    /// not looked at. The file stays readable when a sweep takes it away.
    pub async fn open_file(&self, id: &MediaId) -> Result<(File, u64), MediaError> {
        let id = id.clone();
        self.work(move |place| open_file(place, &id)).await
    }

    /// Makes a stored file count as new. For whoever refers to a file without storing it, such as by
    /// an id that a client named: afterwards there is [`SWEEP_GRACE`] to record the reference.
    pub async fn renew(&self, id: &MediaId) -> Result<(), MediaError> {
        let id = id.clone();
        let renew = move |place: &Place| match known(place, &id)?.renew(&id)? {
            Some(_) => Ok(()),
            None => Err(MediaError::Missing(id)),
        };
        self.work(renew).await
    }

    /// Where a stored file is or would be. It is not to be changed.
    pub fn path_of(&self, id: &MediaId) -> Result<PathBuf, MediaError> {
        if is_id(id.as_str()) {
            Ok(self.place.path().join(id.as_str()))
        } else {
            Err(MediaError::Missing(id.clone()))
        }
    }

    /// Takes away what is not in `referenced` and was neither stored nor renewed within `grace`
    /// before `now`, and what dead processes left of uploads that long ago. With `dry_run` it only
    /// says what it would take.
    ///
    /// Foreign files, folders and links are left alone. [`SWEEP_GRACE`] is the grace to give.
    pub async fn sweep(
        &self,
        referenced: BTreeSet<MediaId>,
        grace: Duration,
        now: Timestamp,
        dry_run: bool,
    ) -> Result<Swept, MediaError> {
        let rule = Rule { grace, now, dry_run };
        self.work(move |place| match place.existing()? {
            Some(folder) => sweep(&folder, &referenced, rule),
            None => Ok(Swept::default()),
        })
        .await
    }

    /// Takes away those of `ids` that were neither stored nor renewed after `used`. For whoever knows that nothing
    /// refers to them since what referred to them last, at that time, is deleted.
    pub async fn remove(&self, ids: BTreeSet<MediaId>, used: Timestamp) -> Result<Swept, MediaError> {
        let rule = Rule { grace: Duration::ZERO, now: used, dry_run: false };
        self.work(move |place| match place.existing()? {
            Some(folder) => remove_all(&folder, &ids, rule),
            None => Ok(Swept::default()),
        })
        .await
    }

    async fn work<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Place) -> Result<T, MediaError> + Send + 'static,
    ) -> Result<T, MediaError> {
        let place = Arc::clone(&self.place);
        blocking(self.place.path(), move || work(&place)).await
    }
}

/// Does `work` on a thread that may block.
async fn blocking<T: Send + 'static>(
    path: &Path,
    work: impl FnOnce() -> Result<T, MediaError> + Send + 'static,
) -> Result<T, MediaError> {
    let broken = |error| MediaError::io("finish the work on", path)(io::Error::other(error));
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(broken(error)))
}

fn put(place: &Place, name: String, bytes: &[u8], limit: u64) -> Result<Media, MediaError> {
    let mut gauge = Gauge::new(limit);
    gauge.take(bytes)?;
    let media = gauge.finish(name);
    let folder = place.made()?;
    // Before anything is written: what is there already takes no room, even on a full disk.
    if !folder.has(&media, bytes)? {
        let mut temp = Temp::create(folder)?;
        temp.write(bytes)?;
        temp.settle(&media.id)?;
    }
    Ok(media)
}

/// The folder, if it may hold `id`: what is no hash is not even looked for.
fn known(place: &Place, id: &MediaId) -> Result<Folder, MediaError> {
    let folder = if is_id(id.as_str()) { place.existing()? } else { None };
    folder.ok_or_else(|| MediaError::Missing(id.clone()))
}

fn open_file(place: &Place, id: &MediaId) -> Result<(File, u64), MediaError> {
    known(place, id)?.open_file(id)?.ok_or_else(|| MediaError::Missing(id.clone()))
}

fn read(place: &Place, id: &MediaId, max: u64) -> Result<Vec<u8>, MediaError> {
    let (file, size) = open_file(place, id)?;
    if size > max {
        return Err(MediaError::TooLarge { limit: max });
    }
    let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0));
    let path = place.path().join(id.as_str());
    // No more than was said, even if somebody lets the file grow meanwhile.
    file.take(size).read_to_end(&mut bytes).map_err(MediaError::io("read", &path))?;
    if id_of(&bytes) == *id { Ok(bytes) } else { Err(MediaError::Corrupt { path }) }
}
