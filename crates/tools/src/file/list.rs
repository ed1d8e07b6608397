//! `list_dir`: what is in a folder, level by level.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use parlor_vocab::{Failure, FailureCode};
use rustix::fs::{AtFlags, FileType, OFlags, fstat, readlinkat, statat};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::code::{failure, in_words};
use crate::file::folder::{Item, LIST_FOLDER_ENTRIES, items};
use crate::input::{decode, within};
use crate::tool::{Tool, ToolContext, ToolResultOutput};
use parlor_files::open_below;

/// How many levels are listed if the input does not say.
pub const LIST_DEPTH: usize = 1;
/// The most levels of one call.
pub const LIST_DEPTH_MAX: usize = 10;
/// How many entries are listed if the input does not say.
pub const LIST_ENTRIES: usize = 500;
/// The most entries of one call.
pub const LIST_ENTRIES_MAX: usize = 5000;

/// How many folders a note names.
const NAMED_FOLDERS: usize = 10;

/// Lists folders.
#[derive(Clone, Copy, Debug, Default)]
pub struct ListDir;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ListInput {
    path: Option<String>,
    depth: Option<u64>,
    limit: Option<u64>,
}

#[async_trait]
impl Tool for ListDir {
    fn name(&self) -> &'static str {
        "list_dir"
    }

    fn description(&self) -> &'static str {
        "Lists a folder, sorted by name: folders end in /, files have their size in bytes, symbolic links \
         show where they lead and are not followed."
    }

    fn schema(&self) -> Value {
        json!({
            "type": "object",
            "properties": {
                "path": {"type": "string", "default": ".", "description": "The folder; the working folder if absent."},
                "depth": {
                    "type": "integer", "minimum": 1, "maximum": LIST_DEPTH_MAX, "default": LIST_DEPTH,
                    "description": "How many levels to list."
                },
                "limit": {
                    "type": "integer", "minimum": 1, "maximum": LIST_ENTRIES_MAX, "default": LIST_ENTRIES,
                    "description": "How many entries to list."
                },
            },
            "required": [],
            "additionalProperties": false,
        })
    }

    fn is_parallel(&self) -> bool {
        true
    }

    async fn call(&self, input: &str, context: &ToolContext) -> Result<ToolResultOutput, Failure> {
        let input: ListInput = decode(self, input)?;
        let depth = within("depth", input.depth, LIST_DEPTH, LIST_DEPTH_MAX)?;
        let limit = within("limit", input.limit, LIST_ENTRIES, LIST_ENTRIES_MAX)?;
        let path = input.path.unwrap_or_else(|| ".".to_owned());
        context.look(move |context| list(context, &path, depth, limit)).await
    }
}

fn list(context: &ToolContext, path: &str, depth: usize, limit: usize) -> Result<ToolResultOutput, Failure> {
    let top =
        context.policy.open(&context.folder, path, OFlags::RDONLY | OFlags::DIRECTORY).map_err(|error| {
            // The system calls a file on the way and a file at the end by the same name.
            if error.message.ends_with("a part of it is not a folder") {
                return failure(FailureCode::Unsupported, format!("`{path}` is not a folder"));
            }
            error
        })?;
    let mut listing = Listing { limit, ..Listing::default() };
    // Level by level, so that what is near is listed before what is deep.
    // They wait as paths, since descriptors are few, and are opened from the top, without links.
    let mut folders = VecDeque::from([Level { path: PathBuf::new(), depth }]);
    while let Some(level) = folders.pop_front() {
        context.check()?;
        listing.add_folder(context, &top.fd, &level, &mut folders);
    }
    Ok(ToolResultOutput::text(listing.show(&top.path)))
}

/// A folder that is yet to be listed.
struct Level {
    /// SessionUpdate from the top.
    path: PathBuf,
    /// How many levels to list, this one included.
    depth: usize,
}

#[derive(Default)]
struct Listing {
    limit: usize,
    /// A path from the top, and how it is shown.
    entries: Vec<(PathBuf, String)>,
    /// Folders that are not listed, or only in part.
    cut: Vec<PathBuf>,
    notes: Vec<String>,
}

impl Listing {
    fn add_folder(
        &mut self,
        context: &ToolContext,
        top: &OwnedFd,
        level: &Level,
        later: &mut VecDeque<Level>,
    ) {
        if self.entries.len() >= self.limit {
            self.cut.push(level.path.clone());
            return;
        }
        let way = if level.path.as_os_str().is_empty() { Path::new(".") } else { &level.path };
        let opened = open_below(top, way, OFlags::RDONLY | OFlags::DIRECTORY);
        let (folder, found) = match opened.and_then(|folder| items(&folder).map(|found| (folder, found))) {
            Ok(found) => found,
            Err(errno) => {
                self.notes.push(format!("`{}` cannot be listed: {}", way.display(), in_words(errno)));
                return;
            }
        };
        if fstat(&folder).is_ok_and(|stat| context.policy.is_private(&stat)) {
            self.notes.push(format!("`{}` is parlor's own state folder and is not listed", way.display()));
            return;
        }
        if found.more {
            let way = way.display();
            self.notes.push(format!("only {LIST_FOLDER_ENTRIES} entries of `{way}` were looked at"));
        }
        for item in &found.items {
            if self.entries.len() >= self.limit {
                self.cut.push(level.path.clone());
                break;
            }
            let path = level.path.join(&item.name);
            self.entries.push((path.clone(), describe(&folder, &path, item)));
            if item.kind == FileType::Directory && level.depth > 1 {
                later.push_back(Level { path, depth: level.depth - 1 });
            }
        }
    }

    fn show(mut self, top: &Path) -> String {
        self.entries.sort_by(|one, other| one.0.cmp(&other.0));
        let count = self.entries.len();
        let entries = if count == 1 { "entry" } else { "entries" };
        let mut text = format!("{} ({count} {entries})\n", top.display());
        for (_, line) in &self.entries {
            text.push_str(line);
            text.push('\n');
        }
        if !self.cut.is_empty() {
            let named: Vec<String> =
                self.cut.iter().take(NAMED_FOLDERS).map(|path| format!("`{}`", here(path))).collect();
            let more = match self.cut.len().saturating_sub(NAMED_FOLDERS) {
                0 => String::new(),
                more => format!(" and {more} more folders"),
            };
            let limit = self.limit;
            let folders = named.join(", ");
            text.push_str(&format!("[cut at the limit of {limit} entries: not all of {folders}{more}]\n"));
        }
        for note in &self.notes {
            text.push_str(&format!("[{note}]\n"));
        }
        text
    }
}

fn here(path: &Path) -> std::path::Display<'_> {
    if path.as_os_str().is_empty() { Path::new(".").display() } else { path.display() }
}

/// One line of the listing. A name can hold anything but a slash, so control characters are shown
/// as escapes.
fn describe(folder: impl AsFd, path: &Path, item: &Item) -> String {
    let name: String = path
        .to_string_lossy()
        .chars()
        .map(
            |letter| {
                if letter.is_control() { letter.escape_default().to_string() } else { letter.to_string() }
            },
        )
        .collect();
    let own = Path::new(&item.name);
    match item.kind {
        FileType::Directory => format!("{name}/"),
        FileType::RegularFile => match statat(folder, own, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => format!("{name}  {}", stat.st_size),
            Err(_) => name,
        },
        FileType::Symlink => match readlinkat(folder, own, Vec::new()) {
            Ok(target) => {
                let target = std::ffi::OsString::from_vec(target.into_bytes());
                format!("{name} -> {}", target.to_string_lossy().escape_debug())
            }
            Err(_) => format!("{name} -> ?"),
        },
        FileType::Fifo => format!("{name}  (FIFO)"),
        FileType::Socket => format!("{name}  (socket)"),
        FileType::CharacterDevice | FileType::BlockDevice => format!("{name}  (device)"),
        FileType::Unknown => format!("{name}  (unknown)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_says_what_the_input_takes() {
        crate::input::assert_schema_fits::<ListInput>(&ListDir);
    }
}
