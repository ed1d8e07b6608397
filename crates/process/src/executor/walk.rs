//! Lists trees of folders, breadth first, with the names of each folder sorted.

use std::collections::{HashSet, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};

use parlor_vocab::{ExecutorRefusal, WalkOptions, WalkedTree};

use super::files::refusal;

/// The largest `maxDepth` of a walk.
pub const MAX_WALK_DEPTH: u64 = 64;

/// The largest `maxDirectories` of a walk.
pub const MAX_WALK_FOLDERS: u64 = 10_000;

/// The largest `maxEntries` of a walk.
pub const MAX_WALK_ENTRIES: u64 = 50_000;

/// The size of the result of a walk, estimated: the path and 64 bytes for each item.
pub const WALK_BYTES: usize = 4 << 20;

/// What an item of the result costs beside its path.
const ITEM_BYTES: usize = 64;

pub(super) fn walk(top: &Path, options: WalkOptions) -> Result<WalkedTree, ExecutorRefusal> {
    check(options)?;
    let mut tree = WalkedTree::default();
    let metadata = fs::symlink_metadata(top).map_err(refusal)?;
    let is_folder = if metadata.is_symlink() && options.follow_folder_links {
        fs::metadata(top).map_err(refusal)?.is_dir()
    } else {
        metadata.is_dir()
    };
    if !is_folder {
        return Ok(tree);
    }

    let mut seen: HashSet<PathBuf> = fs::canonicalize(top).into_iter().collect();
    let mut waiting = VecDeque::from([(top.to_path_buf(), 0)]);
    let (mut folders, mut entries, mut bytes) = (1, 0, 0);
    while let Some((folder, depth)) = waiting.pop_front() {
        let listing = fs::read_dir(&folder).and_then(|listing| {
            // One more than may be looked at, to learn whether there are more.
            let room = usize::try_from(options.max_entries - entries + 1).unwrap_or(usize::MAX);
            listing.take(room).map(|entry| entry.map(|entry| entry.path())).collect::<Result<Vec<_>, _>>()
        });
        let mut paths = match listing {
            Ok(paths) => paths,
            Err(error) => {
                bytes += folder.as_os_str().len() + ITEM_BYTES;
                tree.errors.push((folder, error.to_string()));
                continue;
            }
        };
        paths.sort();
        for path in paths {
            entries += 1;
            bytes += path.as_os_str().len() + ITEM_BYTES;
            if entries > options.max_entries || bytes > WALK_BYTES {
                tree.is_truncated = true;
                return Ok(tree);
            }
            let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
            let is_folder =
                metadata.is_dir() || (metadata.is_symlink() && options.follow_folder_links && path.is_dir());
            if !is_folder {
                if metadata.is_file() {
                    tree.entries.push((path, false));
                }
                continue;
            }
            // A folder that two links lead to is listed twice and entered once, so cycles end.
            let is_hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
            let enters = !(options.prune_hidden && is_hidden);
            tree.entries.push((path.clone(), true));
            if !enters || !fs::canonicalize(&path).is_ok_and(|real| seen.insert(real)) {
                continue;
            }
            if depth >= options.max_depth || folders >= options.max_folders {
                tree.is_truncated |= folders >= options.max_folders;
                continue;
            }
            folders += 1;
            waiting.push_back((path, depth + 1));
        }
    }
    Ok(tree)
}

fn check(options: WalkOptions) -> Result<(), ExecutorRefusal> {
    for (name, value, least, most) in [
        ("maxDepth", options.max_depth, 0, MAX_WALK_DEPTH),
        ("maxDirectories", options.max_folders, 1, MAX_WALK_FOLDERS),
        ("maxEntries", options.max_entries, 1, MAX_WALK_ENTRIES),
    ] {
        if !(least..=most).contains(&value) {
            return Err(ExecutorRefusal::FileRefused(format!("{name} must be from {least} to {most}")));
        }
    }
    Ok(())
}
