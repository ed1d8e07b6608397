//! Keeps snapshots of the session, so that opening it need not read all of its events.

use parlor_log::LogError;

use super::Actor;

/// A snapshot of a session is kept when no run is active and this many events came since the last one. Opening the session
/// reads the events after the snapshot.
pub const SNAPSHOT_EVENTS: u64 = 1024;

impl Actor {
    /// Keeps a snapshot if one is due. It is only a shortcut: if this fails, it is tried again after as many events.
    pub(super) async fn keep_snapshot_if_due(&mut self) {
        let head = self.session.head();
        // A compaction holds more of the history in memory than belongs into a snapshot.
        if head.0 - self.snapshot_at.0 < SNAPSHOT_EVENTS || self.is_lease_lost || self.compaction.is_some() {
            return;
        }
        let Some(snapshot) = self.last_event.clone().and_then(|event| self.session.snapshot(event)) else {
            return;
        };
        self.snapshot_at = head;
        let kept = self.deps.log.keep_snapshot(&self.lease, &snapshot).await;
        self.is_lease_lost |= matches!(kept, Err(LogError::NotHeld { .. }));
    }
}
