//! Removes files that no event refers to.

use std::collections::BTreeSet;
use std::fs::File;
use std::time::Duration;

use parlor_vocab::{MediaId, Timestamp};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat, openat, statat, unlinkat};
use rustix::io::Errno;

use super::MediaError;
use super::folder::{Access, FileTime, Folder, LOCK_WAIT, is_id, modification_time};
use super::temp::{is_abandoned, is_temp_name};

/// What a sweep removed, or would remove in a dry run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SweepReport {
    /// How many files were removed.
    pub files: u64,
    /// The total size of these files.
    pub bytes: u64,
}

/// Which files are old enough, and whether to remove them.
#[derive(Clone, Copy, Debug)]
pub(super) struct SweepRule {
    pub(super) grace: Duration,
    pub(super) now: Timestamp,
    pub(super) dry_run: bool,
}

/// See [`super::MediaStore::sweep`]. Reads one folder entry at a time, so memory does not grow with the number of
/// files.
pub(super) fn sweep(
    folder: &Folder,
    referenced: &BTreeSet<MediaId>,
    rule: SweepRule,
) -> Result<SweepReport, MediaError> {
    let failed = |errno: Errno| MediaError::io("sweep", &folder.path)(errno);
    let mut swept = SweepReport::default();
    for entry in Dir::read_from(&folder.handle).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let Ok(name) = entry.file_name().to_str() else { continue };
        let is_orphan = is_id(name) && MediaId::parse(name).is_ok_and(|id| !referenced.contains(&id));
        // Checked without the lock first: most files are young or referenced.
        if (is_orphan || is_temp_name(name))
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
pub(super) fn remove_all(
    folder: &Folder,
    ids: &BTreeSet<MediaId>,
    rule: SweepRule,
) -> Result<SweepReport, MediaError> {
    let mut swept = SweepReport::default();
    for name in ids.iter().map(MediaId::as_str).filter(|name| is_id(name)) {
        if let Some(size) = remove(folder, name, rule)? {
            swept.files += 1;
            swept.bytes += size;
        }
    }
    Ok(swept)
}

/// Removes a file if nobody has stored or renewed it since `stored_at`.
pub(super) fn remove_unchanged(folder: &Folder, id: &MediaId, stored_at: FileTime) -> Result<(), MediaError> {
    let failed = |errno: Errno| MediaError::io("remove", folder.path.join(id.as_str()))(errno);
    let _guard = folder.lock(Access::Remove, LOCK_WAIT)?;
    match statat(&folder.handle, id.as_str(), AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) if modification_time(&stat) == stored_at => {}
        Ok(_) | Err(Errno::NOENT) => return Ok(()),
        Err(errno) => return Err(failed(errno)),
    }
    unlinkat(&folder.handle, id.as_str(), AtFlags::empty()).map_err(failed)
}

/// Removes a file if it is old enough. Returns its size, or `None` if it stays.
fn remove(folder: &Folder, name: &str, rule: SweepRule) -> Result<Option<u64>, MediaError> {
    let failed = |errno: Errno| MediaError::io("remove", folder.path.join(name))(errno);
    let _guard = folder.lock(Access::Remove, LOCK_WAIT)?;
    // Another process may have stored the file again since the first check.
    let Some(size) = old_size(folder, name, rule).map_err(failed)? else { return Ok(None) };
    if is_temp_name(name) && !is_abandoned_upload(folder, name) {
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

/// The size of a regular file that is old enough; else `None`.
fn old_size(folder: &Folder, name: &str, rule: SweepRule) -> rustix::io::Result<Option<u64>> {
    let stat = match statat(&folder.handle, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => return Ok(None),
        stat => stat?,
    };
    let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    let age = i128::from(rule.now.0) - modified_millis(&stat);
    // A modification time in the future gives a negative age, which is not old.
    let is_old = u128::try_from(age).is_ok_and(|age| age >= rule.grace.as_millis());
    Ok((is_file && is_old).then(|| u64::try_from(stat.st_size).unwrap_or(0)))
}

/// The modification time in milliseconds since the Unix epoch.
fn modified_millis(stat: &Stat) -> i128 {
    i128::from(stat.st_mtime) * 1000 + i128::from(stat.st_mtime_nsec) / 1_000_000
}

/// Whether the process that wrote an unfinished upload is dead.
fn is_abandoned_upload(folder: &Folder, name: &str) -> bool {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    openat(&folder.handle, name, flags, Mode::empty()).is_ok_and(|fd| is_abandoned(&File::from(fd)))
}
