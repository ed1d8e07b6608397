//! The folder that holds the stored files, and the lock that guards it.
//!
//! A sweep checks a file's age and then removes it. The lock keeps other processes from renewing the file between
//! these two steps. It is held for a few system calls at a time.

use std::fs::{DirBuilder, File};
use std::io::{self, Read};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parlor_vocab::{Media, MediaId};
use rustix::fs::{
    FileType, FlockOperation, Mode, OFlags, Stat, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, flock, fstat,
    fsync, futimens, open, openat,
};
use rustix::io::Errno;

use super::MediaError;

/// How long an operation waits for the folder's lock before it fails with [`MediaError::Busy`].
pub const LOCK_WAIT: Duration = Duration::from_secs(10);

/// The pause between two attempts to take the lock.
const LOCK_RETRY: Duration = Duration::from_millis(1);

/// How many bytes of two files are compared at a time.
const COMPARE_BYTES: usize = 64 << 10;

/// The length of an id: a SHA-256 hash in hexadecimal digits.
const ID_DIGITS: usize = 64;

/// Whether `text` has the form of this store's ids, and is therefore safe as a file name.
pub(super) fn is_id(text: &str) -> bool {
    text.len() == ID_DIGITS && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// The path of the folder, which need not exist yet.
#[derive(Debug)]
pub(super) struct FolderPath {
    home: PathBuf,
    path: PathBuf,
    /// Whether the folder's entry in `home` is known to be synced to disk.
    is_durable: AtomicBool,
}

impl FolderPath {
    pub(super) fn new(home: PathBuf, path: PathBuf) -> Self {
        Self { home, path, is_durable: AtomicBool::new(false) }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Opens the folder; `None` if it does not exist.
    pub(super) fn open_existing(&self) -> Result<Option<Folder>, MediaError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match open(&self.path, flags, Mode::empty()) {
            Ok(fd) => Ok(Some(Folder { handle: File::from(fd), path: self.path.clone() })),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(MediaError::io("open the folder", &self.path)(errno)),
        }
    }

    /// Opens the folder, and creates it first if it does not exist.
    pub(super) fn open_or_create(&self) -> Result<Folder, MediaError> {
        if self.is_durable.load(Ordering::Relaxed)
            && let Some(folder) = self.open_existing()?
        {
            return Ok(folder);
        }
        let created = DirBuilder::new().recursive(true).mode(0o700).create(&self.path);
        created.map_err(MediaError::io("make folder", &self.path))?;
        // Sync even if another process created the folder: it may not have synced it yet.
        let synced = File::open(&self.home).and_then(|home| home.sync_all());
        synced.map_err(MediaError::io("sync", &self.home))?;
        self.is_durable.store(true, Ordering::Relaxed);
        let gone = || MediaError::io("open the folder", &self.path)(Errno::NOENT);
        self.open_existing()?.ok_or_else(gone)
    }
}

/// What the holder of the folder's lock may do.
#[derive(Clone, Copy, Debug)]
pub(super) enum Access {
    /// Add and renew files. Several holders at a time.
    Add,
    /// Remove files. One holder at a time, and nobody adds meanwhile.
    Remove,
}

/// The folder, opened for one operation. The lock belongs to this handle, not to the process.
#[derive(Debug)]
pub(super) struct Folder {
    pub(super) handle: File,
    pub(super) path: PathBuf,
}

impl Folder {
    /// Locks the folder until the returned guard is dropped. Fails after `wait`.
    pub(super) fn lock(&self, access: Access, wait: Duration) -> Result<FolderLock<'_>, MediaError> {
        let operation = match access {
            Access::Add => FlockOperation::NonBlockingLockShared,
            Access::Remove => FlockOperation::NonBlockingLockExclusive,
        };
        let started = Instant::now();
        loop {
            match flock(&self.handle, operation) {
                Ok(()) => return Ok(FolderLock(self)),
                Err(Errno::INTR) => {}
                Err(Errno::WOULDBLOCK) if started.elapsed() < wait => std::thread::sleep(LOCK_RETRY),
                Err(Errno::WOULDBLOCK) => return Err(MediaError::Busy { path: self.path.clone() }),
                Err(errno) => return Err(MediaError::io("lock", &self.path)(errno)),
            }
        }
    }

    /// Opens a stored file; also returns its size. `None` if it is missing or not a regular file.
    pub(super) fn open_file(&self, id: &MediaId) -> Result<Option<(File, u64)>, MediaError> {
        let failed = |errno: Errno| MediaError::io("open", self.path.join(id.as_str()))(errno);
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let fd = match openat(&self.handle, id.as_str(), flags, Mode::empty()) {
            Ok(fd) => fd,
            Err(Errno::NOENT | Errno::LOOP | Errno::NXIO) => return Ok(None),
            Err(errno) => return Err(failed(errno)),
        };
        let stat = fstat(&fd).map_err(failed)?;
        let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        Ok(is_file.then(|| (File::from(fd), u64::try_from(stat.st_size).unwrap_or(0))))
    }

    /// Sets a stored file's modification time to now, and opens it.
    pub(super) fn renew(&self, id: &MediaId) -> Result<Option<(File, u64)>, MediaError> {
        let _guard = self.lock(Access::Add, LOCK_WAIT)?;
        let found = self.open_file(id)?;
        if let Some((file, _)) = &found {
            renew_file(file).map_err(MediaError::io("renew", self.path.join(id.as_str())))?;
        }
        Ok(found)
    }

    /// Whether `content` is already stored as `media`. If so, the file is renewed and synced. A file with the same
    /// id and other bytes is damaged, and the answer is no.
    pub(super) fn renew_if_same(&self, media: &Media, content: impl Read) -> Result<bool, MediaError> {
        let Some((file, size)) = self.renew(&media.id)? else { return Ok(false) };
        let failed = MediaError::io("compare", self.path.join(media.id.as_str()));
        if size != media.size || !has_same_bytes(file, content).map_err(failed)? {
            return Ok(false);
        }
        // The process that stored the file may not have synced the folder yet.
        self.sync()?;
        Ok(true)
    }

    /// Syncs the folder's entries to disk.
    pub(super) fn sync(&self) -> Result<(), MediaError> {
        fsync(&self.handle).map_err(MediaError::io("sync", &self.path))
    }
}

/// The folder's lock, released on drop.
pub(super) struct FolderLock<'a>(&'a Folder);

impl Drop for FolderLock<'_> {
    fn drop(&mut self) {
        // If unlocking fails, closing the folder's handle releases the lock at the end of the operation.
        let _ = flock(&self.0.handle, FlockOperation::Unlock);
    }
}

/// Sets the modification time to now.
pub(super) fn touch(file: &File) -> rustix::io::Result<()> {
    let at = |nanoseconds| Timespec { tv_sec: 0, tv_nsec: nanoseconds };
    futimens(file, &Timestamps { last_access: at(UTIME_OMIT), last_modification: at(UTIME_NOW) })
}

/// The modification time of a file: seconds and nanoseconds.
pub(super) type FileTime = (i64, i64);

pub(super) fn modification_time(stat: &Stat) -> FileTime {
    (stat.st_mtime, i64::try_from(stat.st_mtime_nsec).unwrap_or(0))
}

/// Sets the modification time to now, or a little later if it is now already: who has seen the old time sees that the file
/// was renewed.
fn renew_file(file: &File) -> rustix::io::Result<()> {
    let before = modification_time(&fstat(file)?);
    touch(file)?;
    if modification_time(&fstat(file)?) != before {
        return Ok(());
    }
    let (seconds, nanoseconds) = before;
    let later = match nanoseconds {
        ..999_999_999 => Timespec { tv_sec: seconds, tv_nsec: nanoseconds + 1 },
        _ => Timespec { tv_sec: seconds + 1, tv_nsec: 0 },
    };
    let last_access = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
    futimens(file, &Timestamps { last_access, last_modification: later })
}

fn has_same_bytes(mut left: impl Read, mut right: impl Read) -> io::Result<bool> {
    let (mut left_bytes, mut right_bytes) = (vec![0; COMPARE_BYTES], vec![0; COMPARE_BYTES]);
    loop {
        let (left_length, right_length) =
            (fill(&mut left, &mut left_bytes)?, fill(&mut right, &mut right_bytes)?);
        if left_bytes.get(..left_length) != right_bytes.get(..right_length) {
            return Ok(false);
        }
        if left_length == 0 {
            return Ok(true);
        }
    }
}

/// Reads until `buffer` is full or the end is reached. Returns how many bytes were read.
fn fill(from: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut length = 0;
    while let Some(rest) = buffer.get_mut(length..).filter(|rest| !rest.is_empty()) {
        match from.read(rest) {
            Ok(0) => break,
            Ok(read) => length += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_hash_is_an_id() {
        assert!(is_id(&"0a".repeat(32)));
        let wrong = ["", ".", "..", "../etc/passwd", "/etc/passwd", &"0A".repeat(32), &"0a".repeat(33)];
        assert!(wrong.iter().all(|text| !is_id(text)), "{wrong:?}");
        let long_enough = [format!("../{}", "0".repeat(61)), "\0".repeat(64), "é".repeat(32)];
        assert!(long_enough.iter().all(|text| text.len() == ID_DIGITS && !is_id(text)));
    }

    #[test]
    fn removing_excludes_other_holders_and_waiting_for_the_lock_ends() {
        let home = tempfile::tempdir().unwrap();
        let path = FolderPath::new(home.path().to_owned(), home.path().join("media"));
        let (first, second) = (path.open_or_create().unwrap(), path.open_or_create().unwrap());
        let adding = first.lock(Access::Add, Duration::ZERO).unwrap();
        drop(second.lock(Access::Add, Duration::ZERO).expect("two holders may add at the same time"));
        assert!(matches!(second.lock(Access::Remove, Duration::ZERO), Err(MediaError::Busy { .. })));
        drop(adding);
        let removing = second.lock(Access::Remove, Duration::ZERO).unwrap();
        let error = first.lock(Access::Add, LOCK_RETRY).err().expect("the other handle holds the lock");
        assert!(error.to_string().ends_with("kept busy by another process for 10 seconds; try again"));
        drop(removing);
        drop(first.lock(Access::Add, Duration::ZERO).expect("the lock is free again"));
    }

    #[test]
    fn pieces_of_any_size_are_compared() {
        let text = vec![7; 3 * COMPARE_BYTES + 1];
        assert!(
            has_same_bytes(text.as_slice(), text.chunks(1000).collect::<Vec<_>>().concat().as_slice())
                .unwrap()
        );
        let halves = text.as_slice().take(100).chain(text.get(100..).unwrap());
        assert!(has_same_bytes(text.as_slice(), halves).unwrap());
        assert!(!has_same_bytes(text.as_slice(), text.get(1..).unwrap()).unwrap());
        assert!(has_same_bytes(io::empty(), io::empty()).unwrap());
    }
}
