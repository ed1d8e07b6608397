//! Tests of the media store through its public methods.

mod crash;
mod disk;
mod page;
mod properties;
mod store;
mod sweeping;

use std::fs;
use std::path::Path;
use std::time::SystemTime;

use parlor_vocab::{MediaId, Timestamp};

use super::MediaStore;

/// A well-formed id of no stored file.
fn unknown_id() -> MediaId {
    MediaId::parse(&"0".repeat(64)).expect("64 digits are an id")
}

/// The sorted names of the files in the store's folder; empty if there is no folder.
fn file_names(home: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(home.join("media")) else { return Vec::new() };
    let name = |entry: std::io::Result<fs::DirEntry>| entry.expect("readable").file_name();
    let mut names: Vec<String> =
        entries.map(|entry| name(entry).into_string().expect("names are UTF-8")).collect();
    names.sort();
    names
}

/// The modification time of a file.
fn modified_at(path: &Path) -> Timestamp {
    let modified = fs::metadata(path).and_then(|meta| meta.modified()).expect("the file exists");
    let since = modified.duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    Timestamp(i64::try_from(since.as_millis()).expect("fits 64 bits"))
}

/// A store in an empty folder, which is deleted when the guard is dropped.
fn empty_store() -> (tempfile::TempDir, MediaStore) {
    let home = tempfile::tempdir().expect("a folder");
    let store = MediaStore::open(home.path()).expect("the folder is empty");
    (home, store)
}
