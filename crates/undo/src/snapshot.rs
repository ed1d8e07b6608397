//! A snapshot of a working folder, its comparison with a later one, and its stored form.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::changes::Change;
use crate::content::ContentId;
use crate::error::UndoError;
use crate::state::{FileIdentity, FileState, KeptContent, path_text};

/// What is in a working folder.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Snapshot {
    /// By the path below the working folder.
    pub(crate) entries: BTreeMap<Vec<u8>, Entry>,
    /// When the walk began, by the clock of files.
    pub(crate) taken_at: (i64, u64),
    /// Whether a limit cut the walk off.
    pub(crate) is_partial: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Entry {
    #[serde(rename = "s")]
    pub(crate) state: FileState,
    #[serde(rename = "i")]
    pub(crate) identity: FileIdentity,
}

/// The names of files that have several, by device and inode.
type HardLinks<'a> = HashMap<(u64, u64), Vec<&'a [u8]>>;

#[derive(Serialize, Deserialize)]
struct StoredHead {
    taken_at: (i64, u64),
    is_partial: bool,
}

#[derive(Serialize, Deserialize)]
struct StoredEntry {
    #[serde(rename = "p", with = "path_text")]
    path: Vec<u8>,
    #[serde(flatten)]
    entry: Entry,
}

impl Snapshot {
    /// The kept content of a file, if the file is surely the same: it also must have been at rest for some time when the
    /// snapshot was taken.
    pub(crate) fn content_of(&self, path: &[u8], identity: &FileIdentity, rest: u64) -> Option<&ContentId> {
        let entry = self.entries.get(path).filter(|entry| entry.identity == *identity)?;
        let nanoseconds =
            |(seconds, rest): (i64, u64)| i128::from(seconds) * 1_000_000_000 + i128::from(rest);
        let rested = nanoseconds(self.taken_at) - nanoseconds(identity.changed);
        match &entry.state {
            FileState::File { content: KeptContent::Kept(id), .. } if rested > i128::from(rest) => Some(id),
            FileState::Missing
            | FileState::File { .. }
            | FileState::Folder { .. }
            | FileState::Link { .. }
            | FileState::Special => None,
        }
    }

    /// What differs in `later`.
    pub(crate) fn changes_until(&self, later: &Self) -> Vec<Change> {
        let mut links = None;
        let mut changes = Vec::new();
        for (path, entry) in &self.entries {
            match later.entries.get(path) {
                Some(now) if entry.state.is_same(&now.state) => {}
                Some(now) => changes.push(self.change(path, Some(entry), Some(now), &mut links)),
                None if later.is_below_skipped(path) => {}
                None => changes.push(self.change(path, Some(entry), None, &mut links)),
            }
        }
        for (path, now) in &later.entries {
            if !self.entries.contains_key(path) && !self.is_below_skipped(path) {
                changes.push(self.change(path, None, Some(now), &mut links));
            }
        }
        changes
    }

    fn change<'a>(
        &'a self,
        path: &[u8],
        before: Option<&Entry>,
        after: Option<&Entry>,
        links: &mut Option<HardLinks<'a>>,
    ) -> Change {
        let state = |entry: Option<&Entry>| entry.map_or(FileState::Missing, |entry| entry.state.clone());
        let linked = before.filter(|before| is_linked_file(before)).and_then(|before| {
            let links = links.get_or_insert_with(|| self.hard_links());
            let names = links.get(&(before.identity.dev, before.identity.ino))?;
            names.iter().find(|name| **name != path).map(|name| name.to_vec())
        });
        let (before, after) = (state(before), state(after));
        Change { path: path.to_vec(), before, after, linked, is_late: false }
    }

    fn hard_links(&self) -> HardLinks<'_> {
        let mut links = HardLinks::new();
        for (path, entry) in self.entries.iter().filter(|(_, entry)| is_linked_file(entry)) {
            links.entry((entry.identity.dev, entry.identity.ino)).or_default().push(path);
        }
        links
    }

    /// Whether a folder above `path` was not looked into.
    fn is_below_skipped(&self, path: &[u8]) -> bool {
        parents(path).any(|parent| {
            let state = self.entries.get(parent).map(|entry| &entry.state);
            matches!(state, Some(FileState::Folder { skipped: Some(_), .. }))
        })
    }

    /// When the file at `path` changed last; for a missing file, when the folder changed that had it.
    pub(crate) fn changed_at(&self, path: &[u8]) -> Option<(i64, u64)> {
        let names = std::iter::once(path).chain(parents(path));
        names.filter_map(|name| self.entries.get(name)).map(|entry| entry.identity.changed).next()
    }

    /// The contents that the snapshot refers to.
    pub(crate) fn contents(&self) -> impl Iterator<Item = &ContentId> {
        self.entries.values().filter_map(|entry| entry.state.content())
    }

    /// Writes the snapshot after a line with `header`, under a temporary name first.
    pub(crate) fn write(&self, path: &Path, header: &impl Serialize) -> Result<(), UndoError> {
        let temporary = path.with_extension(format!("{}.tmp", std::process::id()));
        let options =
            || fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary);
        let write = || -> std::io::Result<()> {
            let mut out = BufWriter::with_capacity(256 << 10, options()?);
            let head = StoredHead { taken_at: self.taken_at, is_partial: self.is_partial };
            serde_json::to_writer(&mut out, header)?;
            out.write_all(b"\n")?;
            serde_json::to_writer(&mut out, &head)?;
            out.write_all(b"\n")?;
            for (path, entry) in &self.entries {
                serde_json::to_writer(&mut out, &StoredEntry { path: path.clone(), entry: entry.clone() })?;
                out.write_all(b"\n")?;
            }
            out.flush()?;
            fs::rename(&temporary, path)
        };
        let written = write();
        if written.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        written.map_err(UndoError::io("write", path))
    }

    /// Reads what [`Self::write`] wrote; also returns the header. `None` if there is no such file.
    pub(crate) fn read<H: for<'de> Deserialize<'de>>(path: &Path) -> Result<Option<(H, Self)>, UndoError> {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(UndoError::io("read", path)(error)),
        };
        let damaged = || UndoError::Damaged { path: path.to_owned() };
        let mut lines = BufReader::with_capacity(256 << 10, file).split(b'\n');
        let mut line = || lines.next().transpose().map_err(UndoError::io("read", path));
        let header = serde_json::from_slice(&line()?.ok_or_else(damaged)?).map_err(|_| damaged())?;
        let head: StoredHead =
            serde_json::from_slice(&line()?.ok_or_else(damaged)?).map_err(|_| damaged())?;
        let mut entries = BTreeMap::new();
        while let Some(line) = line()? {
            let stored: StoredEntry = serde_json::from_slice(&line).map_err(|_| damaged())?;
            entries.insert(stored.path, stored.entry);
        }
        Ok(Some((header, Self { entries, taken_at: head.taken_at, is_partial: head.is_partial })))
    }
}

impl FileState {
    /// The content, if it is kept.
    pub(crate) fn content(&self) -> Option<&ContentId> {
        match self {
            Self::File { content: KeptContent::Kept(id), .. } => Some(id),
            Self::Missing | Self::File { .. } | Self::Folder { .. } | Self::Link { .. } | Self::Special => {
                None
            }
        }
    }
}

fn is_linked_file(entry: &Entry) -> bool {
    entry.identity.links > 1 && matches!(entry.state, FileState::File { .. })
}

/// The folders above `path`, the nearest first.
pub(crate) fn parents(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = path;
    std::iter::from_fn(move || {
        rest = &rest[..rest.iter().rposition(|byte| *byte == b'/')?];
        Some(rest)
    })
}
