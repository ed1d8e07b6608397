//! Keeps what runs change in the user's files, so that it can be shown and undone.
//!
//! Before a run changes files, a [`ChangeRecorder`] keeps their contents in the state folder, by hash. File tools report
//! each change; what commands change is found by comparing two snapshots of the working folder. The record of a run lies
//! beside the log, in files, and is complete enough at every moment to undo a run whose process was killed.
//! [`UndoStore`] lists, shows, undoes and deletes records. `docs/undo.md` is the page for users.
//!
//! All functions block. Deliberately absent: sessions, the log, and which tool changes files. Git is neither used nor
//! touched.

mod changes;
mod content;
mod diff;
mod error;
mod journal;
mod locks;
mod recorder;
mod restore;
mod snapshot;
mod state;
mod store;
mod sweep;
mod walk;

pub use changes::{FileChange, Obstacle, RunChanges};
pub use content::ContentId;
pub use diff::{DIFF_BYTES, DIFF_LINES, FileDiff, text_diff};
pub use error::UndoError;
pub use journal::{MAX_RECORDED_CHANGES, RunRecord};
pub use locks::UNDO_LOCK_WAIT;
pub use recorder::{Background, CUT_SLACK, ChangeRecorder, HEARTBEAT};
pub use restore::{UndoMode, UndoOutcome, UndoReport, UndoneFile};
pub use state::{FileIdentity, FileState, KeptContent, NotKept};
pub use store::UndoStore;
pub use sweep::{KEPT_TOTAL_BYTES, KeptBytes};
pub use walk::{
    KEPT_FILE_BYTES, KEPT_RUN_BYTES, SKIPPED_FOLDERS, SNAPSHOT_DEPTH, SNAPSHOT_FILES, SNAPSHOT_TIME,
    WRITTEN_FILE_BYTES,
};
