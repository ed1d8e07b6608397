//! Takes away what nobody refers to.

use std::collections::BTreeSet;
use std::fs::File;
use std::time::Duration;

use parlor_vocab::{MediaId, Timestamp};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat, openat, statat, unlinkat};
use rustix::io::Errno;

use super::MediaError;
use super::folder::{Access, Folder, LOCK_WAIT, is_id};
use super::temp::{is_abandoned, is_temp};

/// What a sweep took away, or would take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// How many files.
    pub files: u64,
    /// How many bytes they held.
    pub bytes: u64,
}

/// Which files are old, and whether to act on it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rule {
    pub(super) grace: Duration,
    pub(super) now: Timestamp,
    pub(super) dry_run: bool,
}

/// See [`super::MediaStore::sweep`]. Holds one name at a time, however many files there are.
pub(super) fn sweep(
    folder: &Folder,
    referenced: &BTreeSet<MediaId>,
    rule: Rule,
) -> Result<Swept, MediaError> {
    let failed = |errno: Errno| MediaError::io("sweep", &folder.path)(errno);
    let mut swept = Swept::default();
    for entry in Dir::read_from(&folder.handle).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let Ok(name) = entry.file_name().to_str() else { continue };
        let is_orphan = is_id(name) && MediaId::parse(name).is_ok_and(|id| !referenced.contains(&id));
        // A look without the lock first: most files are young or referenced.
        if (is_orphan || is_temp(name))
            && old_size(folder, name, rule).map_err(failed)?.is_some()
            && let Some(size) = remove(folder, name, rule)?
        {
            swept.files += 1;
            swept.bytes += size;
        }
    }
    Ok(swept)
}

/// See [`super::MediaStore::remove`].
pub(super) fn remove_all(folder: &Folder, ids: &BTreeSet<MediaId>, rule: Rule) -> Result<Swept, MediaError> {
    let mut swept = Swept::default();
    for name in ids.iter().map(MediaId::as_str).filter(|name| is_id(name)) {
        if let Some(size) = remove(folder, name, rule)? {
            swept.files += 1;
            swept.bytes += size;
        }
    }
    Ok(swept)
}

/// Removes a file that is old at this moment, and says how large it was.
fn remove(folder: &Folder, name: &str, rule: Rule) -> Result<Option<u64>, MediaError> {
    let failed = |errno: Errno| MediaError::io("remove", folder.path.join(name))(errno);
    let _guard = folder.lock(Access::Remove, LOCK_WAIT)?;
    // Somebody may have stored it again since the first look.
    let Some(size) = old_size(folder, name, rule).map_err(failed)? else { return Ok(None) };
    if is_temp(name) && !is_left_behind(folder, name) {
        return Ok(None);
    }
    if rule.dry_run {
        return Ok(Some(size));
    }
    match unlinkat(&folder.handle, name, AtFlags::empty()) {
        Ok(()) => Ok(Some(size)),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(failed(errno)),
    }
}

/// The size of a regular file that is old enough.
fn old_size(folder: &Folder, name: &str, rule: Rule) -> rustix::io::Result<Option<u64>> {
    let stat = match statat(&folder.handle, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => return Ok(None),
        stat => stat?,
    };
    let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    let age = i128::from(rule.now.0) - changed_at(&stat);
    // A file from the future is not old.
    let is_old = u128::try_from(age).is_ok_and(|age| age >= rule.grace.as_millis());
    Ok((is_file && is_old).then(|| u64::try_from(stat.st_size).unwrap_or(0)))
}

/// In milliseconds since the start of 1970.
fn changed_at(stat: &Stat) -> i128 {
    i128::from(stat.st_mtime) * 1000 + i128::from(stat.st_mtime_nsec) / 1_000_000
}

/// Whether an unfinished upload has nobody who writes it.
fn is_left_behind(folder: &Folder, name: &str) -> bool {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    openat(&folder.handle, name, flags, Mode::empty()).is_ok_and(|fd| is_abandoned(&File::from(fd)))
}
