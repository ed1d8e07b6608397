//! Files that a client has opened to read or write them in blocks.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use parlor_vocab::{ExecutorRefusal, FileReply, FollowLinks};

use super::files::{Outcome, open_regular, refusal};

/// How many files a connection may have open.
pub const MAX_OPEN_FILES: usize = 128;

/// The longest name of an open file, in bytes.
pub const MAX_HANDLE_BYTES: usize = 32;

/// The largest block, in bytes.
pub const MAX_BLOCK_BYTES: u64 = 1 << 20;

/// The open files of one connection. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct OpenFiles {
    files: Arc<Mutex<HashMap<String, Arc<File>>>>,
}

impl OpenFiles {
    fn files(&self) -> MutexGuard<'_, HashMap<String, Arc<File>>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn open(
        &self,
        handle: String,
        path: &Path,
        replaces: bool,
        follow: FollowLinks,
    ) -> Outcome<FileReply> {
        let refused = |text: String| Err(ExecutorRefusal::FileRefused(text));
        if handle.len() > MAX_HANDLE_BYTES {
            return refused(format!("handleId has more than {MAX_HANDLE_BYTES} bytes"));
        }
        if self.files().contains_key(&handle) {
            return refused(format!("file handle `{handle}` is already open"));
        }
        if self.files().len() >= MAX_OPEN_FILES {
            return refused(format!("{MAX_OPEN_FILES} files are open already"));
        }
        let mut options = OpenOptions::new();
        match replaces {
            // Emptied only when it is known to be a regular file.
            true => options.write(true).create(true).truncate(false),
            false => options.read(true),
        };
        let file = open_regular(&mut options, path, follow)?;
        if replaces {
            file.set_len(0).map_err(refusal)?;
        }
        self.files().insert(handle.clone(), Arc::new(file));
        Ok(FileReply::Opened(handle))
    }

    pub(super) fn read(&self, handle: &str, offset: u64, length: u64) -> Outcome<FileReply> {
        let file = self.block(handle, length)?;
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
        let mut filled = 0;
        let outcome = loop {
            match file.read_at(&mut bytes[filled..], offset.saturating_add(filled as u64)) {
                Ok(0) => break Ok(()),
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => break Err(error),
            }
        };
        self.close_if_failed(handle, outcome)?;
        bytes.truncate(filled);
        Ok(FileReply::Block { is_end: (filled as u64) < length, bytes })
    }

    pub(super) fn write(&self, handle: &str, offset: u64, bytes: &[u8]) -> Outcome<FileReply> {
        let file = self.block(handle, bytes.len() as u64)?;
        self.close_if_failed(handle, file.write_all_at(bytes, offset))?;
        Ok(FileReply::Done)
    }

    pub(super) fn close(&self, handle: &str) {
        self.files().remove(handle);
    }

    fn block(&self, handle: &str, length: u64) -> Outcome<Arc<File>> {
        if !(1..=MAX_BLOCK_BYTES).contains(&length) {
            return Err(ExecutorRefusal::FileRefused(format!("a block has 1 to {MAX_BLOCK_BYTES} bytes")));
        }
        let file = self.files().get(handle).map(Arc::clone);
        file.ok_or_else(|| ExecutorRefusal::FileNotFound(format!("unknown file handle `{handle}`")))
    }

    fn close_if_failed(&self, handle: &str, outcome: io::Result<()>) -> Outcome<()> {
        outcome.map_err(|error| {
            self.close(handle);
            refusal(error)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_written_and_read_in_blocks() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        std::fs::write(&path, "old and longer").unwrap();
        let files = OpenFiles::default();
        assert_eq!(
            files.open("w".to_owned(), &path, true, FollowLinks::Yes),
            Ok(FileReply::Opened("w".to_owned()))
        );
        for (offset, text) in [(3, "def"), (0, "abc")] {
            assert_eq!(files.write("w", offset, text.as_bytes()), Ok(FileReply::Done));
        }
        files.close("w");
        assert!(matches!(files.write("w", 0, b"x"), Err(ExecutorRefusal::FileNotFound(_))));
        files.open("r".to_owned(), &path, false, FollowLinks::Yes).unwrap();
        let block = |bytes: &[u8], is_end| Ok(FileReply::Block { bytes: bytes.to_vec(), is_end });
        assert_eq!(files.read("r", 0, 3), block(b"abc", false));
        assert_eq!(files.read("r", 3, 3), block(b"def", false));
        assert_eq!(files.read("r", 6, 3), block(b"", true));
        assert_eq!(files.read("r", 4, MAX_BLOCK_BYTES), block(b"ef", true));
        // A file that is open for reading cannot be written, and an error closes it.
        assert!(files.write("r", 0, b"x").is_err());
        assert!(matches!(files.read("r", 0, 1), Err(ExecutorRefusal::FileNotFound(_))));
    }

    #[test]
    fn open_files_names_and_blocks_are_limited() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        std::fs::write(&path, "text").unwrap();
        let files = OpenFiles::default();
        let is_refused = |outcome| matches!(outcome, Err(ExecutorRefusal::FileRefused(_)));
        for number in 0..MAX_OPEN_FILES {
            files.open(number.to_string(), &path, false, FollowLinks::Yes).unwrap();
        }
        assert!(is_refused(files.open("more".to_owned(), &path, false, FollowLinks::Yes)));
        files.close("5");
        assert!(is_refused(files.open("4".to_owned(), &path, false, FollowLinks::Yes)), "the name is in use");
        assert!(is_refused(files.open("x".repeat(MAX_HANDLE_BYTES + 1), &path, false, FollowLinks::Yes)));
        files.open("x".repeat(MAX_HANDLE_BYTES), &path, false, FollowLinks::Yes).unwrap();
        assert!(is_refused(files.read("1", 0, 0)) && is_refused(files.read("1", 0, MAX_BLOCK_BYTES + 1)));
    }
}
