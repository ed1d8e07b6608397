//! A file that is being written, under a name of its own until it is complete.
//!
//! Its writer holds a lock on it, which the system lets go when the writer dies. By that a sweep
//! tells what was left behind from what is under way, whichever process is at it.

use std::fs::File;
use std::io::{self, Seek, Write};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};

use parlor_vocab::MediaId;
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
    middle.and_then(|middle| middle.split_once('-')).is_some_and(|(pid, number)| is_number(pid) && is_number(number))
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
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // No sweep sees it before it is locked.
        let guard = folder.lock(Access::Add, LOCK_WAIT)?;
        loop {
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let name = format!("{PREFIX}{}-{number}{SUFFIX}", process::id());
            match openat(&folder.handle, &name, flags, Mode::RUSR | Mode::WUSR) {
                Ok(fd) => {
                    drop(guard);
                    let temp = Self { folder, file: File::from(fd), name: Some(name) };
                    let locked = flock(&temp.file, FlockOperation::NonBlockingLockExclusive);
                    locked.map_err(|errno| temp.failed("lock")(errno))?;
                    return Ok(temp);
                }
                // Left behind by a process that had our number.
                Err(Errno::EXIST | Errno::INTR) => {}
                Err(errno) => return Err(MediaError::io("write to", &folder.path)(errno)),
            }
        }
    }

    /// Appends.
    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(), MediaError> {
        self.file.write_all(bytes).map_err(|error| self.failed("write to")(error))
    }

    /// The folder it is in.
    pub(super) fn folder(&self) -> &Folder {
        &self.folder
    }

    /// All that was written, from its start.
    pub(super) fn content(&mut self) -> Result<&File, MediaError> {
        self.file.rewind().map_err(|error| self.failed("read")(error))?;
        Ok(&self.file)
    }

    /// Gives it its lasting name. Returns when content and name are on the disk.
    pub(super) fn settle(mut self, id: &MediaId) -> Result<(), MediaError> {
        self.file.sync_all().map_err(|error| self.failed("sync")(error))?;
        self.rename(id).map_err(|error| self.failed("store in")(error))?;
        self.folder.sync()
    }

    fn rename(&mut self, id: &MediaId) -> io::Result<()> {
        todo!()
    }

    fn failed<E: Into<io::Error>>(&self, attempt: &'static str) -> impl FnOnce(E) -> MediaError + use<E> {
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
