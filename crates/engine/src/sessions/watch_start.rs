//! Finds the log position at which a watch of a session begins.

use parlor_log::{EventLog, LogError, SessionRecord};
use parlor_vocab::{RunEnding, RunEvent, RunId, Seq, SessionEvent, SessionId, StopCause, WatchFrom};

use super::state_loader::load_state;

/// How many events are searched first for the start of a run. Each further attempt searches twice as many.
const FIRST_SEARCH_EVENTS: u64 = 64;

/// How many events are read at a time.
const READ_EVENTS: usize = 1024;

/// The log positions at the beginning of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WatchStart {
    /// The watch delivers the events after this position.
    pub(crate) from: Seq,
    /// The client has seen the events up to this position before.
    pub(crate) seen: Seq,
    /// The last event when the watch began.
    pub(crate) head: Seq,
    /// Whether the session has work for the process that opens it: a run that has not ended, or inputs that are queued.
    pub(crate) is_unfinished: bool,
}

/// Finds the positions for a watch that begins at `watch_from`. For a session that does not exist, they are
/// [`Seq::START`].
pub(crate) async fn find(
    log: &dyn EventLog,
    session: &SessionId,
    watch_from: &WatchFrom,
) -> Result<WatchStart, LogError> {
    let (head, is_running, left_inputs) = match log.session(session).await {
        Ok(record) => (record.head, record.running.is_some(), left_inputs(log, &record).await?),
        Err(LogError::UnknownSession(_)) => (Seq::START, false, 0),
        Err(error) => return Err(error),
    };
    let (seen, from) = match watch_from {
        WatchFrom::At(seen) => (*seen, *seen),
        WatchFrom::Now if is_running => (head, start_of_run_at(log, session, head).await?),
        WatchFrom::Now => (head, head),
        WatchFrom::Event(event) => match log.find(session, event).await? {
            Some(seen) => (seen, start_of_run_at(log, session, seen).await?),
            None => (Seq::START, Seq::START),
        },
    };
    Ok(WatchStart { from, seen, head, is_unfinished: is_running || left_inputs > 0 })
}

/// How many inputs were queued behind the run that a shutdown stopped, if that is the last event of the session. The process
/// that opens the session starts them.
pub(super) async fn left_inputs(log: &dyn EventLog, record: &SessionRecord) -> Result<usize, LogError> {
    if !was_shut_down(log, record).await? {
        return Ok(0);
    }
    let loaded = load_state(log, &record.id, |history| history.drop_beyond(0)).await?;
    Ok(loaded.session.queue().len())
}

/// Whether the last event of a session is the end of a run that a shutdown stopped.
async fn was_shut_down(log: &dyn EventLog, record: &SessionRecord) -> Result<bool, LogError> {
    if record.head == Seq::START {
        return Ok(false);
    }
    let last = log.read(&record.id, Seq(record.head.0 - 1), 1).await?;
    let event = last.first().map(|entry| &entry.event);
    Ok(matches!(event, Some(SessionEvent::Run { event: RunEvent::Ended { ending, .. }, .. })
        if matches!(ending, RunEnding::Stopped { cause: StopCause::Shutdown, .. })))
}

/// The position from which to read the events that opened the texts that are open at `position`. It is `position` itself
/// if no run is active now, because then nothing is being written.
pub(super) async fn before_open_texts(
    log: &dyn EventLog,
    session: &SessionId,
    position: Seq,
) -> Result<Seq, LogError> {
    match log.session(session).await {
        Ok(record) if record.running.is_some() => start_of_run_at(log, session, position).await,
        Ok(_) | Err(LogError::UnknownSession(_)) => Ok(position),
        Err(error) => Err(error),
    }
}

/// The position before the run that is active at `position`, or `position` itself if none is. Runs do not overlap,
/// except that the runs of subagents are within another run.
pub(super) async fn start_of_run_at(
    log: &dyn EventLog,
    session: &SessionId,
    position: Seq,
) -> Result<Seq, LogError> {
    let mut count = FIRST_SEARCH_EVENTS;
    loop {
        let low = Seq(position.0.saturating_sub(count));
        let last = last_run(log, session, low, position).await?;
        match last {
            Some(LastRun { open: Some((_, start)) }) => return Ok(Seq(start.0 - 1)),
            Some(LastRun { open: None }) => return Ok(position),
            None if low == Seq::START => return Ok(position),
            None => count = count.saturating_mul(2),
        }
    }
}

/// The last run that started within a part of the log.
struct LastRun {
    /// The run and the position of its start. `None` if the run has also ended within that part.
    open: Option<(RunId, Seq)>,
}

/// The last run that started after `low` and up to `high`, if any.
async fn last_run(
    log: &dyn EventLog,
    session: &SessionId,
    low: Seq,
    high: Seq,
) -> Result<Option<LastRun>, LogError> {
    let (mut last, mut read) = (None, low);
    while read < high {
        let left = usize::try_from(high.0 - read.0).unwrap_or(usize::MAX);
        let entries = log.read(session, read, left.min(READ_EVENTS)).await?;
        let Some(end) = entries.last() else { break };
        read = end.seq;
        for entry in entries {
            let SessionEvent::Run { run, event, .. } = entry.event else { continue };
            if matches!(event, RunEvent::Started { parent: None, .. }) {
                last = Some(LastRun { open: Some((run, entry.seq)) });
            } else if matches!(event, RunEvent::Ended { .. })
                && let Some(LastRun { open }) = &mut last
            {
                open.take_if(|(running, _)| *running == run);
            }
        }
    }
    Ok(last)
}
