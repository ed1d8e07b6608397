//! The store as its users meet it.

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

/// An id that has the form of one and belongs to nothing.
fn nobody() -> MediaId {
    MediaId::parse(&"0".repeat(64)).expect("short")
}

/// What is in the folder, sorted; empty if there is none.
fn names(home: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(home.join("media")) else { return Vec::new() };
    let name = |entry: std::io::Result<fs::DirEntry>| entry.expect("readable").file_name();
    let mut names: Vec<String> =
        entries.map(|entry| name(entry).into_string().expect("our names are text")).collect();
    names.sort();
    names
}

/// When a file was last changed.
fn changed_at(path: &Path) -> Timestamp {
    let changed = fs::metadata(path).and_then(|meta| meta.modified()).expect("it is there");
    let since = changed.duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    Timestamp(i64::try_from(since.as_millis()).expect("a time of our days"))
}

/// A store in an empty place that goes away with the guard.
fn empty() -> (tempfile::TempDir, MediaStore) {
    let home = tempfile::tempdir().expect("a folder");
    let store = MediaStore::open(home.path()).expect("nothing is there");
    (home, store)
}
