//! Searches a folder tree through descriptors, without following links, and skips files that are too large.

use std::borrow::Cow;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use ignore::overrides::Override;
use parlor_vocab::Failure;
use rustix::fs::{FileType, Mode, OFlags, fstat, openat};

use crate::file::file_kind::KIND_BYTES;
use crate::file::folder::{LIST_FOLDER_ENTRIES, open_subfolder, read_entries};
use crate::file::ignores::{
    IGNORE_FILE_BYTES, IGNORE_LINE_BYTES, IGNORE_RULE_BYTES, IGNORE_RULES, IgnoreRules, SkippedRules,
    folders_above,
};
use crate::file::line_search::{GREP_FILE_BYTES, LineSearch};
use crate::tool::ToolContext;
use parlor_files::OpenedFile;

/// The most files that one call searches.
pub const GREP_FILES: usize = 100_000;
/// A call ends once its output has this many bytes.
pub const GREP_OUTPUT_BYTES: usize = 256 * 1024;
/// How many levels of folders are searched. Each level keeps a descriptor open.
pub const GREP_DEPTH: usize = 64;

/// What a call searches for, and in which files.
pub(super) struct SearchOptions {
    pub(super) lines: LineSearch,
    /// Selects files by name.
    pub(super) glob: Override,
    /// Whether to skip what `.gitignore` and `.ignore` files name.
    pub(super) use_ignores: bool,
    /// The search ends after this many matching lines.
    pub(super) limit: usize,
}

/// The state of one search.
pub(super) struct FileSearch<'a> {
    context: &'a ToolContext,
    options: SearchOptions,
    text: String,
    matches: usize,
    matching_files: usize,
    files: usize,
    too_large: usize,
    unreadable: usize,
    too_deep: usize,
    /// Files and folders of parlor's state folder, which are skipped.
    private: usize,
    /// Folders with more than [`LIST_FOLDER_ENTRIES`] entries.
    crowded: usize,
    skipped_rules: SkippedRules,
    /// Which limit ended the search early.
    limit_reached: Option<String>,
}

impl<'a> FileSearch<'a> {
    pub(super) fn new(context: &'a ToolContext, options: SearchOptions) -> Self {
        Self {
            context,
            options,
            text: String::new(),
            matches: 0,
            matching_files: 0,
            files: 0,
            too_large: 0,
            unreadable: 0,
            too_deep: 0,
            private: 0,
            crowded: 0,
            skipped_rules: SkippedRules::default(),
            limit_reached: None,
        }
    }

    /// The ignore rules of the folders from the allowed root down to the parent of `top`. None if the search does not
    /// use ignore rules.
    pub(super) fn ignores_above(&mut self, top: &OpenedFile) -> IgnoreRules {
        let mut ignores = IgnoreRules::default();
        if !self.options.use_ignores {
            return ignores;
        }
        for folder in folders_above(&top.root, &top.path) {
            let text = folder.to_string_lossy();
            if let Ok(opened) = self.context.policy.open(&folder, &text, OFlags::PATH | OFlags::DIRECTORY) {
                ignores = ignores.with_folder(&folder, &opened.fd, &mut self.skipped_rules);
            }
        }
        ignores
    }

    /// Searches a folder and the folders below it. `shown` is its path in the output. Fails only if the call is
    /// cancelled.
    pub(super) fn search_folder(
        &mut self,
        fd: OwnedFd,
        path: &Path,
        shown: &Path,
        above: &IgnoreRules,
        depth: usize,
    ) -> Result<(), Failure> {
        if depth == GREP_DEPTH {
            self.too_deep += 1;
            return Ok(());
        }
        let Ok(found) = read_entries(&fd) else {
            self.unreadable += 1;
            return Ok(());
        };
        self.crowded += usize::from(found.more);
        let ignores = match self.options.use_ignores {
            true => above.with_folder(path, &fd, &mut self.skipped_rules),
            false => IgnoreRules::default(),
        };
        for entry in found.entries {
            self.context.check_cancelled()?;
            if self.limit_reached.is_some() {
                return Ok(());
            }
            let (name, full_path) = (Path::new(&entry.name), path.join(&entry.name));
            let is_folder = entry.kind == FileType::Directory;
            if (is_folder && name == Path::new(".git"))
                || ignores.is_ignored(&full_path, is_folder)
                || self.options.glob.matched(&full_path, is_folder).is_ignore()
            {
                continue;
            }
            let shown = shown.join(name);
            if is_folder {
                match open_subfolder(&fd, name) {
                    Ok(inner) if self.is_private(&inner) => self.private += 1,
                    Ok(inner) => self.search_folder(inner, &full_path, &shown, &ignores, depth + 1)?,
                    Err(_) => self.unreadable += 1,
                }
            } else if entry.kind == FileType::RegularFile {
                match open_regular(&fd, name) {
                    Some(file) if self.is_private(&file) => self.private += 1,
                    Some(file) => self.search_file(&shown.to_string_lossy(), file)?,
                    None => self.unreadable += 1,
                }
            }
        }
        Ok(())
    }

    fn is_private(&self, fd: impl AsFd) -> bool {
        fstat(fd).is_ok_and(|stat| self.context.policy.is_private(&stat))
    }

    /// Searches one file. `shown` is its path in the output. Fails only if the call is cancelled.
    pub(super) fn search_file(&mut self, shown: &str, file: File) -> Result<(), Failure> {
        if self.files == GREP_FILES {
            self.limit_reached = Some(format!("{GREP_FILES} files are the limit"));
            return Ok(());
        }
        self.files += 1;
        let mut bytes = Vec::new();
        let mut file = file.take(KIND_BYTES as u64);
        let mut read = file.read_to_end(&mut bytes);
        if bytes.contains(&0) {
            return Ok(()); // A binary file is not searched.
        }
        file.set_limit((GREP_FILE_BYTES + 1).saturating_sub(bytes.len()) as u64);
        read = read.and_then(|_| file.read_to_end(&mut bytes));
        if read.is_err() {
            self.unreadable += 1;
        } else if bytes.len() > GREP_FILE_BYTES {
            self.too_large += 1;
        } else {
            let room = GREP_OUTPUT_BYTES.saturating_sub(self.text.len());
            // Known secrets are removed before the search: whether a pattern matches must not tell what they are.
            let redacted = match self.options.lines.redact.redact(&String::from_utf8_lossy(&bytes)) {
                Cow::Owned(redacted) => Some(redacted.into_bytes()),
                Cow::Borrowed(_) => None,
            };
            let bytes = redacted.unwrap_or(bytes);
            let (context, limit) = (self.context, self.options.limit - self.matches);
            let hits =
                self.options.lines.run(shown, &bytes, limit, room, &mut || context.check_cancelled())?;
            self.matches += hits.matches;
            self.matching_files += usize::from(hits.matches > 0);
            if hits.matches > 0 && self.options.lines.context > 0 && !self.text.is_empty() {
                self.text.push_str("--\n");
            }
            self.text.push_str(&hits.text);
            if hits.more {
                let limit = self.options.limit;
                self.limit_reached = Some(if self.matches == limit {
                    format!("{limit} matches are the limit of this call")
                } else {
                    format!("{GREP_OUTPUT_BYTES} bytes are the limit")
                });
            }
        }
        Ok(())
    }

    /// The matches, followed by notes on limits and on what was left out.
    pub(super) fn into_text(self) -> String {
        let mut text = self.text;
        let plural = |count, one, many| format!("{count} {}", if count == 1 { one } else { many });
        text.push_str(&format!(
            "[{} in {}, of {} searched]\n",
            plural(self.matches, "matching line", "matching lines"),
            plural(self.matching_files, "file", "files"),
            self.files
        ));
        if let Some(limit) = self.limit_reached {
            text.push_str(&format!("[there is more: {limit}; narrow the pattern, the path or the glob]\n"));
        }
        for (count, why) in [
            (self.too_large, format!("larger than {GREP_FILE_BYTES} bytes")),
            (self.unreadable, "not readable".to_owned()),
            (self.too_deep, format!("deeper than {GREP_DEPTH} levels")),
            (self.private, "in parlor's own state folder or among the user's secrets".to_owned()),
            (self.crowded, format!("the rest of a folder with more than {LIST_FOLDER_ENTRIES} entries")),
        ] {
            if count > 0 {
                text.push_str(&format!("[left out: {count}, {why}]\n"));
            }
        }
        let SkippedRules { files, rules } = self.skipped_rules;
        if files > 0 {
            text.push_str(&format!(
                "[not obeyed: {}, larger than {IGNORE_FILE_BYTES} bytes]\n",
                plural(files, "ignore file", "ignore files")
            ));
        }
        if rules > 0 {
            text.push_str(&format!(
                "[not obeyed: {}, beyond {IGNORE_LINE_BYTES} bytes each, or {IGNORE_RULES} rules or \
                 {IGNORE_RULE_BYTES} bytes together]\n",
                plural(rules, "ignore rule", "ignore rules")
            ));
        }
        text
    }
}

/// Opens a file of a folder. `None` if it is not a regular file any more.
fn open_regular(folder: impl AsFd, name: &Path) -> Option<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let fd = openat(folder, name, flags, Mode::empty()).ok()?;
    let stat = fstat(&fd).ok()?;
    (FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile).then(|| File::from(fd))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_files_is_limited() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a"), "text\n").unwrap();
        let context = ToolContext::new(folder.path()).unwrap();
        let file = || File::open(folder.path().join("a")).unwrap();
        let lines = LineSearch {
            pattern: regex::bytes::Regex::new("text").unwrap(),
            context: 0,
            redact: std::sync::Arc::clone(&context.redact),
        };
        let options = SearchOptions { lines, glob: Override::empty(), use_ignores: true, limit: 9 };
        let mut search = FileSearch { files: GREP_FILES - 1, ..FileSearch::new(&context, options) };
        search.search_file("a", file()).unwrap();
        assert_eq!((search.matches, search.limit_reached.is_some()), (1, false));
        search.search_file("a", file()).unwrap();
        assert_eq!((search.matches, search.limit_reached.is_some()), (1, true));
        assert!(search.into_text().contains("[there is more: 100000 files are the limit"));
    }
}
