//! Stores the files that are attached to messages, by content.
//!
//! [`MediaStore`] keeps each content once, in `$PARLOR_HOME/media`, under the hash of its bytes. A file that it
//! reports as stored is synced to disk, so an event may refer to it. With a log that several nodes share, the content is in
//! that log as well, and the folder is a cache (`shared.rs`). `docs/media.md` is the page for operators.
//!
//! Deliberately absent: which events refer to a file, how long sessions are kept, and therefore a limit of the total
//! size. The caller that knows the references calls [`MediaStore::sweep`].

mod content_scanner;
mod error;
mod folder;
mod name;
mod shared;
mod sniff;
mod sweep;
mod temp;
#[cfg(test)]
mod tests;
mod upload;

use std::collections::{BTreeSet, VecDeque};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use parlor_log::{MediaVersion, SharedMedia};
use parlor_vocab::{Media, MediaId, Timestamp};
use tokio::sync::Semaphore;

pub use error::MediaError;
pub use folder::LOCK_WAIT;
pub use name::{MAX_NAME_CHARS, UNNAMED, clean_name};
pub use shared::read_shared;
pub use sweep::SweepReport;
pub use upload::Upload;

use content_scanner::{ContentScanner, id_of};
use folder::{FileTime, Folder, FolderPath, is_id};
use sweep::{SweepRule, remove_all, remove_unchanged, sweep};
use temp::TempFile;

/// The default limit for a file that a door accepts: 25 MiB.
pub const MAX_MEDIA_BYTES: u64 = 25 << 20;

/// How many uploads may be under way at a time. Each holds an open file and [`PIECE_BYTES`].
pub const MAX_UPLOADS: usize = 64;

/// How many bytes of an upload are buffered in memory before they are written.
pub const PIECE_BYTES: usize = 256 << 10;

/// How old an unreferenced file must be before a sweep removes it: one day. A file is stored before the event that
/// refers to it, and a sweep cannot know that such an event is about to come.
pub const SWEEP_GRACE: Duration = Duration::from_secs(24 * 60 * 60);

/// How many files that it has created the store remembers, so that they can be discarded.
const MAX_CREATED: usize = 1024;

/// The name of the store's folder in the state folder.
const FOLDER: &str = "media";

/// The stored files of one state folder. Cheap to clone; several processes may use one folder.
///
/// Dropping a returned future does not cancel its work: the operation may still take effect later.
#[derive(Clone)]
pub struct MediaStore {
    folder_path: Arc<FolderPath>,
    uploads: Arc<Semaphore>,
    /// The last files that this store has created, with the time when it did.
    created: Arc<Mutex<VecDeque<CreatedFile>>>,
    /// The store of all nodes. The folder is a cache then.
    shared: Option<Arc<dyn SharedMedia>>,
}

/// A file that this store has created.
#[derive(Clone)]
struct CreatedFile {
    id: MediaId,
    /// When it was created in the folder. `None` if it was there before.
    in_folder: Option<FileTime>,
    /// Its version in the store of all nodes. `None` if it was there before, or there is no such store.
    shared: Option<MediaVersion>,
}

impl MediaStore {
    /// Opens the store in the state folder `home`. Creates nothing: the first stored file creates the folder.
    pub fn open(home: &Path) -> Result<Self, MediaError> {
        let home = std::path::absolute(home).map_err(MediaError::io("find", home))?;
        let folder = home.join(FOLDER);
        let folder_path = FolderPath::new(home, folder);
        folder_path.open_existing()?;
        let uploads = Arc::new(Semaphore::new(MAX_UPLOADS));
        Ok(Self { folder_path: Arc::new(folder_path), uploads, created: Arc::default(), shared: None })
    }

    /// Keeps the content in `shared` as well, where all nodes find it. The folder is a cache then.
    pub fn with_shared(self, shared: Option<Arc<dyn SharedMedia>>) -> Self {
        Self { shared, ..self }
    }

    /// Stores at most `limit` bytes and returns when they are synced to disk. Content that is stored already is not
    /// written again, only renewed.
    ///
    /// `name` is the user's name for the file; see [`clean_name`].
    pub async fn put(
        &self,
        name: &str,
        bytes: impl AsRef<[u8]> + Send + Sync + 'static,
        limit: u64,
    ) -> Result<Media, MediaError> {
        let name = clean_name(name);
        let stored = move |folder: &FolderPath| {
            put(folder, name, bytes.as_ref(), limit).map(|(media, created)| (media, created, bytes))
        };
        let (media, in_folder, bytes) = self.run_blocking(stored).await?;
        let shared = self.share(&media.id, bytes.as_ref()).await?;
        if in_folder.is_some() || shared.is_some() {
            let mut all = self.created();
            all.push_back(CreatedFile { id: media.id.clone(), in_folder, shared });
            if all.len() > MAX_CREATED {
                all.pop_front();
            }
        }
        Ok(media)
    }

    /// Removes those of `ids` that this store has created, unless they have been stored again or renewed since. For a
    /// caller that refers to them by no event after all. What it cannot know, because it was too long ago, a sweep removes.
    pub async fn discard(&self, ids: Vec<MediaId>) -> Result<(), MediaError> {
        let mut discarded = Vec::new();
        self.created().retain(|created| {
            let is_discarded = ids.contains(&created.id);
            if is_discarded {
                discarded.push(created.clone());
            }
            !is_discarded
        });
        if discarded.is_empty() {
            return Ok(());
        }
        self.remove_shared(&discarded).await?;
        self.run_blocking(move |folder| {
            let Some(folder) = folder.open_existing()? else { return Ok(()) };
            let in_folder = discarded.iter().filter_map(|file| file.in_folder.map(|time| (&file.id, time)));
            in_folder.into_iter().try_for_each(|(id, time)| remove_unchanged(&folder, id, time))
        })
        .await
    }

    /// Locks in spite of poisoning: no code under the lock panics in the middle of a change.
    fn created(&self) -> MutexGuard<'_, VecDeque<CreatedFile>> {
        self.created.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins an upload of at most `limit` bytes that arrive in pieces.
    pub async fn begin_upload(&self, limit: u64) -> Result<Upload, MediaError> {
        let permit = Arc::clone(&self.uploads).try_acquire_owned();
        let permit = permit.map_err(|_| MediaError::TooManyUploads { limit: MAX_UPLOADS })?;
        let temp = self.run_blocking(|folder| TempFile::create(folder.open_or_create()?)).await?;
        Ok(Upload::new(temp, ContentScanner::new(limit), permit, self.clone()))
    }

    /// Reads all bytes of a stored file of at most `max` bytes, and checks that they still match its id.
    pub async fn read(&self, id: &MediaId, max: u64) -> Result<Vec<u8>, MediaError> {
        let read_id = id.clone();
        let cached = self.run_blocking(move |folder| read(folder, &read_id, max)).await;
        if !self.may_be_elsewhere(&cached) {
            return cached;
        }
        self.fetch(id, max).await?;
        let id = id.clone();
        self.run_blocking(move |folder| read(folder, &id, max)).await
    }

    /// The path of a stored file. Does not check the content.
    pub async fn path(&self, id: &MediaId) -> Result<PathBuf, MediaError> {
        self.open_file(id).await?;
        Ok(self.folder_path.path().join(id.as_str()))
    }

    /// Opens a stored file that may be too large for [`Self::read`]; also returns its size in bytes. Does not check
    /// the content. The handle stays readable when a sweep removes the file.
    pub async fn open_file(&self, id: &MediaId) -> Result<(File, u64), MediaError> {
        let open_id = id.clone();
        let cached = self.run_blocking(move |folder| open_file(folder, &open_id)).await;
        if !self.may_be_elsewhere(&cached) {
            return cached;
        }
        self.fetch(id, u64::MAX).await?;
        let id = id.clone();
        self.run_blocking(move |folder| open_file(folder, &id)).await
    }

    /// Sets a stored file's age to zero. For a caller that refers to a file without storing it, for example by an id
    /// that a client named: the caller then has [`SWEEP_GRACE`] to record the reference.
    pub async fn renew(&self, id: &MediaId) -> Result<(), MediaError> {
        if self.renew_shared(id).await? {
            return Ok(());
        }
        let id = id.clone();
        let renew = move |folder: &FolderPath| match folder_for(folder, &id)?.renew(&id)? {
            Some(_) => Ok(()),
            None => Err(MediaError::Missing(id)),
        };
        self.run_blocking(renew).await
    }

    /// The path of a stored file, whether or not it exists. Callers must not change the file.
    pub fn path_of(&self, id: &MediaId) -> Result<PathBuf, MediaError> {
        if is_id(id.as_str()) {
            Ok(self.folder_path.path().join(id.as_str()))
        } else {
            Err(MediaError::Missing(id.clone()))
        }
    }

    /// Removes files that are not in `referenced` and were neither stored nor renewed within `grace` before `now`,
    /// and unfinished uploads of dead processes that are as old. With `dry_run`, only reports what it would remove.
    ///
    /// Leaves foreign files, folders and links alone. Callers pass [`SWEEP_GRACE`] as `grace`; tests pass less.
    pub async fn sweep(
        &self,
        referenced: BTreeSet<MediaId>,
        grace: Duration,
        now: Timestamp,
        dry_run: bool,
    ) -> Result<SweepReport, MediaError> {
        let rule = SweepRule { grace, now, dry_run };
        let in_folder = self.run_blocking(move |folder| match folder.open_existing()? {
            Some(folder) => sweep(&folder, &referenced, rule),
            None => Ok(SweepReport::default()),
        });
        let in_folder = in_folder.await?;
        // The folder of a shared store has copies only.
        Ok(self.sweep_shared(grace, dry_run).await?.unwrap_or(in_folder))
    }

    /// Removes those of `ids` from the folder that were neither stored nor renewed after `last_used`. For a caller that has
    /// deleted the last events that referred to them, of which the newest is from `last_used`. A shared log deletes its
    /// files with the session.
    pub async fn remove(
        &self,
        ids: BTreeSet<MediaId>,
        last_used: Timestamp,
    ) -> Result<SweepReport, MediaError> {
        // A cached file may be newer, because it was fetched later. Whoever needs it fetches it again.
        let now = if self.shared.is_some() { Timestamp(i64::MAX) } else { last_used };
        let rule = SweepRule { grace: Duration::ZERO, now, dry_run: false };
        self.run_blocking(move |folder| match folder.open_existing()? {
            Some(folder) => remove_all(&folder, &ids, rule),
            None => Ok(SweepReport::default()),
        })
        .await
    }

    async fn run_blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&FolderPath) -> Result<T, MediaError> + Send + 'static,
    ) -> Result<T, MediaError> {
        let folder_path = Arc::clone(&self.folder_path);
        run_blocking(self.folder_path.path(), move || work(&folder_path)).await
    }
}

impl std::fmt::Debug for MediaStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MediaStore").field("folder", &self.folder_path).finish_non_exhaustive()
    }
}

/// Runs `work`, which concerns `path`, on a thread that may block.
async fn run_blocking<T: Send + 'static>(
    path: &Path,
    work: impl FnOnce() -> Result<T, MediaError> + Send + 'static,
) -> Result<T, MediaError> {
    let panicked = |error| MediaError::io("finish the work on", path)(io::Error::other(error));
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(panicked(error)))
}

/// Stores a file. Also returns when, if the file is new.
fn put(
    folder_path: &FolderPath,
    name: String,
    bytes: &[u8],
    limit: u64,
) -> Result<(Media, Option<FileTime>), MediaError> {
    let mut scanner = ContentScanner::new(limit);
    scanner.update(bytes)?;
    let media = scanner.finish(name);
    let folder = folder_path.open_or_create()?;
    // Checked before anything is written: known content needs no space, even on a full disk.
    if folder.renew_if_same(&media, bytes)? {
        return Ok((media, None));
    }
    let mut temp = TempFile::create(folder)?;
    temp.write(bytes)?;
    let created = temp.commit(&media.id)?;
    Ok((media, Some(created)))
}

/// Opens the folder to look for `id`. Fails early if `id` is not a hash, because it could be a path.
fn folder_for(folder_path: &FolderPath, id: &MediaId) -> Result<Folder, MediaError> {
    let folder = if is_id(id.as_str()) { folder_path.open_existing()? } else { None };
    folder.ok_or_else(|| MediaError::Missing(id.clone()))
}

fn open_file(folder_path: &FolderPath, id: &MediaId) -> Result<(File, u64), MediaError> {
    folder_for(folder_path, id)?.open_file(id)?.ok_or_else(|| MediaError::Missing(id.clone()))
}

fn read(folder_path: &FolderPath, id: &MediaId, max: u64) -> Result<Vec<u8>, MediaError> {
    let (file, size) = open_file(folder_path, id)?;
    if size > max {
        return Err(MediaError::TooLarge { limit: max });
    }
    let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0));
    let path = folder_path.path().join(id.as_str());
    // Reads at most `size` bytes, even if the file grows meanwhile.
    file.take(size).read_to_end(&mut bytes).map_err(MediaError::io("read", &path))?;
    if id_of(&bytes) == *id { Ok(bytes) } else { Err(MediaError::Corrupt { path }) }
}
