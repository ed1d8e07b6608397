//! What a run changed in one file, as a unified diff.

use similar::{Algorithm, TextDiff};
use std::time::{Duration, Instant};

use crate::changes::FileChange;
use crate::error::UndoError;
use crate::state::{FileState, KeptContent};
use crate::store::UndoStore;

/// How many bytes each side of a diff may have. A larger file is shown by its sizes only.
pub const DIFF_BYTES: u64 = 1 << 20;

/// How many lines a diff has. It is cut after that.
pub const DIFF_LINES: usize = 5_000;

/// How long the search for the shortest diff may take; then a longer one is shown.
const DIFF_TIME: Duration = Duration::from_millis(500);

/// How many unchanged lines are shown around a change.
const CONTEXT_LINES: usize = 3;

/// How a change of a file is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileDiff {
    /// The lines of a unified diff from its first `@@` on; empty if the content is the same.
    Text {
        /// The lines.
        text: String,
        /// Whether lines beyond [`DIFF_LINES`] are left out.
        is_cut: bool,
    },
    /// The content is not text.
    Binary,
    /// A side has more than [`DIFF_BYTES`], or is not kept.
    NotShown,
    /// Neither side is a file.
    NoFile,
}

impl UndoStore {
    /// The difference between the contents before and after a change.
    pub fn diff(&self, change: &FileChange) -> Result<FileDiff, UndoError> {
        let is_file = |state: &FileState| matches!(state, FileState::File { .. });
        if !is_file(&change.before) && !is_file(&change.after) {
            return Ok(FileDiff::NoFile);
        }
        let (Some(before), Some(after)) = (self.side(&change.before)?, self.side(&change.after)?) else {
            return Ok(FileDiff::NotShown);
        };
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).ok().filter(|text| !text.contains('\0'));
        let (Some(before), Some(after)) = (text(before), text(after)) else { return Ok(FileDiff::Binary) };
        Ok(unified(&before, &after))
    }

    /// The content of one side; `None` if it cannot be shown.
    fn side(&self, state: &FileState) -> Result<Option<Vec<u8>>, UndoError> {
        match state {
            FileState::File { size, .. } if *size > DIFF_BYTES => Ok(None),
            FileState::File { content: KeptContent::NotKept { .. }, .. } => Ok(None),
            FileState::File { content: KeptContent::Kept(id), .. } if !self.contents.has(id) => Ok(None),
            FileState::File { content: KeptContent::Kept(id), .. } => self.contents.read(id).map(Some),
            FileState::Missing | FileState::Folder { .. } | FileState::Link { .. } | FileState::Special => {
                Ok(Some(Vec::new()))
            }
        }
    }
}

/// The lines of a unified diff of two texts from its first `@@` on, at most [`DIFF_LINES`].
pub fn text_diff(before: &str, after: &str) -> String {
    match unified(before, after) {
        FileDiff::Text { text, .. } => text,
        FileDiff::Binary | FileDiff::NotShown | FileDiff::NoFile => String::new(),
    }
}

fn unified(before: &str, after: &str) -> FileDiff {
    let mut config = TextDiff::configure();
    let diff =
        config.algorithm(Algorithm::Myers).deadline(Instant::now() + DIFF_TIME).diff_lines(before, after);
    let text = diff.unified_diff().context_radius(CONTEXT_LINES).to_string();
    let mut lines = text.split_inclusive('\n');
    let shown: String = lines.by_ref().take(DIFF_LINES).collect();
    FileDiff::Text { text: shown, is_cut: lines.next().is_some() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_diff_has_context_and_marks_a_missing_newline() {
        let FileDiff::Text { text, is_cut } = unified("a\nb\nc\nd\ne\nf\n", "a\nb\nc\nd\ne\nF") else {
            panic!("both are text")
        };
        assert_eq!(text, "@@ -3,4 +3,4 @@\n c\n d\n e\n-f\n+F\n\\ No newline at end of file\n");
        assert!(!is_cut);
    }

    #[test]
    fn a_long_diff_is_cut() {
        let many = "x\n".repeat(DIFF_LINES * 2);
        let FileDiff::Text { text, is_cut } = unified("", &many) else { panic!("both are text") };
        assert_eq!((text.lines().count(), is_cut), (DIFF_LINES, true));
    }
}
