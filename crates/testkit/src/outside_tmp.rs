//! A folder for tests of the sandbox, which puts folders of its own in the place of the temporary ones and hides homes.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// The folders that a sandbox replaces or hides.
const UNUSABLE: [&str; 4] = ["/tmp", "/var/tmp", "/root", "/home"];

/// A new folder that a command in a sandbox can see: in `target_tmp`, the test's `CARGO_TARGET_TMPDIR`, unless the tests are
/// built in a temporary folder. Then it is in `/srv`, or in the home folder if the user may not write there.
///
/// # Panics
///
/// If the folder cannot be made.
pub fn folder_outside_tmp(target_tmp: &str) -> TempDir {
    let is_usable = |path: &Path| !UNUSABLE.iter().any(|unusable| path.starts_with(unusable));
    let candidates =
        [PathBuf::from(target_tmp), PathBuf::from("/srv")].into_iter().filter(|path| is_usable(path));
    candidates
        .chain(std::env::home_dir())
        .find_map(|parent| TempDir::with_prefix_in("parlor-test-", parent).ok())
        .expect("one of the folders can be written")
}
