//! Children go first when memory is short: their `oom_score_adj` is higher than ours.
//!
//! A child cannot set its own before `exec`: until then it shares our memory, and where that is closed to others
//! (`PR_SET_DUMPABLE`), the files below `/proc/self` are root's. After `exec` it is too late, since it may have started
//! others by then. So we have the children's score ourselves for the moment in which a child is made, which inherits it,
//! and the child gives us ours back with its first system call, by the descriptor that both have. Two launches at a time
//! would take that from each other, hence the lock.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// By how much the score of children is above ours: half of the scale, so that a small child goes before a large server.
pub const CHILD_OOM_SCORE: i32 = 500;

/// The highest score there is.
const MAX_SCORE: i32 = 1000;

const FILE: &str = "/proc/self/oom_score_adj";

/// Our own score, and that of children.
#[derive(Debug)]
pub(crate) struct Scores {
    file: File,
    ours: String,
    childrens: String,
}

/// Opens what is needed to raise the score of children. To be called before this process is closed to others; else the
/// first launch does it.
pub fn prepare_child_scores() {
    let _ = scores();
}

/// The scores, for one launch at a time. None where they cannot be changed.
pub(crate) fn scores() -> Option<&'static Mutex<Scores>> {
    static SCORES: OnceLock<Option<Mutex<Scores>>> = OnceLock::new();
    SCORES.get_or_init(|| Scores::open().map(Mutex::new)).as_ref()
}

impl Scores {
    fn open() -> Option<Self> {
        let mut file = OpenOptions::new().read(true).write(true).open(FILE).ok()?;
        let mut ours = String::new();
        file.read_to_string(&mut ours).ok()?;
        let score: i32 = ours.trim().parse().ok()?;
        let childrens = (score + CHILD_OOM_SCORE).min(MAX_SCORE).to_string();
        let scores = Self { file, ours: score.to_string(), childrens };
        // Who could not go back to it must not leave it.
        scores.restore().then_some(scores)
    }

    /// Takes our own score back. Says whether that worked.
    pub(crate) fn restore(&self) -> bool {
        self.file.write_at(self.ours.as_bytes(), 0).is_ok()
    }
}

/// Held while a child is made.
pub(crate) struct Launching {
    /// Nobody else launches meanwhile.
    scores: Option<MutexGuard<'static, Scores>>,
    /// Whether we have the children's score for now.
    is_raised: bool,
}

impl Launching {
    /// Whoever is made now has the children's score, if it `goes_first`, or else ours.
    pub(crate) fn begin(goes_first: bool) -> Self {
        let scores = scores().map(|scores| scores.lock().unwrap_or_else(PoisonError::into_inner));
        let raise =
            |scores: &MutexGuard<'_, Scores>| scores.file.write_at(scores.childrens.as_bytes(), 0).is_ok();
        let is_raised = goes_first && scores.as_ref().is_some_and(raise);
        Self { scores, is_raised }
    }

    /// What the child writes, and where to, so that we have our own score again.
    pub(crate) fn way_back(&self) -> Option<(RawFd, &[u8])> {
        let scores = self.scores.as_ref().filter(|_| self.is_raised);
        scores.map(|scores| (scores.file.as_raw_fd(), scores.ours.as_bytes()))
    }

    /// Ends it. Does what the child should have, unless it has.
    pub(crate) fn end(self, is_score_back: bool) {
        if let Some(scores) = self.scores.filter(|_| self.is_raised && !is_score_back) {
            scores.restore();
        }
    }
}
