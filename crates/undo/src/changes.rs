//! What a run changed, put together from the changes in its journal.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::journal::RunRecord;
use crate::state::{FileState, KeptContent, NotKept, path_text};

/// One change of one file, as the journal has it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Change {
    #[serde(with = "path_text")]
    pub(crate) path: Vec<u8>,
    pub(crate) before: FileState,
    pub(crate) after: FileState,
    /// Another name that the file had before: they were hard links.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "optional_path")]
    pub(crate) linked: Option<Vec<u8>>,
    /// The change was made after the process of the run had died, maybe by somebody else.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_late: bool,
}

/// What a run changed.
#[derive(Clone, Debug, PartialEq)]
pub struct RunChanges {
    /// Which run.
    pub record: RunRecord,
    /// The changed files, by their paths.
    pub files: Vec<FileChange>,
    /// What the record does not have, and why, each one sentence.
    pub notes: Vec<String>,
    /// Whether the run was undone since.
    pub is_undone: bool,
}

/// What a run did to one file.
#[derive(Clone, Debug, PartialEq)]
pub struct FileChange {
    /// The path below the working folder.
    pub path: PathBuf,
    /// The state before the run.
    pub before: FileState,
    /// The state that the run left.
    pub after: FileState,
    /// Another name that the file had before.
    pub(crate) linked: Option<PathBuf>,
    /// Why an undo leaves the file alone unless it is forced.
    pub(crate) doubt: Option<Doubt>,
}

/// Why it is not sure that only the run changed a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doubt {
    /// The states that the journal has do not follow from each other.
    ChangedMeanwhile,
    /// The change was made after the process of the run had died.
    Late,
}

/// Why a file cannot be put back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// The content before the run is not kept.
    ContentNotKept(NotKept),
    /// What was in the folder is not kept.
    FolderNotKept(NotKept),
    /// It was a FIFO, a socket or a device.
    Special,
    /// The run made a folder into which parlor does not look, so it removes nothing from it.
    GeneratedFolder(NotKept),
}

impl FileChange {
    /// Why an undo cannot put the file back, even if it is forced.
    pub fn obstacle(&self) -> Option<Obstacle> {
        match (&self.before, &self.after) {
            (FileState::File { content: KeptContent::NotKept { why, .. }, .. }, _) => {
                Some(Obstacle::ContentNotKept(*why))
            }
            (FileState::Folder { skipped: Some(why), .. }, _) => Some(Obstacle::FolderNotKept(*why)),
            (FileState::Special, _) => Some(Obstacle::Special),
            (_, FileState::Folder { skipped: Some(why), .. }) => Some(Obstacle::GeneratedFolder(*why)),
            (
                FileState::Missing
                | FileState::File { content: KeptContent::Kept(_), .. }
                | FileState::Folder { skipped: None, .. }
                | FileState::Link { .. },
                _,
            ) => None,
        }
    }

    /// `created`, `deleted`, `changed`, or `mode` if only the permissions changed.
    pub fn kind(&self) -> &'static str {
        let without_mode = |state: &FileState| match state.clone() {
            FileState::File { content, size, .. } => FileState::File { content, size, mode: None },
            FileState::Folder { skipped, .. } => FileState::Folder { mode: 0, skipped },
            state @ (FileState::Missing | FileState::Link { .. } | FileState::Special) => state,
        };
        match (&self.before, &self.after) {
            (FileState::Missing, _) => "created",
            (_, FileState::Missing) => "deleted",
            (before, after) if without_mode(before).is_same(&without_mode(after)) => "mode",
            _ => "changed",
        }
    }
}

impl Obstacle {
    /// A sentence without its subject, the file.
    pub fn reason(self) -> String {
        match self {
            Self::ContentNotKept(why) => {
                format!("its content before the run was not kept, because {}", why.reason())
            }
            Self::FolderNotKept(why) => format!("what was in it was not kept, because {}", why.reason()),
            Self::Special => "it was a FIFO, a socket or a device".to_owned(),
            Self::GeneratedFolder(why) => {
                format!("what is in it is not known to be of the run, because {}", why.reason())
            }
        }
    }
}

/// Puts the changes of a run together: one for each file that is different in the end.
pub(crate) fn fold(changes: impl IntoIterator<Item = Change>) -> Vec<FileChange> {
    let mut files: BTreeMap<Vec<u8>, FileChange> = BTreeMap::new();
    for change in changes {
        let path = |path: Vec<u8>| PathBuf::from(OsString::from_vec(path));
        let late = change.is_late.then_some(Doubt::Late);
        let Some(file) = files.get_mut(&change.path) else {
            let file = FileChange {
                path: path(change.path.clone()),
                before: change.before,
                after: change.after,
                linked: change.linked.map(path),
                doubt: late,
            };
            files.insert(change.path, file);
            continue;
        };
        // A process that is killed between two steps leaves the same change to be found again.
        let is_repeated = file.before.is_same(&change.before) && file.after.is_same(&change.after);
        if !is_repeated && !file.after.is_same(&change.before) {
            file.doubt = Some(Doubt::ChangedMeanwhile);
        }
        file.doubt = file.doubt.or(late);
        file.after = change.after;
    }
    files.into_values().filter(|file| !file.before.is_same(&file.after)).collect()
}

mod optional_path {
    use serde::{Deserialize, Deserializer, Serializer};

    use super::path_text;

    pub(super) fn serialize<S: Serializer>(path: &Option<Vec<u8>>, serializer: S) -> Result<S::Ok, S::Error> {
        path_text::serialize(path.as_deref().unwrap_or_default(), serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Vec<u8>>, D::Error> {
        #[derive(Deserialize)]
        struct Path(#[serde(with = "path_text")] Vec<u8>);
        Ok(Some(Path::deserialize(deserializer)?.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::ContentId;

    fn file(text: &str) -> FileState {
        let content = KeptContent::Kept(ContentId::of(text.as_bytes()));
        FileState::File { content, size: text.len() as u64, mode: Some(0o644) }
    }

    fn change(before: FileState, after: FileState) -> Change {
        Change { path: b"a".to_vec(), before, after, linked: None, is_late: false }
    }

    #[test]
    fn changes_of_one_file_become_one() {
        let files = fold([change(FileState::Missing, file("1")), change(file("1"), file("2"))]);
        assert_eq!(files.len(), 1);
        assert_eq!(
            (&files[0].before, &files[0].after, files[0].doubt),
            (&FileState::Missing, &file("2"), None)
        );
        assert!(fold([change(file("1"), file("2")), change(file("2"), file("1"))]).is_empty());
    }

    #[test]
    fn a_change_by_somebody_else_in_between_is_noticed() {
        let files = fold([change(file("1"), file("2")), change(file("by hand"), file("3"))]);
        assert_eq!(files[0].doubt, Some(Doubt::ChangedMeanwhile));
        let repeated = fold([change(file("1"), file("2")), change(file("1"), file("2"))]);
        assert_eq!(repeated[0].doubt, None);
    }
}
