//! A lock for work that needs the database for itself: a recovery, or a restore from a backup.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use rustix::process::{Flock, FlockOffsetType, FlockType, fcntl_getlk};

use super::{Files, holder};
use crate::LogError;

/// The bytes of a file that SQLite locks while it has the file open: start and length.
const SQLITE_LOCK_RANGE: (u64, u64) = (1 << 30, 512);

/// While this value lives, no process has the database of a state folder open, and no other process can open it.
pub struct UnusedDatabase {
    _folder_lock: File,
}

impl UnusedDatabase {
    /// Locks the state folder `home`, and creates it if it is missing. Fails with `InUse` if a process has the database
    /// open. This process must not have it open either.
    pub fn lock(home: &Path) -> Result<Self, LogError> {
        let files = Files::in_home(&std::path::absolute(home).map_err(LogError::io("find", home))?);
        let created = DirBuilder::new().recursive(true).mode(0o700).create(&files.holders);
        created.map_err(LogError::io("make folder", &files.holders))?;
        // From now on no process can open the database; then make sure that none has it open.
        let folder_lock = holder::lock_folder(&files.holders)?;
        refuse_if_used(&files)?;
        Ok(Self { _folder_lock: folder_lock })
    }
}

/// Fails if a process has the database open. The folder lock keeps out later ones.
pub(super) fn refuse_if_used(files: &Files) -> Result<(), LogError> {
    let path = files.database.clone();
    let failed = |error: std::io::Error| LogError::io("look at", &files.database)(error);
    match OpenOptions::new().read(true).write(true).open(&files.database) {
        Ok(file) => {
            let (start, length) = SQLITE_LOCK_RANGE;
            let (typ, offset_type) = (FlockType::WriteLock, FlockOffsetType::Set);
            let wanted = Flock { start, length, pid: None, typ, offset_type };
            let found = fcntl_getlk(&file, &wanted).map_err(|errno| failed(errno.into()))?;
            if let Some(lock) = found {
                let pid = lock.pid.and_then(|pid| u32::try_from(pid.as_raw_nonzero().get()).ok());
                return Err(LogError::InUse { path, pid });
            }
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(failed(error)),
    }
    if holder::any_alive(&files.holders)? {
        return Err(LogError::InUse { path, pid: None });
    }
    Ok(())
}
