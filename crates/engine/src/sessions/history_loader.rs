//! Looking back on what a session that is open does not hold itself.

use parlor_log::{EventLog, LogError};
use parlor_vocab::{HistoryItem, Seq, SessionId};

use crate::session::{History, Session};

/// How much of what was said and done a session that is open keeps at hand, in bytes of text and of what holds
/// it. Of a longer conversation nothing is kept: it is read from the log when somebody needs it.
pub const KEPT_HISTORY_BYTES: usize = 16 << 10;

/// How many events are read at a time.
const READ_EVENTS: usize = 1024;

/// What was said before a run.
pub(super) enum HistorySource {
    /// It is at hand, or nobody looks back on it.
    Cached(Vec<HistoryItem>),
    /// The log tells it between these run_slots, with the message that the run answers.
    InLog { session: SessionId, from: Seq, until: Seq },
}

impl HistorySource {
    /// Reads it, if need be.
    pub(super) async fn told(self, log: &dyn EventLog) -> Result<Vec<HistoryItem>, LogError> {
        match self {
            Self::Cached(items) => Ok(items),
            Self::InLog { session, from, until } => {
                let mut items = recall(log, &session, from, until).await?.into_passages();
                items.pop();
                Ok(items)
            }
        }
    }
}

/// The history of a session at the place `until`, which is told by what stands after `from`.
pub(super) async fn recall(
    log: &dyn EventLog,
    session: &SessionId,
    from: Seq,
    until: Seq,
) -> Result<History, LogError> {
    let mut read = Session::read_after(from);
    while read.head() < until {
        let entries = log.read(session, read.head(), READ_EVENTS).await?;
        if entries.is_empty() {
            return Err(LogError::UnknownSession(session.clone()));
        }
        entries.iter().take_while(|entry| entry.seq <= until).for_each(|entry| read.apply(entry));
    }
    Ok(read.history)
}
