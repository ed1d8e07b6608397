//! Which sessions are kept, and for how long.
//!
//! Sessions are judged one after another, the last used first, so that there may be any number of
//! them. Whoever is in use is kept whatever this says: a session that anybody holds cannot be
//! deleted.

use std::time::Duration;

use parlor_log::SessionRecord;
use parlor_vocab::{SessionId, Timestamp};

/// A session that was used within this time is never deleted: one day.
pub const RECENT: Duration = Duration::from_secs(24 * 60 * 60);

/// How much of the past is kept. What is `None` is no reason to delete anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// Sessions that were not used for longer are deleted.
    pub max_age: Option<Duration>,
    /// When the events of all sessions take more than this, the ones not used for longest are deleted.
    pub max_bytes: Option<u64>,
}

/// Why a session is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It was not used for too long.
    Age,
    /// Those used after it take all the room there is.
    Size,
}

/// A session that was or would be deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deleted {
    /// Which one.
    pub id: SessionId,
    /// What it was called.
    pub title: Option<String>,
    /// When it was used last.
    pub updated: Timestamp,
    /// How much its events took.
    pub bytes: u64,
    /// Why.
    pub reason: Reason,
}

/// What a collection did, or would do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// How many sessions there were.
    pub looked_at: usize,
    /// How many were to be deleted, but are in use.
    pub in_use: usize,
    /// How many were deleted.
    pub deleted: usize,
    /// How much their events took.
    pub deleted_bytes: u64,
    /// How many stored files were taken away because nothing refers to them.
    pub media_files: u64,
    /// How much these took.
    pub media_bytes: u64,
    /// By how much the database became smaller.
    pub reclaimed_bytes: u64,
    /// Whether what was deleted is in no file any more; not after a dry run.
    pub is_erased: bool,
}

/// Judges sessions, the last used first.
#[derive(Debug)]
pub(crate) struct Judge {
    retention: Retention,
    now: Timestamp,
    /// How much is kept already.
    kept_bytes: u64,
}

impl Judge {
    pub(crate) fn new(retention: Retention, now: Timestamp) -> Self {
        Self { retention, now, kept_bytes: 0 }
    }

    /// Why `next` is to be deleted, if it is.
    pub(crate) fn judge(&mut self, next: &SessionRecord) -> Option<Reason> {
        let unused = Duration::from_millis(u64::try_from(self.now.0 - next.updated.0).unwrap_or(0));
        let is_old = self.retention.max_age.is_some_and(|max| unused > max);
        let has_room =
            self.retention.max_bytes.is_none_or(|max| self.kept_bytes.saturating_add(next.bytes) <= max);
        match (unused <= RECENT, is_old, has_room) {
            (false, true, _) => Some(Reason::Age),
            (false, false, false) => Some(Reason::Size),
            (true, _, _) | (false, false, true) => {
                self.kept_bytes = self.kept_bytes.saturating_add(next.bytes);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(24 * 60 * 60);

    /// Judges sessions of these ages in days and these sizes.
    fn judged(retention: Retention, sessions: &[(u32, u64)]) -> Vec<Option<Reason>> {
        let now = Timestamp(1_000 * 24 * 60 * 60 * 1000);
        let mut judge = Judge::new(retention, now);
        let judge = sessions.iter().map(|(days, bytes)| {
            let mut record = SessionRecord::new(SessionId::parse("s").unwrap());
            record.updated = Timestamp(now.0 - (DAY * *days).as_millis() as i64);
            record.bytes = *bytes;
            judge.judge(&record)
        });
        judge.collect()
    }

    #[test]
    fn by_default_nothing_is_deleted() {
        assert_eq!(judged(Retention::default(), &[(0, 1), (999, u64::MAX), (999, u64::MAX)]), [None; 3]);
    }

    #[test]
    fn what_was_not_used_for_too_long_goes() {
        let retention = Retention { max_age: Some(DAY * 30), max_bytes: None };
        assert_eq!(judged(retention, &[(29, 1), (30, 1), (31, 1)]), [None, None, Some(Reason::Age)]);
    }

    #[test]
    fn when_room_runs_out_the_ones_not_used_for_longest_go() {
        let retention = Retention { max_age: None, max_bytes: Some(100) };
        let size = Some(Reason::Size);
        assert_eq!(judged(retention, &[(2, 60), (3, 40), (4, 1), (5, 1)]), [None, None, size, size]);
        // A large one does not take a smaller, older one with it.
        assert_eq!(judged(retention, &[(2, 60), (3, 41), (4, 40)]), [None, size, None]);
    }

    #[test]
    fn what_is_recent_stays_whatever_the_limits_are() {
        let retention = Retention { max_age: Some(Duration::ZERO), max_bytes: Some(0) };
        assert_eq!(judged(retention, &[(0, 1), (1, 1), (2, 1)]), [None, None, Some(Reason::Age)]);
    }
}
