//! Reading small files that may not be there. Blocking.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

/// The text of a regular file, up to `max` bytes of it, without what is not UTF-8. None if it is no
/// file or cannot be read.
pub(super) fn text_of(path: &Path, max: u64) -> Option<String> {
    // Looked at first: opening a pipe would wait for somebody to write.
    if !fs::metadata(path).ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(max).read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    Some(text.trim_end_matches('\u{fffd}').to_owned())
}

/// `folder` and the folders above it, up to and with the first that has a `.git`, outermost first.
/// Only `folder` if there is no such.
pub(super) fn project_folders(folder: &Path, max: usize) -> Vec<&Path> {
    let up: Vec<&Path> = folder.ancestors().take(max).collect();
    let root = up.iter().position(|folder| folder.join(".git").exists()).unwrap_or(0);
    up.into_iter().take(root + 1).rev().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_project_begins_where_git_does() {
        let home = tempfile::tempdir().unwrap();
        let deep = home.path().join("a/b");
        fs::create_dir_all(&deep).unwrap();
        assert_eq!(project_folders(&deep, 64), [deep.as_path()]);
        fs::create_dir(home.path().join(".git")).unwrap();
        assert_eq!(project_folders(&deep, 64), [home.path(), &home.path().join("a"), deep.as_path()]);
        assert_eq!(project_folders(&deep, 2), [deep.as_path()], "no further than asked");
    }

    #[test]
    fn only_the_beginning_of_a_file_is_read_and_only_of_a_file() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("x");
        fs::write(&file, "äää").unwrap();
        assert_eq!(text_of(&file, 3).as_deref(), Some("ä"));
        assert_eq!(text_of(&file, 100).as_deref(), Some("äää"));
        assert_eq!(text_of(home.path(), 100), None);
        assert_eq!(text_of(&home.path().join("none"), 100), None);
    }
}
