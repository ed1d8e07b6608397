//! A search under way: from folder to folder through descriptors, following no link.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use ignore::overrides::Override;
use parlor_vocab::Failure;
use rustix::fs::{FileType, Mode, OFlags, fstat, openat};

use crate::file::folder::{LIST_FOLDER_ENTRIES, enter, items};
use crate::file::ignores::{Ignores, folders_above};
use crate::file::kind::LOOK_BYTES;
use crate::file::search::{GREP_FILE_BYTES, Search};
use crate::tool::ToolContext;
use parlor_files::OpenedFile;

/// The most files that are searched by one call.
pub const GREP_FILES: usize = 100_000;
/// How much text one call shows before it ends.
pub const GREP_OUTPUT_BYTES: usize = 256 * 1024;
/// How deep folders are searched: each level holds a descriptor.
pub const GREP_DEPTH: usize = 64;

/// What to look for, and where.
pub(super) struct Wanted {
    pub(super) search: Search,
    /// Which files.
    pub(super) glob: Override,
    /// Whether `.gitignore` counts.
    pub(super) use_ignores: bool,
    /// How many matching lines are enough.
    pub(super) limit: usize,
}

/// A search under way.
pub(super) struct FileSearch<'a> {
    context: &'a ToolContext,
    wanted: Wanted,
    text: String,
    matches: usize,
    matching_files: usize,
    files: usize,
    too_large: usize,
    unreadable: usize,
    too_deep: usize,
    /// What belongs to parlor's state folder.
    private: usize,
    /// Folders with more entries than are looked at.
    crowded: usize,
    /// Why it ended early.
    ended: Option<String>,
}

impl<'a> FileSearch<'a> {
    pub(super) fn new(context: &'a ToolContext, wanted: Wanted) -> Self {
        Self {
            context,
            wanted,
            text: String::new(),
            matches: 0,
            matching_files: 0,
            files: 0,
            too_large: 0,
            unreadable: 0,
            too_deep: 0,
            private: 0,
            crowded: 0,
            ended: None,
        }
    }

    /// The rules of the folders from the allowed one down to the one above the search.
    pub(super) fn rules_above(&self, top: &OpenedFile) -> Ignores {
        let mut ignores = Ignores::default();
        for folder in folders_above(&top.root, &top.path) {
            let text = folder.to_string_lossy();
            if let Ok(opened) = self.context.policy.open(&folder, &text, OFlags::PATH | OFlags::DIRECTORY) {
                ignores = ignores.below(&folder, &opened.fd);
            }
        }
        ignores
    }

    pub(super) fn folder(
        &mut self,
        fd: OwnedFd,
        path: &Path,
        shown: &Path,
        above: &Ignores,
        depth: usize,
    ) -> Result<(), Failure> {
        if depth == GREP_DEPTH {
            self.too_deep += 1;
            return Ok(());
        }
        let Ok(found) = items(&fd) else {
            self.unreadable += 1;
            return Ok(());
        };
        self.crowded += usize::from(found.more);
        let ignores = above.below(path, &fd);
        for item in found.items {
            self.context.check()?;
            if self.ended.is_some() {
                return Ok(());
            }
            let (own, whole) = (Path::new(&item.name), path.join(&item.name));
            let is_folder = item.kind == FileType::Directory;
            if (is_folder && own == Path::new(".git"))
                || (self.wanted.use_ignores && ignores.leave_out(&whole, is_folder))
                || self.wanted.glob.matched(&whole, is_folder).is_ignore()
            {
                continue;
            }
            let shown = shown.join(own);
            if is_folder {
                match enter(&fd, own) {
                    Ok(inner) if self.is_private(&inner) => self.private += 1,
                    Ok(inner) => self.folder(inner, &whole, &shown, &ignores, depth + 1)?,
                    Err(_) => self.unreadable += 1,
                }
            } else if item.kind == FileType::RegularFile {
                match open_item(&fd, own) {
                    Some(file) if self.is_private(&file) => self.private += 1,
                    Some(file) => self.file(&shown.to_string_lossy(), file),
                    None => self.unreadable += 1,
                }
            }
        }
        Ok(())
    }

    fn is_private(&self, found: impl AsFd) -> bool {
        fstat(found).is_ok_and(|stat| self.context.policy.is_private(&stat))
    }

    pub(super) fn file(&mut self, shown: &str, file: File) {
        if self.files == GREP_FILES {
            self.ended = Some(format!("{GREP_FILES} files are the limit"));
            return;
        }
        self.files += 1;
        let mut bytes = Vec::new();
        let mut file = file.take(LOOK_BYTES as u64);
        let mut read = file.read_to_end(&mut bytes);
        if bytes.contains(&0) {
            return; // Binary: the rest is not worth reading.
        }
        file.set_limit((GREP_FILE_BYTES + 1).saturating_sub(bytes.len()) as u64);
        read = read.and_then(|_| file.read_to_end(&mut bytes));
        if read.is_err() {
            self.unreadable += 1;
        } else if bytes.len() > GREP_FILE_BYTES {
            self.too_large += 1;
        } else {
            let room = GREP_OUTPUT_BYTES.saturating_sub(self.text.len());
            let hits = self.wanted.search.run(shown, &bytes, self.wanted.limit - self.matches, room);
            self.matches += hits.matches;
            self.matching_files += usize::from(hits.matches > 0);
            if hits.matches > 0 && self.wanted.search.context > 0 && !self.text.is_empty() {
                self.text.push_str("--\n");
            }
            self.text.push_str(&hits.text);
            if hits.more {
                let limit = self.wanted.limit;
                self.ended = Some(if self.matches == limit {
                    format!("{limit} matches are the limit of this call")
                } else {
                    format!("{GREP_OUTPUT_BYTES} bytes are the limit")
                });
            }
        }
    }

    pub(super) fn show(self) -> String {
        let mut text = self.text;
        let plural = |count, one, many| format!("{count} {}", if count == 1 { one } else { many });
        text.push_str(&format!(
            "[{} in {}, of {} searched]\n",
            plural(self.matches, "matching line", "matching lines"),
            plural(self.matching_files, "file", "files"),
            self.files
        ));
        if let Some(why) = self.ended {
            text.push_str(&format!("[there is more: {why}; narrow the pattern, the path or the glob]\n"));
        }
        for (count, why) in [
            (self.too_large, format!("larger than {GREP_FILE_BYTES} bytes")),
            (self.unreadable, "not readable".to_owned()),
            (self.too_deep, format!("deeper than {GREP_DEPTH} levels")),
            (self.private, "in parlor's own state folder".to_owned()),
            (self.crowded, format!("the rest of a folder with more than {LIST_FOLDER_ENTRIES} entries")),
        ] {
            if count > 0 {
                text.push_str(&format!("[left out: {count}, {why}]\n"));
            }
        }
        text
    }
}

/// Opens a file of a folder, unless it is by now something else.
fn open_item(folder: impl AsFd, name: &Path) -> Option<File> {
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
        let search = Search {
            pattern: regex::bytes::Regex::new("text").unwrap(),
            context: 0,
            redact: std::sync::Arc::clone(&context.redact),
        };
        let wanted = Wanted { search, glob: Override::empty(), use_ignores: true, limit: 9 };
        let mut hunt = FileSearch { files: GREP_FILES - 1, ..FileSearch::new(&context, wanted) };
        hunt.file("a", file());
        assert_eq!((hunt.matches, hunt.ended.is_some()), (1, false));
        hunt.file("a", file());
        assert_eq!((hunt.matches, hunt.ended.is_some()), (1, true));
        assert!(hunt.show().contains("[there is more: 100000 files are the limit"));
    }
}
