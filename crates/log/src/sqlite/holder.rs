//! Lock files that show whether the holder of a lease is alive.
//!
//! A lease names a lock file, and its holder is alive exactly as long as the file is locked; the kernel releases the lock
//! when the process dies. No clock and no process id is involved. To test a file, a process locks it in shared mode, so
//! that two testing processes do not take each other for the holder. The content of the file is what the process announces
//! of itself.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::system::random_u128;
use crate::{Announcement, LogError};

/// The end of a lock file's name.
const SUFFIX: &str = ".lock";

/// How many bytes of a lock file are read. A longer announcement is ignored.
const ANNOUNCEMENT_BYTES: u64 = 4096;

/// The locked file of this store. Dropping it, or the death of the process, ends the leases of this store.
pub(super) struct Holder {
    name: String,
    path: PathBuf,
    _locked_file: File,
}

impl Holder {
    /// Creates and locks a file with `announcement` in the folder `holders`.
    pub(super) fn create(holders: &Path, announcement: &Announcement) -> Result<Self, LogError> {
        // Otherwise another process could remove the file before it is locked.
        let _folder_lock = lock_folder(holders)?;
        let name = format!("{:032x}", random_u128());
        let path = lock_path(holders, &name);
        let failed = LogError::io("make", &path);
        let created = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        let announced = json!({ "version": announcement.version, "address": announcement.address });
        let write = |mut file: File| {
            file.lock()?;
            file.write_all(announced.to_string().as_bytes())?;
            Ok(file)
        };
        let file = created.and_then(write).map_err(failed)?;
        Ok(Self { name, path, _locked_file: file })
    }

    /// The name by which leases refer to this holder.
    pub(super) fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // If this fails, the next process that opens the log removes the file.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Whether the holder with this name is alive. A holder that ended normally has removed its file.
pub(super) fn is_alive(holders: &Path, name: &str) -> Result<bool, LogError> {
    let path = lock_path(holders, name);
    is_locked(&path).map_err(LogError::io("look at", path))
}

/// What the holder with this name announced of itself. Empty if that cannot be read: older programs wrote nothing.
pub(super) fn announcement(holders: &Path, name: &str) -> Announcement {
    let mut text = String::new();
    let opened = File::open(lock_path(holders, name));
    if opened.and_then(|file| file.take(ANNOUNCEMENT_BYTES).read_to_string(&mut text)).is_err() {
        return Announcement::default();
    }
    let announced: Value = serde_json::from_str(&text).unwrap_or_default();
    let member = |name: &str| announced.get(name).and_then(Value::as_str).map(str::to_owned);
    Announcement { version: member("version"), address: member("address") }
}

/// Whether any holder is alive. The caller must have locked the folder.
pub(super) fn any_alive(holders: &Path) -> Result<bool, LogError> {
    let search = || {
        for entry in std::fs::read_dir(holders)? {
            let path = entry?.path();
            if path.to_string_lossy().ends_with(SUFFIX) && is_locked(&path)? {
                return Ok(true);
            }
        }
        Ok(false)
    };
    search().map_err(LogError::io("look at", holders))
}

/// Removes the files of dead holders. The caller must have locked the folder.
pub(super) fn remove_dead(holders: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(holders)? {
        let path = entry?.path();
        let is_holder = path.to_string_lossy().ends_with(SUFFIX);
        if is_holder && !is_locked(&path)? {
            match std::fs::remove_file(&path) {
                // A holder that ends removes its own file.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                removed => removed?,
            }
        }
    }
    Ok(())
}

/// Prevents all other processes from opening the log and from creating lock files, until the returned file is dropped.
pub(super) fn lock_folder(holders: &Path) -> Result<File, LogError> {
    let path = holders.join("door");
    let opened = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
    opened.and_then(|file| file.lock().map(|()| file)).map_err(LogError::io("lock", path))
}

fn lock_path(holders: &Path, name: &str) -> PathBuf {
    holders.join(format!("{name}{SUFFIX}"))
}

fn is_locked(path: &Path) -> io::Result<bool> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    match file.try_lock_shared() {
        Ok(()) => Ok(false),
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_is_alive_until_it_is_dropped_and_removes_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let announced = Announcement { version: Some("1.2.3".to_owned()), address: None };
        let holder = Holder::create(folder.path(), &announced).unwrap();
        let name = holder.name().to_owned();
        assert!(is_alive(folder.path(), &name).unwrap());
        assert_eq!(announcement(folder.path(), &name), announced);
        drop(holder);
        assert!(!is_alive(folder.path(), &name).unwrap());
        assert!(!lock_path(folder.path(), &name).exists());
    }

    #[test]
    fn removing_dead_holders_keeps_living_ones() {
        let folder = tempfile::tempdir().unwrap();
        let living = Holder::create(folder.path(), &Announcement::default()).unwrap();
        std::fs::write(lock_path(folder.path(), "dead"), "").unwrap();
        remove_dead(folder.path()).unwrap();
        assert!(is_alive(folder.path(), living.name()).unwrap());
        assert!(!lock_path(folder.path(), "dead").exists());
    }

    #[test]
    fn two_processes_that_test_a_dead_holder_both_see_that_it_is_dead() {
        let folder = tempfile::tempdir().unwrap();
        let path = lock_path(folder.path(), "dead");
        std::fs::write(&path, "").unwrap();
        let tested = File::open(&path).unwrap();
        tested.try_lock_shared().unwrap();
        assert!(!is_alive(folder.path(), "dead").unwrap());
    }

    #[test]
    fn a_lock_file_without_a_readable_announcement_announces_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let long = format!("{{\"version\":\"{}\"}}", "1".repeat(ANNOUNCEMENT_BYTES as usize));
        for content in ["", "[]", "{\"version\":1}", &long, "\u{0}"] {
            std::fs::write(lock_path(folder.path(), "other"), content).unwrap();
            assert_eq!(announcement(folder.path(), "other"), Announcement::default());
        }
        assert_eq!(announcement(folder.path(), "missing"), Announcement::default());
    }
}
