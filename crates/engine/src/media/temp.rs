//! A file that is being written, under a temporary name until it is complete.
//!
//! The writing process holds a lock on the file, which the system releases when the process dies. By that lock, a
//! sweep in any process distinguishes an abandoned upload from one that is under way.

use std::fs::File;
use std::io::{self, Seek, Write};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};

use parlor_vocab::{Media, MediaId};
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, flock, fstat, openat, renameat, unlinkat};
use rustix::io::Errno;

use super::MediaError;
use super::folder::{Access, FileTime, Folder, LOCK_WAIT, modification_time, touch};

const PREFIX: &str = ".upload-";
const SUFFIX: &str = ".tmp";

/// Whether `name` is a temporary name of this store.
pub(super) fn is_temp_name(name: &str) -> bool {
    let middle = name.strip_prefix(PREFIX).and_then(|rest| rest.strip_suffix(SUFFIX));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    middle
        .and_then(|middle| middle.split_once('-'))
        .is_some_and(|(pid, number)| is_number(pid) && is_number(number))
}

/// Whether no process holds the lock of a temporary file, so its writer is dead.
pub(super) fn is_abandoned(file: &File) -> bool {
    flock(file, FlockOperation::NonBlockingLockExclusive).is_ok()
}

/// A file that is being written. Dropping it before [`TempFile::commit`] deletes it.
#[derive(Debug)]
pub(super) struct TempFile {
    folder: Folder,
    file: File,
    /// The temporary name; `None` once the file has its final name.
    name: Option<String>,
}

impl TempFile {
    /// Creates an empty file with a unique temporary name.
    pub(super) fn create(folder: Folder) -> Result<Self, MediaError> {
        let (file, name) = create_locked(&folder)?;
        Ok(Self { folder, file, name: Some(name) })
    }

    /// Appends `bytes`.
    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(), MediaError> {
        self.file.write_all(bytes).map_err(|error| self.failed("write a file in")(error))
    }

    /// Whether the store already has this content. If so, the stored file is renewed.
    pub(super) fn is_stored_as(&mut self, media: &Media) -> Result<bool, MediaError> {
        self.file.rewind().map_err(|error| self.failed("read a file in")(error))?;
        self.folder.renew_if_same(media, &self.file)
    }

    /// Gives the file its final name. Returns its modification time when content and name are synced to disk.
    pub(super) fn commit(mut self, id: &MediaId) -> Result<FileTime, MediaError> {
        self.file.sync_all().map_err(|error| self.failed("sync a file in")(error))?;
        let stored_at = self.rename(id)?;
        self.folder.sync()?;
        Ok(stored_at)
    }

    fn rename(&mut self, id: &MediaId) -> Result<FileTime, MediaError> {
        let folder = &self.folder;
        let _guard = folder.lock(Access::Add, LOCK_WAIT)?;
        let rename = |name: &str| renameat(&folder.handle, name, &folder.handle, id.as_str());
        // The last write may be long ago; the file's age counts from now.
        let renamed = touch(&self.file).and_then(|()| {
            let stored_at = modification_time(&fstat(&self.file)?);
            self.name.as_deref().map_or(Ok(()), rename)?;
            Ok(stored_at)
        });
        let stored_at = renamed.map_err(|errno| self.failed("store a file in")(errno))?;
        self.name = None;
        Ok(stored_at)
    }

    fn failed<E: Into<io::Error>>(&self, attempt: &'static str) -> impl FnOnce(E) -> MediaError {
        MediaError::io(attempt, &self.folder.path)
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            // If unlinking fails, a later sweep removes the file.
            let _ = unlinkat(&self.folder.handle, name.as_str(), AtFlags::empty());
        }
    }
}

/// Creates a file and locks it before a sweep can see it.
fn create_locked(folder: &Folder) -> Result<(File, String), MediaError> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let _guard = folder.lock(Access::Add, LOCK_WAIT)?;
    loop {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("{PREFIX}{}-{number}{SUFFIX}", process::id());
        match openat(&folder.handle, &name, flags, Mode::RUSR | Mode::WUSR) {
            Ok(fd) => {
                let locked = flock(&fd, FlockOperation::NonBlockingLockExclusive);
                locked.map_err(MediaError::io("lock a file in", &folder.path))?;
                return Ok((File::from(fd), name));
            }
            // A dead process with the same id left a file of this name.
            Err(Errno::EXIST | Errno::INTR) => {}
            Err(errno) => return Err(MediaError::io("make a file in", &folder.path)(errno)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_store_are_temporary_names() {
        assert!(is_temp_name(".upload-12-0.tmp"));
        for foreign in
            ["upload-1-2.tmp", ".upload-1.tmp", ".upload-a-1.tmp", ".upload-1-.tmp", ".upload-1-2.tmp~"]
        {
            assert!(!is_temp_name(foreign), "{foreign}");
        }
    }
}
