//! A file that is being written, under a name of its own until it is complete.
//!
//! Its writer holds a lock on it, which the system lets go when the writer dies. By that a sweep
//! tells what was left behind from what is under way, whichever process is at it.

use std::fs::File;
use std::io::{self, Seek, Write};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};

use parlor_vocab::{Media, MediaId};
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, flock, openat, renameat, unlinkat};
use rustix::io::Errno;

use super::MediaError;
use super::folder::{Access, Folder, LOCK_WAIT, make_new};

const PREFIX: &str = ".upload-";
const SUFFIX: &str = ".tmp";

/// Whether a file of this name was made here.
pub(super) fn is_temp(name: &str) -> bool {
    let middle = name.strip_prefix(PREFIX).and_then(|rest| rest.strip_suffix(SUFFIX));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    middle
        .and_then(|middle| middle.split_once('-'))
        .is_some_and(|(pid, number)| is_number(pid) && is_number(number))
}

/// Whether the writer of this file is dead.
pub(super) fn is_abandoned(file: &File) -> bool {
    flock(file, FlockOperation::NonBlockingLockExclusive).is_ok()
}

/// A file that is being written. Dropped before [`Temp::settle`], it goes away.
#[derive(Debug)]
pub(super) struct Temp {
    folder: Folder,
    file: File,
    /// Its name, until it has another.
    name: Option<String>,
}

impl Temp {
    /// An empty file with a name that nobody has.
    pub(super) fn create(folder: Folder) -> Result<Self, MediaError> {
        let (file, name) = create_locked(&folder)?;
        Ok(Self { folder, file, name: Some(name) })
    }

    /// Appends.
    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(), MediaError> {
        self.file.write_all(bytes).map_err(|error| self.failed("write a file in")(error))
    }

    /// Whether its content is stored already.
    pub(super) fn is_stored_as(&mut self, media: &Media) -> Result<bool, MediaError> {
        self.file.rewind().map_err(|error| self.failed("read a file in")(error))?;
        self.folder.has(media, &self.file)
    }

    /// Gives it its lasting name. Returns when content and name are on the disk.
    pub(super) fn settle(mut self, id: &MediaId) -> Result<(), MediaError> {
        self.file.sync_all().map_err(|error| self.failed("sync a file in")(error))?;
        self.rename(id)?;
        self.folder.sync()
    }

    fn rename(&mut self, id: &MediaId) -> Result<(), MediaError> {
        let Some(name) = &self.name else { return Ok(()) };
        let folder = &self.folder;
        let _guard = folder.lock(Access::Add, LOCK_WAIT)?;
        // The last piece may have come long ago.
        let renamed = make_new(&self.file)
            .and_then(|()| renameat(&folder.handle, name.as_str(), &folder.handle, id.as_str()));
        renamed.map_err(|errno| self.failed("store a file in")(errno))?;
        self.name = None;
        Ok(())
    }

    fn failed<E: Into<io::Error>>(&self, attempt: &'static str) -> impl FnOnce(E) -> MediaError {
        MediaError::io(attempt, &self.folder.path)
    }
}

impl Drop for Temp {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            // If it fails, a sweep takes it away.
            let _ = unlinkat(&self.folder.handle, name.as_str(), AtFlags::empty());
        }
    }
}

/// Creates a file and locks it before any sweep can see it.
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
            // Left behind by a process that had our number.
            Err(Errno::EXIST | Errno::INTR) => {}
            Err(errno) => return Err(MediaError::io("make a file in", &folder.path)(errno)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_names_are_ours() {
        assert!(is_temp(".upload-12-0.tmp"));
        for foreign in
            ["upload-1-2.tmp", ".upload-1.tmp", ".upload-a-1.tmp", ".upload-1-.tmp", ".upload-1-2.tmp~"]
        {
            assert!(!is_temp(foreign), "{foreign}");
        }
    }
}
