//! Reads the history that an open session does not hold in memory.

use parlor_log::{EventLog, LogError};
use parlor_vocab::{HistoryItem, Seq, SessionId};

use crate::session::{History, Session};

/// The largest history, in bytes, that an open session keeps in memory. A longer one is not kept at all: it is read
/// from the log when a run or a compaction needs it.
pub const CACHED_HISTORY_BYTES: usize = 16 << 10;

/// How many events are read at a time.
const READ_EVENTS: usize = 1024;

/// Where a run gets the history before its input from.
pub(super) enum HistorySource {
    /// From memory. Empty if the agent needs no history.
    Cached(Vec<HistoryItem>),
    /// From the log, between these positions. The last item there is the input that the run answers.
    InLog { session: SessionId, from: Seq, until: Seq },
}

impl HistorySource {
    /// The history items before the run's input.
    pub(super) async fn load(self, log: &dyn EventLog) -> Result<Vec<HistoryItem>, LogError> {
        match self {
            Self::Cached(items) => Ok(items),
            Self::InLog { session, from, until } => {
                let mut items = load_history(log, &session, from, until).await?.into_items();
                items.pop();
                Ok(items)
            }
        }
    }
}

/// Rebuilds the history of a session at the position `until` from the events after `from`.
pub(super) async fn load_history(
    log: &dyn EventLog,
    session: &SessionId,
    from: Seq,
    until: Seq,
) -> Result<History, LogError> {
    let mut replayed = Session::before_replay(from);
    while replayed.head() < until {
        let entries = log.read(session, replayed.head(), READ_EVENTS).await?;
        if entries.is_empty() {
            return Err(LogError::UnknownSession(session.clone()));
        }
        entries.iter().take_while(|entry| entry.seq <= until).for_each(|entry| replayed.apply(entry));
    }
    Ok(replayed.history)
}
