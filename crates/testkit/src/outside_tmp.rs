//! A folder for tests of the sandbox, which puts a folder of its own in the place of the temporary ones.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// The folders that a sandbox replaces.
const REPLACED: [&str; 2] = ["/tmp", "/var/tmp"];

/// A new folder that sandboxes do not replace: in `target_tmp`, the test's `CARGO_TARGET_TMPDIR`, unless the tests are built
/// in a temporary folder. Then it is in the home folder.
///
/// # Panics
///
/// If the folder cannot be made.
pub fn folder_outside_tmp(target_tmp: &str) -> TempDir {
    let parent = if REPLACED.iter().any(|replaced| Path::new(target_tmp).starts_with(replaced)) {
        std::env::home_dir().expect("the user has a home folder")
    } else {
        PathBuf::from(target_tmp)
    };
    TempDir::with_prefix_in("parlor-test-", parent).expect("the folder can be written")
}
