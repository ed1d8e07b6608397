//! Reads the history that an open session does not hold in memory.

use parlor_log::{EventLog, LogError};
use parlor_vocab::{HistoryItem, Seq, SessionId};

use super::watch_start::start_of_run_at;
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
    /// All history items.
    pub(super) async fn load_all(self, log: &dyn EventLog) -> Result<Vec<HistoryItem>, LogError> {
        match self {
            Self::Cached(items) => Ok(items),
            Self::InLog { session, from, until } => {
                Ok(load_history(log, &session, from, until).await?.into_items())
            }
        }
    }

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
    replay(log, session, from, until, |_| {}).await
}

/// Like [`load_history`], but with at most `max_bytes` of the newest items, and without tool uses. Reads the last events,
/// and then twice as many until they have that many bytes.
pub(super) async fn load_newest_history(
    log: &dyn EventLog,
    session: &SessionId,
    from: Seq,
    until: Seq,
    max_bytes: usize,
) -> Result<History, LogError> {
    let mut count = READ_EVENTS as u64;
    loop {
        let mut start = Seq(until.0.saturating_sub(count));
        if start > from {
            // The items of a run are rebuilt from its start.
            start = start_of_run_at(log, session, start).await?;
        }
        start = start.max(from);
        let newest = replay(log, session, start, until, |history| history.keep_newest(max_bytes)).await?;
        if newest.is_cut() || start == from {
            return Ok(newest);
        }
        count = count.saturating_mul(2);
    }
}

/// Applies the events after `from` up to `until`. Calls `trim` on the history after each part that was read.
async fn replay(
    log: &dyn EventLog,
    session: &SessionId,
    from: Seq,
    until: Seq,
    trim: impl Fn(&mut History),
) -> Result<History, LogError> {
    let mut replayed = Session::before_replay(from);
    while replayed.head() < until {
        let entries = log.read(session, replayed.head(), READ_EVENTS).await?;
        if entries.is_empty() {
            return Err(LogError::UnknownSession(session.clone()));
        }
        entries.iter().take_while(|entry| entry.seq <= until).for_each(|entry| replayed.apply(entry));
        trim(&mut replayed.history);
    }
    Ok(replayed.history)
}
