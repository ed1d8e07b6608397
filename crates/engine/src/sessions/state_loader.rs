//! Reads the state of a session from the log: its snapshot, and the events after that.

use parlor_log::{EventLog, LogError};
use parlor_vocab::{EventId, Seq, SessionId};

use crate::session::{History, Session};

/// How many events are read at a time. Many, because the log decodes a long read on two threads and limits its bytes
/// itself.
const READ_EVENTS: usize = 16 * 1024;

/// The state of a session as the log has it.
pub(super) struct LoadedState {
    pub(super) session: Session,
    /// The id of the last event.
    pub(super) last_event: Option<EventId>,
    /// The last event that the snapshot includes; [`Seq::START`] without a snapshot.
    pub(super) snapshot_at: Seq,
}

/// Reads the state of a session. Calls `trim` on the history after each part that was read. A long history may be missing:
/// then [`History::is_cached`] is false.
pub(super) async fn load_state(
    log: &dyn EventLog,
    id: &SessionId,
    trim: impl Fn(&mut History),
) -> Result<LoadedState, LogError> {
    // If it cannot be read, the events still can, or report why they cannot.
    let snapshot = log.snapshot(id).await.unwrap_or(None);
    let mut last_event = snapshot.as_ref().map(|snapshot| snapshot.event.clone());
    let mut session = snapshot.map(Session::from).unwrap_or_default();
    let snapshot_at = session.head();
    trim(&mut session.history);
    loop {
        let entries = log.read(id, session.head(), READ_EVENTS).await?;
        let Some(last) = entries.last() else { break };
        last_event = Some(last.id.clone());
        entries.iter().for_each(|entry| session.apply(entry));
        trim(&mut session.history);
    }
    match session.new_session() {
        Some(_) => Ok(LoadedState { session, last_event, snapshot_at }),
        None => Err(LogError::UnknownSession(id.clone())),
    }
}
