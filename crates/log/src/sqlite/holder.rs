//! Whether a process lives, by a lock on a file that the kernel gives up when it dies.
//!
//! No clock and no process number is trusted: a lease names a file, and its holder lives exactly
//! as long as that file is locked. Locks are looked at in shared mode, so that those who look do
//! not take each other for the holder.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::LogError;
use crate::system::chance;

/// Ends the name of a holder's file.
const SUFFIX: &str = ".lock";

/// One that can hold leases: this store. It lives until it is dropped, or its process dies.
pub(super) struct Presence {
    name: String,
    path: PathBuf,
    _locked: File,
}

impl Presence {
    /// Makes itself known in the folder `holders`.
    pub(super) fn create(holders: &Path) -> Result<Self, LogError> {
        // Nobody may sweep between the making of the file and its locking.
        let _door = close_the_door(holders)?;
        let name = format!("{:032x}", chance());
        let path = file_of(holders, &name);
        let failed = LogError::io("make", &path);
        let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        let file = made.and_then(|file| file.lock().map(|()| file)).map_err(failed)?;
        Ok(Self { name, path, _locked: file })
    }

    /// What its leases call it.
    pub(super) fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        // If it stays, the next to open the log sweeps it away.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Whether the holder of that name lives. One without a file does not: it ended in good order.
pub(super) fn lives(holders: &Path, name: &str) -> Result<bool, LogError> {
    let path = file_of(holders, name);
    is_locked(&path).map_err(LogError::io("look at", path))
}

/// Whether anybody lives who can hold leases. The door must be closed.
pub(super) fn anybody_lives(holders: &Path) -> Result<bool, LogError> {
    let look = || {
        for entry in std::fs::read_dir(holders)? {
            let path = entry?.path();
            if path.to_string_lossy().ends_with(SUFFIX) && is_locked(&path)? {
                return Ok(true);
            }
        }
        Ok(false)
    };
    look().map_err(LogError::io("look at", holders))
}

/// Removes what dead holders left behind. The door must be closed.
pub(super) fn sweep(holders: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(holders)? {
        let path = entry?.path();
        let is_holder = path.to_string_lossy().ends_with(SUFFIX);
        if is_holder && !is_locked(&path)? {
            std::fs::remove_file(&path)?;
        }
    }
    Ok(())
}

/// Keeps all others from opening the log and from becoming holders, until it is dropped.
pub(super) fn close_the_door(holders: &Path) -> Result<File, LogError> {
    let path = holders.join("door");
    let opened = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
    opened.and_then(|file| file.lock().map(|()| file)).map_err(LogError::io("lock", path))
}

fn file_of(holders: &Path, name: &str) -> PathBuf {
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
    fn a_holder_lives_until_it_is_dropped_and_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let holder = Presence::create(folder.path()).unwrap();
        let name = holder.name().to_owned();
        assert!(lives(folder.path(), &name).unwrap());
        drop(holder);
        assert!(!lives(folder.path(), &name).unwrap());
        assert!(!file_of(folder.path(), &name).exists());
    }

    #[test]
    fn sweeping_takes_the_dead_and_leaves_the_living() {
        let folder = tempfile::tempdir().unwrap();
        let living = Presence::create(folder.path()).unwrap();
        std::fs::write(file_of(folder.path(), "dead"), "").unwrap();
        sweep(folder.path()).unwrap();
        assert!(lives(folder.path(), living.name()).unwrap());
        assert!(!file_of(folder.path(), "dead").exists());
    }

    #[test]
    fn two_who_look_at_a_dead_holder_both_see_that_it_is_dead() {
        let folder = tempfile::tempdir().unwrap();
        let path = file_of(folder.path(), "dead");
        std::fs::write(&path, "").unwrap();
        let looking = File::open(&path).unwrap();
        looking.try_lock_shared().unwrap();
        assert!(!lives(folder.path(), "dead").unwrap());
    }
}
