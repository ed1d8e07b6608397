//! The folder of stored files: what is in it, and who may change it at this moment.
//!
//! A lock on the folder keeps a sweep from taking away a file between the look at its age and the
//! removal, while somebody else is making it new. It is held for a few system calls at a time.

use std::fs::{DirBuilder, File};
use std::io::{self, Read};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parlor_vocab::{Media, MediaId};
use rustix::fs::{
    FileType, FlockOperation, Mode, OFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, flock, fstat, fsync,
    futimens, open, openat,
};
use rustix::io::Errno;

use super::MediaError;

/// How long somebody waits for the folder before it is said to be busy.
pub const LOCK_WAIT: Duration = Duration::from_secs(10);

/// How long to wait before trying again to get the folder.
const LOCK_STEP: Duration = Duration::from_millis(1);

/// How much of two files is compared at a time.
const COMPARE_BYTES: usize = 64 << 10;

/// How many hexadecimal digits an id has.
const ID_DIGITS: usize = 64;

/// Whether `text` is an id that this store gives out, and so harmless as the name of a file.
pub(super) fn is_id(text: &str) -> bool {
    text.len() == ID_DIGITS && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Where the folder is, or will be.
#[derive(Debug)]
pub(super) struct Place {
    home: PathBuf,
    path: PathBuf,
    /// Whether the folder's own name is known to be on the disk.
    is_durable: AtomicBool,
}

impl Place {
    pub(super) fn new(home: PathBuf, path: PathBuf) -> Self {
        Self { home, path, is_durable: AtomicBool::new(false) }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The folder, if it was made.
    pub(super) fn existing(&self) -> Result<Option<Folder>, MediaError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match open(&self.path, flags, Mode::empty()) {
            Ok(fd) => Ok(Some(Folder { handle: File::from(fd), path: self.path.clone() })),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(MediaError::io("open the folder", &self.path)(errno)),
        }
    }

    /// The folder, made now if need be.
    pub(super) fn made(&self) -> Result<Folder, MediaError> {
        if self.is_durable.load(Ordering::Relaxed)
            && let Some(folder) = self.existing()?
        {
            return Ok(folder);
        }
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&self.path);
        made.map_err(MediaError::io("make folder", &self.path))?;
        // Also if somebody else made it: that may have been a moment ago.
        let synced = File::open(&self.home).and_then(|home| home.sync_all());
        synced.map_err(MediaError::io("sync", &self.home))?;
        self.is_durable.store(true, Ordering::Relaxed);
        let gone = || MediaError::io("open the folder", &self.path)(Errno::NOENT);
        self.existing()?.ok_or_else(gone)
    }
}

/// What one may do while one has the folder.
#[derive(Clone, Copy, Debug)]
pub(super) enum Access {
    /// Add files and make them new, beside others who do.
    Add,
    /// Take files away, alone.
    Remove,
}

/// The open folder. For one operation: a lock belongs to it, not to the process.
#[derive(Debug)]
pub(super) struct Folder {
    pub(super) handle: File,
    pub(super) path: PathBuf,
}

impl Folder {
    /// Has the folder until the guard is dropped.
    pub(super) fn lock(&self, access: Access, wait: Duration) -> Result<Guard<'_>, MediaError> {
        let operation = match access {
            Access::Add => FlockOperation::NonBlockingLockShared,
            Access::Remove => FlockOperation::NonBlockingLockExclusive,
        };
        let begun = Instant::now();
        loop {
            match flock(&self.handle, operation) {
                Ok(()) => return Ok(Guard(self)),
                Err(Errno::INTR) => {}
                Err(Errno::WOULDBLOCK) if begun.elapsed() < wait => std::thread::sleep(LOCK_STEP),
                Err(Errno::WOULDBLOCK) => return Err(MediaError::Busy { path: self.path.clone() }),
                Err(errno) => return Err(MediaError::io("lock", &self.path)(errno)),
            }
        }
    }

    /// A stored file and its size. A link or anything else in its place is no stored file.
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

    /// Makes a stored file count as new, and opens it.
    pub(super) fn renew(&self, id: &MediaId) -> Result<Option<(File, u64)>, MediaError> {
        let _guard = self.lock(Access::Add, LOCK_WAIT)?;
        let found = self.open_file(id)?;
        if let Some((file, _)) = &found {
            make_new(file).map_err(MediaError::io("renew", self.path.join(id.as_str())))?;
        }
        Ok(found)
    }

    /// Whether `content` is stored as `media` already, and durably. If so, it counts as new now. A
    /// file of that name with other bytes in it is damaged, and does not count.
    pub(super) fn has(&self, media: &Media, content: impl Read) -> Result<bool, MediaError> {
        let Some((file, size)) = self.renew(&media.id)? else { return Ok(false) };
        let failed = MediaError::io("compare", self.path.join(media.id.as_str()));
        if size != media.size || !is_same(file, content).map_err(failed)? {
            return Ok(false);
        }
        // Whoever gave it its name may not have come to this yet.
        self.sync()?;
        Ok(true)
    }

    /// Makes the names in the folder durable.
    pub(super) fn sync(&self) -> Result<(), MediaError> {
        fsync(&self.handle).map_err(MediaError::io("sync", &self.path))
    }
}

/// Somebody has the folder.
pub(super) struct Guard<'a>(&'a Folder);

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        // If it fails, the lock goes with the handle, at the end of the operation.
        let _ = flock(&self.0.handle, FlockOperation::Unlock);
    }
}

/// Sets the time of the last change to now.
pub(super) fn make_new(file: &File) -> rustix::io::Result<()> {
    let at = |nanoseconds| Timespec { tv_sec: 0, tv_nsec: nanoseconds };
    futimens(file, &Timestamps { last_access: at(UTIME_OMIT), last_modification: at(UTIME_NOW) })
}

fn is_same(mut one: impl Read, mut other: impl Read) -> io::Result<bool> {
    let (mut ours, mut theirs) = (vec![0; COMPARE_BYTES], vec![0; COMPARE_BYTES]);
    loop {
        let (length, other_length) = (fill(&mut one, &mut ours)?, fill(&mut other, &mut theirs)?);
        if ours.get(..length) != theirs.get(..other_length) {
            return Ok(false);
        }
        if length == 0 {
            return Ok(true);
        }
    }
}

/// Reads until `room` is full or there is no more, and says how much it was.
fn fill(from: &mut impl Read, room: &mut [u8]) -> io::Result<usize> {
    let mut length = 0;
    while let Some(left) = room.get_mut(length..).filter(|left| !left.is_empty()) {
        match from.read(left) {
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
    fn whoever_removes_is_alone_and_others_are_told_after_a_while() {
        let home = tempfile::tempdir().unwrap();
        let place = Place::new(home.path().to_owned(), home.path().join("media"));
        let (one, other) = (place.made().unwrap(), place.made().unwrap());
        let adding = one.lock(Access::Add, Duration::ZERO).unwrap();
        drop(other.lock(Access::Add, Duration::ZERO).expect("beside each other"));
        assert!(matches!(other.lock(Access::Remove, Duration::ZERO), Err(MediaError::Busy { .. })));
        drop(adding);
        let removing = other.lock(Access::Remove, Duration::ZERO).unwrap();
        let error = one.lock(Access::Add, LOCK_STEP).err().expect("somebody else has it");
        assert!(error.to_string().ends_with("kept busy by another process for 10 seconds; try again"));
        drop(removing);
        drop(one.lock(Access::Add, Duration::ZERO).expect("free again"));
    }

    #[test]
    fn pieces_of_any_size_are_compared() {
        let text = vec![7; 3 * COMPARE_BYTES + 1];
        assert!(is_same(text.as_slice(), text.chunks(1000).collect::<Vec<_>>().concat().as_slice()).unwrap());
        let halves = text.as_slice().take(100).chain(text.get(100..).unwrap());
        assert!(is_same(text.as_slice(), halves).unwrap());
        assert!(!is_same(text.as_slice(), text.get(1..).unwrap()).unwrap());
        assert!(is_same(io::empty(), io::empty()).unwrap());
    }
}
