//! The kept contents: each once, in a file that is named by the hash of its bytes.
//!
//! Nothing is synced to disk, because a snapshot of a thousand files would then take seconds: the contents survive the death
//! of the process, and a loss of power shows itself by a hash that does not fit.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::error::UndoError;
use crate::walk::WRITTEN_FILE_BYTES;

/// How many digits of an id name the folder of a content: a folder with too many files is slow.
const FOLDER_DIGITS: usize = 2;

/// The length of an id in hexadecimal digits.
const ID_DIGITS: usize = 64;

/// The SHA-256 of a content in hexadecimal digits.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ContentId(Box<str>);

impl ContentId {
    /// The id of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(hex(&Sha256::digest(bytes)).into())
    }

    /// The 64 digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The id whose content is in the file `name` of the folder `folder`.
    pub(crate) fn from_names(folder: &str, name: &str) -> Option<Self> {
        Self::try_from(format!("{folder}{name}")).ok()
    }

    fn file(&self) -> PathBuf {
        let (folder, name) = self.0.split_at(FOLDER_DIGITS);
        Path::new(folder).join(name)
    }
}

impl TryFrom<String> for ContentId {
    type Error = &'static str;

    /// Fails unless `text` is safe as a file name.
    fn try_from(text: String) -> Result<Self, &'static str> {
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if text.len() == ID_DIGITS && text.bytes().all(is_digit) {
            Ok(Self(text.into()))
        } else {
            Err("an id of a content is 64 hexadecimal digits")
        }
    }
}

impl From<ContentId> for String {
    fn from(id: ContentId) -> Self {
        id.0.into()
    }
}

impl fmt::Debug for ContentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ContentId({:.12})", &*self.0)
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    use fmt::Write as _;
    let mut digits = String::with_capacity(bytes.len() * 2);
    bytes.iter().for_each(|byte| write!(digits, "{byte:02x}").expect("a string takes all text"));
    digits
}

/// The folder of the kept contents.
#[derive(Clone, Debug)]
pub(crate) struct Contents {
    pub(crate) folder: PathBuf,
    /// How many bytes this process has added since its last sweep.
    pub(crate) added: Arc<AtomicU64>,
}

impl Contents {
    /// Keeps `bytes`.
    ///
    /// Writes them under their final name: a rename for each of a thousand files costs as much as all else. A file that a
    /// killed process has not completed is too short, so it is recognized and replaced.
    pub(crate) fn put(&self, id: &ContentId, bytes: &[u8]) -> Result<(), UndoError> {
        let path = self.path(id);
        let is_there = match fs::metadata(&path) {
            Ok(metadata) if metadata.len() == bytes.len() as u64 => return Ok(()),
            Ok(_) => true,
            Err(_) => false,
        };
        let parent = path.parent().expect("a content is in a folder");
        let written = if is_there {
            replace_private(&path, bytes)
        } else {
            write_private(&path, bytes).or_else(|error| {
                if error.kind() == io::ErrorKind::NotFound {
                    return create_folder(parent).and_then(|()| write_private(&path, bytes));
                }
                // Another process may keep the same content at this moment.
                let is_known = error.kind() == io::ErrorKind::AlreadyExists;
                if is_known { replace_private(&path, bytes) } else { Err(error) }
            })
        };
        written.map_err(UndoError::io("write", &path))?;
        self.added.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    pub(crate) fn has(&self, id: &ContentId) -> bool {
        self.path(id).exists()
    }

    /// Reads a content and checks its hash.
    pub(crate) fn read(&self, id: &ContentId) -> Result<Vec<u8>, UndoError> {
        let path = self.path(id);
        let file = File::open(&path).map_err(UndoError::io("read", &path))?;
        let mut bytes = Vec::new();
        file.take(WRITTEN_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(UndoError::io("read", &path))?;
        if ContentId::of(&bytes) == *id { Ok(bytes) } else { Err(UndoError::Damaged { path }) }
    }

    fn path(&self, id: &ContentId) -> PathBuf {
        self.folder.join(id.file())
    }
}

/// Creates a folder that only the user can enter, with those above it.
pub(crate) fn create_folder(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Replaces a file that only the user can read.
fn replace_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let temporary = path.with_file_name(format!(".new-{}-{number}.tmp", process::id()));
    let written = write_private(&temporary, bytes).and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        // If this fails too, a sweep removes the file.
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// Writes a new file that only the user can read.
pub(crate) fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_content_that_was_cut_off_is_kept_again() {
        let folder = tempfile::tempdir().unwrap();
        let contents = Contents { folder: folder.path().to_owned(), added: Arc::default() };
        let id = ContentId::of(b"content");
        contents.put(&id, b"content").unwrap();
        fs::write(contents.path(&id), "con").unwrap();
        assert!(matches!(contents.read(&id), Err(UndoError::Damaged { .. })));
        contents.put(&id, b"content").unwrap();
        assert_eq!(contents.read(&id).unwrap(), b"content");
    }
}
