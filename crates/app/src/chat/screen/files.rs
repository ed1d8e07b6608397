//! The files of the working folder that a message can mention.

use std::path::Path;
use std::time::{Duration, Instant};

use ignore::WalkBuilder;

use super::wrap::clean;

/// How many files are offered; of more, those that are found first.
pub(crate) const MAX_FILES: usize = 20_000;
/// Folders that are deeper than this are left out.
pub(crate) const MAX_FILE_DEPTH: usize = 24;
/// How long the search may take.
pub(crate) const FILE_SEARCH_TIME: Duration = Duration::from_secs(2);

/// The files below `folder`, relative to it, without those that `.gitignore` names and hidden ones.
pub(super) fn list_files(folder: &Path) -> Vec<String> {
    let start = Instant::now();
    let walk = WalkBuilder::new(folder).max_depth(Some(MAX_FILE_DEPTH)).require_git(false).build();
    let is_file = |entry: &ignore::DirEntry| entry.file_type().is_some_and(|kind| kind.is_file());
    let mut files: Vec<String> = walk
        .take_while(|_| start.elapsed() < FILE_SEARCH_TIME)
        .filter_map(Result::ok)
        .filter(is_file)
        .filter_map(|entry| entry.path().strip_prefix(folder).ok().and_then(Path::to_str).map(str::to_owned))
        // A name with a control character cannot be typed, and must not reach the terminal.
        .filter(|name| clean(name) == *name && !name.contains('\n'))
        .take(MAX_FILES)
        .collect();
    files.sort();
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_hidden_and_hostile_files_are_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write(".gitignore", "target\n");
        for name in ["src/main.rs", "a.md", "target/x", ".hidden", "evil\x1b[2J", "line\nbreak"] {
            write(name, "");
        }
        assert_eq!(list_files(folder.path()), ["a.md", "src/main.rs"]);
    }
}
