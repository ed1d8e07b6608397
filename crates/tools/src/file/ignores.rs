//! The rules of `.gitignore` and `.ignore` files, which searches obey.
//!
//! The files are read through descriptors. The `ignore` crate does the matching; its directory walker is not used,
//! because it opens folders by path.
//!
//! A compiled rule needs hundreds of times the memory of its text, and any repository may bring rule files, so their
//! size has limits. Rules beyond a limit have no effect and are counted in [`SkippedRules`].

use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use rustix::fs::{FileType, Mode, OFlags, fstat, openat};

use crate::file::globs::escape_braces;

/// The largest `.gitignore` in bytes. A larger one has no effect.
pub const IGNORE_FILE_BYTES: usize = 64 << 10;
/// The longest rule in bytes. A longer one has no effect.
pub const IGNORE_LINE_BYTES: usize = 1 << 10;
/// How many rules of a folder and its parents apply together. More rules have no effect.
pub const IGNORE_RULES: usize = 4096;
/// How many bytes the rules of a folder and its parents have together. More rules have no effect.
pub const IGNORE_RULE_BYTES: usize = 128 << 10;

/// The names of rule files. Rules of a later one override those of an earlier one.
const RULE_FILES: [&str; 2] = [".gitignore", ".ignore"];

/// The rules of a folder and of its parents.
#[derive(Clone, Default)]
pub(super) struct IgnoreRules {
    /// Outermost first.
    levels: Vec<std::sync::Arc<Gitignore>>,
    /// How many rules all levels have, and how many bytes.
    rules: usize,
    bytes: usize,
}

/// What had no effect because of the limits.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct SkippedRules {
    /// Files larger than [`IGNORE_FILE_BYTES`].
    pub(super) files: usize,
    /// Rules beyond the other limits.
    pub(super) rules: usize,
}

impl IgnoreRules {
    /// Adds the rules of the subfolder at `path`.
    #[must_use]
    pub(super) fn with_folder(&self, path: &Path, folder: impl AsFd, skipped: &mut SkippedRules) -> Self {
        let mut builder = GitignoreBuilder::new(path);
        let mut inner = self.clone();
        for name in RULE_FILES {
            let text = match read_rules(&folder, name) {
                RuleFile::Text(text) => text,
                RuleFile::TooLarge => {
                    skipped.files += 1;
                    continue;
                }
                RuleFile::Missing => continue,
            };
            for line in text.lines() {
                inner.add_rule(&mut builder, line, skipped);
            }
        }
        let added = inner.rules - self.rules;
        if added > 0 {
            match builder.build() {
                Ok(rules) => inner.levels.push(std::sync::Arc::new(rules)),
                Err(_) => skipped.rules += added,
            }
        }
        inner
    }

    fn add_rule(&mut self, builder: &mut GitignoreBuilder, line: &str, skipped: &mut SkippedRules) {
        if line.starts_with('#') || line.trim().is_empty() {
            return;
        }
        let bytes = self.bytes + line.len();
        if line.len() > IGNORE_LINE_BYTES || self.rules == IGNORE_RULES || bytes > IGNORE_RULE_BYTES {
            skipped.rules += 1;
            return;
        }
        // In git, braces in a rule are plain characters. Invalid rules have no effect, as in git.
        if builder.add_line(None, &escape_braces(line)).is_ok() {
            self.rules += 1;
            self.bytes = bytes;
        }
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

/// The content of a file of ignore rules, if it can be used.
enum RuleFile {
    Text(String),
    TooLarge,
    /// There is no regular file that can be read.
    Missing,
}

fn read_rules(folder: impl AsFd, name: &str) -> RuleFile {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let Ok(fd) = openat(folder, name, flags, Mode::empty()) else { return RuleFile::Missing };
    if !fstat(&fd).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile) {
        return RuleFile::Missing;
    }
    let mut bytes = Vec::new();
    match File::from(fd).take(IGNORE_FILE_BYTES as u64 + 1).read_to_end(&mut bytes) {
        Err(_) => RuleFile::Missing,
        Ok(read) if read > IGNORE_FILE_BYTES => RuleFile::TooLarge,
        Ok(_) => RuleFile::Text(String::from_utf8_lossy(&bytes).into_owned()),
    }
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

    /// The rules of `folder` alone, and what was skipped.
    fn rules_of(folder: &Path) -> (IgnoreRules, SkippedRules) {
        let mut skipped = SkippedRules::default();
        let rules = IgnoreRules::default().with_folder(folder, File::open(folder).unwrap(), &mut skipped);
        (rules, skipped)
    }

    #[test]
    fn rules_of_an_inner_folder_override_outer_ones() {
        let dir = tempfile::tempdir().unwrap();
        let inner = dir.path().join("inner");
        fs::create_dir(&inner).unwrap();
        fs::write(dir.path().join(".gitignore"), "*.log\n/target\n[\n").unwrap();
        fs::write(inner.join(".ignore"), "!keep.log\n").unwrap();
        let (outer, mut skipped) = rules_of(dir.path());
        let both = outer.with_folder(&inner, File::open(&inner).unwrap(), &mut skipped);
        assert!(outer.is_ignored(&dir.path().join("a.log"), false));
        assert!(outer.is_ignored(&dir.path().join("target"), true));
        assert!(!outer.is_ignored(&inner.join("target"), true));
        assert!(both.is_ignored(&inner.join("a.log"), false));
        assert!(!both.is_ignored(&inner.join("keep.log"), false));
        assert!(!both.is_ignored(&inner.join("a.txt"), false));
        assert_eq!(skipped, SkippedRules::default());
    }

    #[test]
    fn braces_are_plain_characters_as_in_git() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(".gitignore"), "*.{a,b}\n{x\n").unwrap();
        let (rules, _) = rules_of(dir.path());
        assert!(rules.is_ignored(&dir.path().join("1.{a,b}"), false));
        assert!(rules.is_ignored(&dir.path().join("{x"), false));
        assert!(!rules.is_ignored(&dir.path().join("1.a"), false));
    }

    #[test]
    fn a_rule_file_beyond_the_limit_has_no_effect_and_is_counted() {
        let dir = tempfile::tempdir().unwrap();
        let mut rules = format!("{}a\n", "#\n".repeat(IGNORE_FILE_BYTES / 2 - 1));
        fs::write(dir.path().join(".gitignore"), &rules).unwrap();
        let (found, skipped) = rules_of(dir.path());
        assert!(found.is_ignored(&dir.path().join("a"), false));
        assert_eq!(skipped, SkippedRules::default());
        rules.push('b');
        fs::write(dir.path().join(".gitignore"), &rules).unwrap();
        let (found, skipped) = rules_of(dir.path());
        assert!(!found.is_ignored(&dir.path().join("a"), false));
        assert_eq!(skipped, SkippedRules { files: 1, rules: 0 });
    }

    #[test]
    fn rules_beyond_the_limits_have_no_effect_and_are_counted() {
        let dir = tempfile::tempdir().unwrap();
        // The test is about the numbers, so no large rules are compiled.
        let mut builder = GitignoreBuilder::new(dir.path());
        let mut skipped = SkippedRules::default();
        let mut rules = IgnoreRules::default();
        rules.add_rule(&mut builder, &"a".repeat(IGNORE_LINE_BYTES), &mut skipped);
        assert_eq!((rules.rules, skipped.rules), (1, 0));
        rules.add_rule(&mut builder, &"a".repeat(IGNORE_LINE_BYTES + 1), &mut skipped);
        assert_eq!((rules.rules, skipped.rules), (1, 1));
        let mut rules = IgnoreRules { rules: IGNORE_RULES - 1, ..IgnoreRules::default() };
        rules.add_rule(&mut builder, "a", &mut skipped);
        rules.add_rule(&mut builder, "# no rule", &mut skipped);
        assert_eq!((rules.rules, skipped.rules), (IGNORE_RULES, 1));
        rules.add_rule(&mut builder, "a", &mut skipped);
        assert_eq!((rules.rules, skipped.rules), (IGNORE_RULES, 2));
        let mut rules = IgnoreRules { bytes: IGNORE_RULE_BYTES - 1, ..IgnoreRules::default() };
        rules.add_rule(&mut builder, "ab", &mut skipped);
        rules.add_rule(&mut builder, "a", &mut skipped);
        assert_eq!((rules.rules, rules.bytes, skipped.rules), (1, IGNORE_RULE_BYTES, 3));
    }

    #[test]
    fn rules_of_parents_count_in_the_limits() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(".gitignore"), "a\nb\n").unwrap();
        let (outer, mut skipped) = rules_of(dir.path());
        let outer = IgnoreRules { rules: IGNORE_RULES - 1, ..outer };
        let both = outer.with_folder(dir.path(), File::open(dir.path()).unwrap(), &mut skipped);
        assert_eq!((both.rules, skipped.rules), (IGNORE_RULES, 1));
    }

    #[test]
    fn the_folders_above_end_at_the_root() {
        let above = folders_above(Path::new("/a/b"), Path::new("/a/b/c/d"));
        assert_eq!(above, [Path::new("/a/b"), Path::new("/a/b/c")]);
        assert!(folders_above(Path::new("/a"), Path::new("/a")).is_empty());
    }
}
