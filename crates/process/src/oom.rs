//! Gives children a higher `oom_score_adj` than parlor has, so that the kernel kills them first when memory is short.
//!
//! A child cannot set its own score before `exec`: until then it shares our memory, and in a process that is not dumpable
//! (`PR_SET_DUMPABLE`) the files in `/proc/self` belong to root. After `exec` it is too late, since the child may have
//! started others. So parlor raises its own score while it starts a child, which inherits it. The child restores parlor's
//! score with its first system call, through the descriptor that both share. A lock keeps two launches apart.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// How much higher the score of children is: half of the scale, so that a small child is killed before a large server.
pub const CHILD_OOM_SCORE: i32 = 500;

/// The highest score that the kernel accepts.
const MAX_SCORE: i32 = 1000;

const FILE: &str = "/proc/self/oom_score_adj";

/// The score file of this process, with its own score and that of children.
#[derive(Debug)]
pub(crate) struct Scores {
    file: File,
    own: String,
    child: String,
}

/// Opens the score file. Call it before the process is made undumpable; otherwise the first launch tries it.
pub fn prepare_child_oom_score() {
    let _ = scores();
}

/// The scores, for one launch at a time. `None` if they cannot be changed.
pub(crate) fn scores() -> Option<&'static Mutex<Scores>> {
    static SCORES: OnceLock<Option<Mutex<Scores>>> = OnceLock::new();
    SCORES.get_or_init(|| Scores::open().map(Mutex::new)).as_ref()
}

impl Scores {
    fn open() -> Option<Self> {
        let mut file = OpenOptions::new().read(true).write(true).open(FILE).ok()?;
        let mut text = String::new();
        file.read_to_string(&mut text).ok()?;
        let score: i32 = text.trim().parse().ok()?;
        let child = (score + CHILD_OOM_SCORE).min(MAX_SCORE).to_string();
        let scores = Self { file, own: score.to_string(), child };
        // If the own score cannot be written now, it could not be restored later.
        scores.restore().then_some(scores)
    }

    /// Restores the own score. Returns whether that succeeded.
    pub(crate) fn restore(&self) -> bool {
        self.file.write_at(self.own.as_bytes(), 0).is_ok()
    }
}

/// Exists while a child is started.
pub(crate) struct LaunchGuard {
    /// The lock excludes other launches.
    scores: Option<MutexGuard<'static, Scores>>,
    /// Whether this process has the score of children at the moment.
    is_raised: bool,
}

impl LaunchGuard {
    /// Raises the score of this process if `raise_score`, for the child to inherit.
    pub(crate) fn begin(raise_score: bool) -> Self {
        let scores = scores().map(|scores| scores.lock().unwrap_or_else(PoisonError::into_inner));
        let raise =
            |scores: &MutexGuard<'_, Scores>| scores.file.write_at(scores.child.as_bytes(), 0).is_ok();
        let is_raised = raise_score && scores.as_ref().is_some_and(raise);
        Self { scores, is_raised }
    }

    /// The file and the text that the child writes to restore our score.
    pub(crate) fn score_to_restore(&self) -> Option<(RawFd, &[u8])> {
        let scores = self.scores.as_ref().filter(|_| self.is_raised);
        scores.map(|scores| (scores.file.as_raw_fd(), scores.own.as_bytes()))
    }

    /// Ends the launch. Restores the score if the child has not.
    pub(crate) fn end(self, is_score_restored: bool) {
        if let Some(scores) = self.scores.filter(|_| self.is_raised && !is_score_restored) {
            scores.restore();
        }
    }
}
