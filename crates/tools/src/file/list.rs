//! The `list_dir` tool: lists the entries of a folder, level by level.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use parlor_vocab::{Failure, FailureCode, ToolAnnotations, ToolOutput};
use rustix::fs::{AtFlags, FileType, OFlags, fstat, readlinkat, statat};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::access::{ToolAccess, ToolEffect};
use crate::failure::{errno_text, failure};
use crate::file::folder::{FolderEntry, LIST_FOLDER_ENTRIES, read_entries};
use crate::input::{decode, within};
use crate::tool::{Tool, ToolContext};
use parlor_files::open_below;

/// How many levels are listed if the input has no `depth`.
pub const LIST_DEPTH: usize = 1;
/// The largest `depth`.
pub const LIST_DEPTH_MAX: usize = 10;
/// How many entries are listed if the input has no `limit`.
pub const LIST_ENTRIES: usize = 500;
/// The largest `limit` of entries.
pub const LIST_ENTRIES_MAX: usize = 5000;

/// How many incomplete folders a note names.
const NAMED_FOLDERS: usize = 10;

/// Lists folders.
#[derive(Clone, Copy, Debug, Default)]
pub struct ListDirTool;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ListInput {
    path: Option<String>,
    depth: Option<u64>,
    limit: Option<u64>,
}

#[async_trait]
impl Tool for ListDirTool {
    fn name(&self) -> &str {
        "list_dir"
    }

    fn title(&self) -> Option<&str> {
        Some("List a folder")
    }

    fn annotations(&self) -> ToolAnnotations {
        ToolAnnotations::READ_ONLY
    }

    fn description(&self) -> &str {
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

    fn access(&self, input: &str) -> ToolAccess {
        let path = decode::<ListInput>(self, input).ok().and_then(|input| input.path);
        ToolAccess::new(ToolEffect::Reads, input).at(path.unwrap_or_else(|| ".".to_owned()))
    }

    async fn call(&self, input: &str, context: &ToolContext) -> Result<ToolOutput, Failure> {
        let input: ListInput = decode(self, input)?;
        let depth = within("depth", input.depth, LIST_DEPTH, LIST_DEPTH_MAX)?;
        let limit = within("limit", input.limit, LIST_ENTRIES, LIST_ENTRIES_MAX)?;
        let path = input.path.unwrap_or_else(|| ".".to_owned());
        context.read_blocking(move |context| list(context, &path, depth, limit)).await
    }
}

fn list(context: &ToolContext, path: &str, depth: usize, limit: usize) -> Result<ToolOutput, Failure> {
    let top =
        context.policy.open(&context.folder, path, OFlags::RDONLY | OFlags::DIRECTORY).map_err(|error| {
            // The system has one error for a file in the middle of the path and at its end.
            if error.message.ends_with("a part of it is not a folder") {
                return failure(FailureCode::Unsupported, format!("`{path}` is not a folder"));
            }
            error
        })?;
    context.check_opened(&top.path)?;
    let mut listing = Listing { limit, ..Listing::default() };
    // Breadth first, so that the limit cuts off the deepest entries. The queue holds paths instead of descriptors,
    // which are scarce. Each path is opened relative to the top folder, without following links.
    let mut queue = VecDeque::from([QueuedFolder { path: PathBuf::new(), depth }]);
    while let Some(folder) = queue.pop_front() {
        context.check_cancelled()?;
        // No link is followed below the top folder, so this is the folder that is opened.
        if context.check_opened(&top.path.join(&folder.path)).is_err() {
            let path = dot_if_empty(&folder.path);
            listing.notes.push(format!("`{path}` is not listed, because a rule of the policy denies it"));
            continue;
        }
        listing.add_folder(context, &top.fd, &folder, &mut queue);
    }
    Ok(ToolOutput::text(listing.into_text(&top.path)))
}

/// A folder that is not listed yet.
struct QueuedFolder {
    /// Relative to the top folder.
    path: PathBuf,
    /// How many levels to list, including this folder.
    depth: usize,
}

#[derive(Default)]
struct Listing {
    limit: usize,
    /// Each path, relative to the top folder, and its line of the listing.
    entries: Vec<(PathBuf, String)>,
    /// Folders that the limit left out, entirely or in part.
    incomplete: Vec<PathBuf>,
    notes: Vec<String>,
}

impl Listing {
    fn add_folder(
        &mut self,
        context: &ToolContext,
        top: &OwnedFd,
        queued: &QueuedFolder,
        queue: &mut VecDeque<QueuedFolder>,
    ) {
        if self.entries.len() >= self.limit {
            self.incomplete.push(queued.path.clone());
            return;
        }
        let path = if queued.path.as_os_str().is_empty() { Path::new(".") } else { &queued.path };
        let opened = open_below(top, path, OFlags::RDONLY | OFlags::DIRECTORY);
        let (folder, found) =
            match opened.and_then(|folder| read_entries(&folder).map(|found| (folder, found))) {
                Ok(found) => found,
                Err(errno) => {
                    self.notes.push(format!("`{}` cannot be listed: {}", path.display(), errno_text(errno)));
                    return;
                }
            };
        if fstat(&folder).is_ok_and(|stat| context.policy.is_private(&stat)) {
            let is_secret = fstat(&folder).is_ok_and(|stat| context.policy.is_secret(&stat));
            let what = if is_secret { "has secrets of the user" } else { "is parlor's own state folder" };
            self.notes.push(format!("`{}` {what} and is not listed", path.display()));
            return;
        }
        if found.more {
            let path = path.display();
            self.notes.push(format!("only {LIST_FOLDER_ENTRIES} entries of `{path}` were looked at"));
        }
        for entry in &found.entries {
            if self.entries.len() >= self.limit {
                self.incomplete.push(queued.path.clone());
                break;
            }
            let path = queued.path.join(&entry.name);
            self.entries.push((path.clone(), describe(&folder, &path, entry)));
            if entry.kind == FileType::Directory && queued.depth > 1 {
                queue.push_back(QueuedFolder { path, depth: queued.depth - 1 });
            }
        }
    }

    fn into_text(mut self, top: &Path) -> String {
        self.entries.sort_by(|one, other| one.0.cmp(&other.0));
        let count = self.entries.len();
        let entries = if count == 1 { "entry" } else { "entries" };
        let mut text = format!("{} ({count} {entries})\n", top.display());
        for (_, line) in &self.entries {
            text.push_str(line);
            text.push('\n');
        }
        if !self.incomplete.is_empty() {
            let named: Vec<String> = self
                .incomplete
                .iter()
                .take(NAMED_FOLDERS)
                .map(|path| format!("`{}`", dot_if_empty(path)))
                .collect();
            let more = match self.incomplete.len().saturating_sub(NAMED_FOLDERS) {
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

fn dot_if_empty(path: &Path) -> std::path::Display<'_> {
    if path.as_os_str().is_empty() { Path::new(".").display() } else { path.display() }
}

/// One line of the listing. Control characters of a name are escaped.
fn describe(folder: impl AsFd, path: &Path, entry: &FolderEntry) -> String {
    let name: String = path
        .to_string_lossy()
        .chars()
        .map(
            |letter| {
                if letter.is_control() { letter.escape_default().to_string() } else { letter.to_string() }
            },
        )
        .collect();
    let own_name = Path::new(&entry.name);
    match entry.kind {
        FileType::Directory => format!("{name}/"),
        FileType::RegularFile => match statat(folder, own_name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => format!("{name}  {}", stat.st_size),
            Err(_) => name,
        },
        FileType::Symlink => match readlinkat(folder, own_name, Vec::new()) {
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
    fn the_schema_matches_the_input_struct() {
        crate::input::assert_schema_fits::<ListInput>(&ListDirTool);
    }
}
