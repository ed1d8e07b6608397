//! Decides which sessions are deleted because they are too old or take too much space.
//!
//! Sessions are checked one after another, the last used first, so that memory does not grow with their number. A
//! session that is open in any process cannot be deleted, whatever this decides.

use std::time::Duration;

use parlor_log::SessionRecord;
use parlor_vocab::{SessionId, Timestamp};

/// A session that was used within this time is never deleted: one day.
pub const RECENTLY_USED: Duration = Duration::from_secs(24 * 60 * 60);

/// The limits beyond which sessions are deleted. `None` is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// Sessions that were not used for longer than this are deleted.
    pub max_age: Option<Duration>,
    /// When the events of all sessions take more bytes than this, the least recently used are deleted.
    pub max_bytes: Option<u64>,
}

/// Why a session is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeletionReason {
    /// The session was not used for longer than [`Retention::max_age`].
    Age,
    /// More recently used sessions take up [`Retention::max_bytes`].
    Size,
}

/// A session that a collection deleted, or would delete in a dry run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeletedSession {
    /// The id of the session.
    pub id: SessionId,
    /// The session's title, if it had one.
    pub title: Option<String>,
    /// When the last event was appended.
    pub updated: Timestamp,
    /// The size of the session's events in bytes.
    pub bytes: u64,
    /// The limit that the session exceeded.
    pub reason: DeletionReason,
}

/// What a collection did, or would do in a dry run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CollectionReport {
    /// How many sessions were checked.
    pub checked: usize,
    /// How many sessions exceed a limit but are in use, and therefore stay.
    pub in_use: usize,
    /// How many sessions were deleted.
    pub deleted: usize,
    /// The size of their events in bytes.
    pub deleted_bytes: u64,
    /// How many media files were removed because no event refers to them.
    pub media_files: u64,
    /// The size of these files.
    pub media_bytes: u64,
    /// How many bytes smaller the database became.
    pub reclaimed_bytes: u64,
    /// Whether the deleted text is overwritten in all files of the log. False after a dry run.
    pub is_erased: bool,
}

/// Checks sessions against the limits. Callers pass the last used session first.
#[derive(Debug)]
pub(crate) struct RetentionCheck {
    retention: Retention,
    now: Timestamp,
    /// The total size of the sessions that are kept so far.
    kept_bytes: u64,
}

impl RetentionCheck {
    pub(crate) fn new(retention: Retention, now: Timestamp) -> Self {
        Self { retention, now, kept_bytes: 0 }
    }

    /// The reason to delete `next`, or `None` to keep it.
    pub(crate) fn reason_to_delete(&mut self, next: &SessionRecord) -> Option<DeletionReason> {
        let unused_for = Duration::from_millis(u64::try_from(self.now.0 - next.updated.0).unwrap_or(0));
        let is_old = self.retention.max_age.is_some_and(|max| unused_for > max);
        let has_room =
            self.retention.max_bytes.is_none_or(|max| self.kept_bytes.saturating_add(next.bytes) <= max);
        match (unused_for <= RECENTLY_USED, is_old, has_room) {
            (false, true, _) => Some(DeletionReason::Age),
            (false, false, false) => Some(DeletionReason::Size),
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

    /// Checks sessions of these ages in days and these sizes.
    fn reasons(retention: Retention, sessions: &[(u32, u64)]) -> Vec<Option<DeletionReason>> {
        let now = Timestamp(1_000 * 24 * 60 * 60 * 1000);
        let mut check = RetentionCheck::new(retention, now);
        let reasons = sessions.iter().map(|(days, bytes)| {
            let mut record = SessionRecord::new(SessionId::parse("s").unwrap());
            record.updated = Timestamp(now.0 - (DAY * *days).as_millis() as i64);
            record.bytes = *bytes;
            check.reason_to_delete(&record)
        });
        reasons.collect()
    }

    #[test]
    fn by_default_nothing_is_deleted() {
        assert_eq!(reasons(Retention::default(), &[(0, 1), (999, u64::MAX), (999, u64::MAX)]), [None; 3]);
    }

    #[test]
    fn sessions_older_than_the_limit_are_deleted() {
        let retention = Retention { max_age: Some(DAY * 30), max_bytes: None };
        assert_eq!(reasons(retention, &[(29, 1), (30, 1), (31, 1)]), [None, None, Some(DeletionReason::Age)]);
    }

    #[test]
    fn beyond_the_size_limit_the_least_recently_used_are_deleted() {
        let retention = Retention { max_age: None, max_bytes: Some(100) };
        let size = Some(DeletionReason::Size);
        assert_eq!(reasons(retention, &[(2, 60), (3, 40), (4, 1), (5, 1)]), [None, None, size, size]);
        // An older session that is small enough stays although a larger one is deleted.
        assert_eq!(reasons(retention, &[(2, 60), (3, 41), (4, 40)]), [None, size, None]);
    }

    #[test]
    fn recently_used_sessions_stay_whatever_the_limits_are() {
        let retention = Retention { max_age: Some(Duration::ZERO), max_bytes: Some(0) };
        assert_eq!(reasons(retention, &[(0, 1), (1, 1), (2, 1)]), [None, None, Some(DeletionReason::Age)]);
    }
}
