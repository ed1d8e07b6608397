//! The rules of `.gitignore` and `.ignore` files, which searches obey.
//!
//! The files are read through descriptors. The `ignore` crate does the matching; its directory walker is not used,
//! because it opens folders by path.

use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use rustix::fs::{FileType, Mode, OFlags, fstat, openat};

/// The largest `.gitignore` in bytes. A larger one has no effect.
pub const IGNORE_FILE_BYTES: usize = 1 << 20;

/// The names of rule files. Rules of a later one override those of an earlier one.
const RULE_FILES: [&str; 2] = [".gitignore", ".ignore"];

/// The rules of a folder and of its parents.
#[derive(Clone, Default)]
pub(super) struct IgnoreRules {
    /// Outermost first.
    levels: Vec<std::sync::Arc<Gitignore>>,
}

impl IgnoreRules {
    /// Adds the rules of the subfolder at `path`.
    #[must_use]
    pub(super) fn with_folder(&self, path: &Path, folder: impl AsFd) -> Self {
        let mut builder = GitignoreBuilder::new(path);
        let mut any = false;
        for name in RULE_FILES {
            let Some(text) = read_rules(&folder, name) else { continue };
            for line in text.lines() {
                // Invalid rules have no effect, as in git.
                any |= builder.add_line(None, line).is_ok();
            }
        }
        let mut levels = self.levels.clone();
        if any && let Ok(rules) = builder.build() {
            levels.push(std::sync::Arc::new(rules));
        }
        Self { levels }
    }

    /// Whether the rules exclude `path`. Rules of inner folders override those of outer ones.
    pub(super) fn is_ignored(&self, path: &Path, is_folder: bool) -> bool {
        for rules in self.levels.iter().rev() {
            match rules.matched(path, is_folder) {
                Match::Ignore(_) => return true,
                Match::Whitelist(_) => return false,
                Match::None => {}
            }
        }
        false
    }
}

fn read_rules(folder: impl AsFd, name: &str) -> Option<String> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let fd = openat(folder, name, flags, Mode::empty()).ok()?;
    let stat = fstat(&fd).ok()?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return None;
    }
    let mut bytes = Vec::new();
    File::from(fd).take(IGNORE_FILE_BYTES as u64 + 1).read_to_end(&mut bytes).ok()?;
    (bytes.len() <= IGNORE_FILE_BYTES).then(|| String::from_utf8_lossy(&bytes).into_owned())
}

/// The folders from `root` down to the parent of `path`.
pub(super) fn folders_above(root: &Path, path: &Path) -> Vec<PathBuf> {
    let mut above: Vec<PathBuf> =
        path.ancestors().skip(1).take_while(|folder| folder.starts_with(root)).map(Path::to_owned).collect();
    above.reverse();
    above
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn rules_of_an_inner_folder_override_outer_ones() {
        let dir = tempfile::tempdir().unwrap();
        let inner = dir.path().join("inner");
        fs::create_dir(&inner).unwrap();
        fs::write(dir.path().join(".gitignore"), "*.log\n/target\n[\n").unwrap();
        fs::write(inner.join(".ignore"), "!keep.log\n").unwrap();
        let outer = IgnoreRules::default().with_folder(dir.path(), File::open(dir.path()).unwrap());
        let both = outer.with_folder(&inner, File::open(&inner).unwrap());
        assert!(outer.is_ignored(&dir.path().join("a.log"), false));
        assert!(outer.is_ignored(&dir.path().join("target"), true));
        assert!(!outer.is_ignored(&inner.join("target"), true));
        assert!(both.is_ignored(&inner.join("a.log"), false));
        assert!(!both.is_ignored(&inner.join("keep.log"), false));
        assert!(!both.is_ignored(&inner.join("a.txt"), false));
    }

    #[test]
    fn a_rule_file_beyond_the_limit_has_no_effect() {
        let dir = tempfile::tempdir().unwrap();
        let mut rules = "a\n".repeat(IGNORE_FILE_BYTES / 2);
        fs::write(dir.path().join(".gitignore"), &rules).unwrap();
        assert!(read_rules(File::open(dir.path()).unwrap(), ".gitignore").is_some());
        rules.push('a');
        fs::write(dir.path().join(".gitignore"), &rules).unwrap();
        assert!(read_rules(File::open(dir.path()).unwrap(), ".gitignore").is_none());
    }

    #[test]
    fn the_folders_above_end_at_the_root() {
        let above = folders_above(Path::new("/a/b"), Path::new("/a/b/c/d"));
        assert_eq!(above, [Path::new("/a/b"), Path::new("/a/b/c")]);
        assert!(folders_above(Path::new("/a"), Path::new("/a")).is_empty());
    }
}
