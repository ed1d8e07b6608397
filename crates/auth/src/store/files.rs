//! Stores each secret in a file of mode 0600, in a folder of mode 0700.
//!
//! Writes are atomic: a temporary file is written, synced and renamed. Links are never followed. Files and folders that
//! other users can read or change are refused with an error.

use std::fs::{DirBuilder, File};
use std::io::{Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, Stat, fstat, fsync, open, openat, renameat, unlinkat,
};
use rustix::io::Errno;
use rustix::process::geteuid;
use zeroize::Zeroizing;

use super::lock::SecretLock;
use super::{SecretName, SecretStoreError};
use crate::Secret;

/// The largest secret, in bytes.
pub const SECRET_BYTES: usize = 64 << 10;

/// The permission bits of group and others, all of which must be unset.
const GROUP_AND_OTHERS: Mode = Mode::from_bits_truncate(0o077);

const PREFIX: &str = ".";
const LOCK_SUFFIX: &str = ".lock";
const TEMP_SUFFIX: &str = ".tmp";
const MARKER_SUFFIX: &str = ".keyring";

/// The folder of secrets, which may not exist yet.
#[derive(Debug)]
pub(super) struct Files {
    home: PathBuf,
    path: PathBuf,
}

impl Files {
    pub(super) fn new(home: PathBuf, path: PathBuf) -> Self {
        Self { home, path }
    }

    pub(super) fn path_of(&self, name: &SecretName) -> PathBuf {
        self.path.join(name.as_str())
    }

    pub(super) fn read(&self, name: &SecretName) -> Result<Option<Secret>, SecretStoreError> {
        let Some(folder) = self.open_folder()? else { return Ok(None) };
        let path = self.path_of(name);
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = match openat(&folder, name.as_str(), flags, Mode::empty()) {
            Ok(fd) => File::from(fd),
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::LOOP | Errno::NXIO) => {
                return Err(SecretStoreError::NotPlain { path, wanted: "file" });
            }
            Err(errno) => return Err(SecretStoreError::io("open", path)(errno)),
        };
        self.check(&path, &file, FileType::RegularFile)?;
        let mut text = Zeroizing::new(String::with_capacity(SECRET_BYTES + 1));
        let read = (&file).take(SECRET_BYTES as u64 + 1).read_to_string(&mut text);
        read.map_err(SecretStoreError::io("read", path))?;
        if text.len() > SECRET_BYTES {
            return Err(SecretStoreError::TooLarge);
        }
        Ok(Some(Secret::new(text.as_str())))
    }

    pub(super) fn write(&self, name: &SecretName, secret: &Secret) -> Result<(), SecretStoreError> {
        let folder = self.create_folder()?;
        let failed = |attempt| SecretStoreError::io::<std::io::Error>(attempt, self.path_of(name));
        let (file, temp) = self.create_temporary(&folder, name)?;
        let written = (&file)
            .write_all(secret.expose().as_bytes())
            .and_then(|()| file.sync_all())
            .and_then(|()| Ok(renameat(&folder, &temp, &folder, name.as_str())?));
        if let Err(error) = written {
            // If this fails too, the remaining file is as private as the secret file.
            let _ = unlinkat(&folder, &temp, AtFlags::empty());
            return Err(failed("write")(error));
        }
        fsync(&folder).map_err(|errno| failed("sync")(errno.into()))
    }

    pub(super) fn remove(&self, name: &SecretName) -> Result<bool, SecretStoreError> {
        let Some(folder) = self.open_folder()? else { return Ok(false) };
        let failed = |errno: Errno| SecretStoreError::io("delete", self.path_of(name))(errno);
        match unlinkat(&folder, name.as_str(), AtFlags::empty()) {
            Ok(()) => fsync(&folder).map(|()| true).map_err(failed),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(failed(errno)),
        }
    }

    pub(super) fn names(&self) -> Result<Vec<SecretName>, SecretStoreError> {
        self.list(SecretName::parse)
    }

    /// Creates the marker file: the keyring has the secret with this name.
    pub(super) fn mark(&self, name: &SecretName) -> Result<(), SecretStoreError> {
        let folder = self.create_folder()?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let marked =
            openat(&folder, marker_of(name), flags, Mode::RUSR | Mode::WUSR).and_then(|_| fsync(&folder));
        marked.map_err(SecretStoreError::io("make a file in", &self.path))
    }

    /// Removes the marker file.
    pub(super) fn unmark(&self, name: &SecretName) -> Result<(), SecretStoreError> {
        let Some(folder) = self.open_folder()? else { return Ok(()) };
        match unlinkat(&folder, marker_of(name), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(SecretStoreError::io("delete a file in", &self.path)(errno)),
        }
    }

    /// Whether the marker file exists, that is, whether the keyring has the secret.
    pub(super) fn is_marked(&self, name: &SecretName) -> bool {
        self.path.join(marker_of(name)).exists()
    }

    /// The names of the secrets that have a marker file.
    pub(super) fn marked(&self) -> Result<Vec<SecretName>, SecretStoreError> {
        self.list(|file| SecretName::parse(file.strip_prefix(PREFIX)?.strip_suffix(MARKER_SUFFIX)?))
    }

    fn list(&self, name: impl Fn(&str) -> Option<SecretName>) -> Result<Vec<SecretName>, SecretStoreError> {
        let Some(folder) = self.open_folder()? else { return Ok(Vec::new()) };
        let failed = |errno: Errno| SecretStoreError::io("list", &self.path)(errno);
        let mut names = Vec::new();
        for entry in Dir::read_from(&folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            names.extend(entry.file_name().to_str().ok().and_then(&name));
        }
        names.sort();
        Ok(names)
    }

    pub(super) fn try_lock(&self, name: &SecretName) -> Result<Option<SecretLock>, SecretStoreError> {
        let folder = self.create_folder()?;
        let lock = format!("{PREFIX}{}{LOCK_SUFFIX}", name.as_str());
        let path = self.path.join(&lock);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&folder, lock, flags, Mode::RUSR | Mode::WUSR)
            .map_err(SecretStoreError::io("open", &path))
            .map(File::from)?;
        SecretLock::try_lock(file, &path)
    }

    /// Opens the folder and checks its permissions. `None` if it does not exist.
    fn open_folder(&self) -> Result<Option<File>, SecretStoreError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = match open(&self.path, flags, Mode::empty()) {
            Ok(fd) => File::from(fd),
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::LOOP | Errno::NOTDIR) => {
                return Err(SecretStoreError::NotPlain { path: self.path.clone(), wanted: "folder" });
            }
            Err(errno) => return Err(SecretStoreError::io("open", &self.path)(errno)),
        };
        self.check(&self.path, &folder, FileType::Directory)?;
        Ok(Some(folder))
    }

    /// Opens the folder, and creates it if necessary.
    fn create_folder(&self) -> Result<File, SecretStoreError> {
        if let Some(folder) = self.open_folder()? {
            return Ok(folder);
        }
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&self.path);
        made.map_err(SecretStoreError::io("make folder", &self.path))?;
        let synced = File::open(&self.home).and_then(|home| home.sync_all());
        synced.map_err(SecretStoreError::io("sync", &self.home))?;
        self.open_folder()?.ok_or_else(|| SecretStoreError::io("open", &self.path)(Errno::NOENT))
    }

    /// Creates an empty temporary file with an unused name.
    fn create_temporary(&self, folder: &File, name: &SecretName) -> Result<(File, String), SecretStoreError> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        loop {
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let temp = format!("{PREFIX}{}-{}-{number}{TEMP_SUFFIX}", name.as_str(), std::process::id());
            match openat(folder, &temp, flags, Mode::RUSR | Mode::WUSR) {
                Ok(fd) => return Ok((File::from(fd), temp)),
                // A crashed process with the same pid left the file behind.
                Err(Errno::EXIST | Errno::INTR) => {}
                Err(errno) => return Err(SecretStoreError::io("make a file in", &self.path)(errno)),
            }
        }
    }

    /// Refuses a file that is not of the wanted type or that other users can access.
    fn check(&self, path: &std::path::Path, file: &File, wanted: FileType) -> Result<(), SecretStoreError> {
        let path = path.to_owned();
        let stat: Stat = fstat(file).map_err(SecretStoreError::io("look at", &path))?;
        let is_folder = wanted == FileType::Directory;
        if FileType::from_raw_mode(stat.st_mode) != wanted {
            return Err(SecretStoreError::NotPlain {
                path,
                wanted: if is_folder { "folder" } else { "file" },
            });
        }
        if stat.st_uid != geteuid().as_raw() {
            return Err(SecretStoreError::Foreign { path });
        }
        if Mode::from_raw_mode(stat.st_mode).intersects(GROUP_AND_OTHERS) {
            return Err(SecretStoreError::Exposed { path, mode: if is_folder { "700" } else { "600" } });
        }
        Ok(())
    }
}

/// The name of the marker file of a secret in the keyring.
fn marker_of(name: &SecretName) -> String {
    format!("{PREFIX}{}{MARKER_SUFFIX}", name.as_str())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::Path;

    use super::*;

    fn files(home: &Path) -> Files {
        Files::new(home.to_owned(), home.join("secrets"))
    }

    fn name() -> SecretName {
        SecretName::login("x").unwrap()
    }

    fn mode(path: &Path) -> u32 {
        std::fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn secrets_are_private_and_replaced_atomically() {
        let home = tempfile::tempdir().unwrap();
        let files = files(&home.path().join("not-yet"));
        assert_eq!(files.read(&name()).unwrap(), None);
        assert!(files.names().unwrap().is_empty());
        for text in ["first", "second and longer", "3"] {
            files.write(&name(), &Secret::new(text)).unwrap();
            assert_eq!(files.read(&name()).unwrap(), Some(Secret::new(text)));
        }
        assert_eq!((mode(&files.path), mode(&files.path_of(&name()))), (0o700, 0o600));
        assert_eq!(std::fs::read_dir(&files.path).unwrap().count(), 1, "no temporary file remains");
        assert_eq!(files.names().unwrap(), [name()]);
        assert!(files.remove(&name()).unwrap());
        assert!(!files.remove(&name()).unwrap());
        assert_eq!(files.read(&name()).unwrap(), None);
    }

    #[test]
    fn files_that_other_users_can_access_are_refused() {
        let home = tempfile::tempdir().unwrap();
        let files = files(home.path());
        files.write(&name(), &Secret::new("s3cret")).unwrap();
        let file = files.path_of(&name());
        for open in [0o640, 0o604, 0o620, 0o601] {
            std::fs::set_permissions(&file, PermissionsExt::from_mode(open)).unwrap();
            let error = files.read(&name()).unwrap_err().to_string();
            assert!(error.contains("chmod 600") && !error.contains("s3cret"), "{error}");
        }
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
        std::fs::set_permissions(&files.path, PermissionsExt::from_mode(0o750)).unwrap();
        for error in [
            files.read(&name()).unwrap_err(),
            files.write(&name(), &Secret::new("x")).unwrap_err(),
            files.remove(&name()).unwrap_err(),
        ] {
            assert!(error.to_string().contains("chmod 700"), "{error}");
        }
    }

    #[test]
    fn links_are_refused() {
        let home = tempfile::tempdir().unwrap();
        let files = files(home.path());
        let elsewhere = home.path().join("elsewhere");
        std::fs::write(&elsewhere, "theirs").unwrap();
        std::fs::set_permissions(&elsewhere, PermissionsExt::from_mode(0o600)).unwrap();
        files.create_folder().unwrap();
        symlink(&elsewhere, files.path_of(&name())).unwrap();
        assert!(matches!(files.read(&name()), Err(SecretStoreError::NotPlain { wanted: "file", .. })));
        files.write(&name(), &Secret::new("mine")).unwrap();
        assert_eq!(files.read(&name()).unwrap(), Some(Secret::new("mine")));
        assert_eq!(std::fs::read_to_string(&elsewhere).unwrap(), "theirs");

        std::fs::rename(&files.path, home.path().join("moved")).unwrap();
        symlink(home.path().join("moved"), &files.path).unwrap();
        assert!(matches!(files.read(&name()), Err(SecretStoreError::NotPlain { wanted: "folder", .. })));
    }

    #[test]
    fn large_files_and_folders_are_refused() {
        let home = tempfile::tempdir().unwrap();
        let files = files(home.path());
        files.write(&name(), &Secret::new("x".repeat(SECRET_BYTES))).unwrap();
        assert_eq!(files.read(&name()).unwrap().unwrap().expose().len(), SECRET_BYTES);
        files.write(&name(), &Secret::new("x".repeat(SECRET_BYTES + 1))).unwrap();
        assert!(matches!(files.read(&name()), Err(SecretStoreError::TooLarge)));
        files.remove(&name()).unwrap();
        std::fs::create_dir(files.path_of(&name())).unwrap();
        assert!(matches!(files.read(&name()), Err(SecretStoreError::NotPlain { .. })));
    }

    #[test]
    fn a_lock_is_exclusive_for_one_name() {
        let home = tempfile::tempdir().unwrap();
        let files = files(home.path());
        let held = files.try_lock(&name()).unwrap().expect("free");
        assert!(files.try_lock(&name()).unwrap().is_none());
        assert!(files.try_lock(&SecretName::login("y").unwrap()).unwrap().is_some());
        drop(held);
        assert!(files.try_lock(&name()).unwrap().is_some());
        assert!(files.names().unwrap().is_empty(), "lock files are not listed");
    }
}
