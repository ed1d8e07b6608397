//! Where somebody who watches a session begins to look.

use parlor_log::{EventLog, LogError, SessionRecord};
use parlor_vocab::{RunEnding, RunEvent, RunId, Seq, SessionEvent, SessionId, StopCause, WatchFrom};

/// How many events are looked through first for the start of a run; each time it is not among them, twice
/// as many.
const LOOK_BACK: u64 = 64;

/// How many events are read at a time.
const READ_EVENTS: usize = 1024;

/// Where a watch begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WatchStart {
    /// What comes after this is told.
    pub(crate) from: Seq,
    /// What stands up to here was seen before.
    pub(crate) seen: Seq,
    /// What stands up to here happened before.
    pub(crate) head: Seq,
    /// Whether there is something to do for whoever opens the session: a run has begun and not ended, or inputs may
    /// wait that were behind one.
    pub(crate) is_unfinished: bool,
}

/// Finds the place. A session that is not there has happened up to [`Seq::START`].
pub(crate) async fn find(
    log: &dyn EventLog,
    session: &SessionId,
    place: &WatchFrom,
) -> Result<WatchStart, LogError> {
    let (head, is_running, is_left) = match log.session(session).await {
        Ok(record) => (record.head, record.running.is_some(), is_left(log, &record).await?),
        Err(LogError::UnknownSession(_)) => (Seq::START, false, false),
        Err(error) => return Err(error),
    };
    let (seen, from) = match place {
        WatchFrom::At(seen) => (*seen, *seen),
        WatchFrom::Now if is_running => (head, before_run(log, session, head).await?),
        WatchFrom::Now => (head, head),
        WatchFrom::Event(event) => match log.find(session, event).await? {
            Some(seen) => (seen, before_run(log, session, seen).await?),
            None => (Seq::START, Seq::START),
        },
    };
    Ok(WatchStart { from, seen, head, is_unfinished: is_running || is_left })
}

/// Whether the last thing that happened was that the program ended in the middle of a run. What waited behind that run
/// waits still: whoever opens the session begins it.
pub(super) async fn is_left(log: &dyn EventLog, record: &SessionRecord) -> Result<bool, LogError> {
    if record.head == Seq::START {
        return Ok(false);
    }
    let last = log.read(&record.id, Seq(record.head.0 - 1), 1).await?;
    let event = last.first().map(|entry| &entry.event);
    Ok(matches!(event, Some(SessionEvent::Run { event: RunEvent::Ended { ending, .. }, .. })
        if matches!(ending, RunEnding::Stopped { cause: StopCause::Shutdown, .. })))
}

/// The place before the run that is under way at `place`, or `place` itself if none is. Runs come one after
/// another, but for those of subagents, which are a part of another.
pub(super) async fn before_run(log: &dyn EventLog, session: &SessionId, place: Seq) -> Result<Seq, LogError> {
    let mut count = LOOK_BACK;
    loop {
        let low = Seq(place.0.saturating_sub(count));
        let last = last_run(log, session, low, place).await?;
        match last {
            Some(Last { open: Some((_, start)) }) => return Ok(Seq(start.0 - 1)),
            Some(Last { open: None }) => return Ok(place),
            None if low == Seq::START => return Ok(place),
            None => count = count.saturating_mul(2),
        }
    }
}

/// The last run that began within a part of the log: none if it has ended there too.
struct Last {
    open: Option<(RunId, Seq)>,
}

async fn last_run(
    log: &dyn EventLog,
    session: &SessionId,
    low: Seq,
    high: Seq,
) -> Result<Option<Last>, LogError> {
    let (mut last, mut read) = (None, low);
    while read < high {
        let left = usize::try_from(high.0 - read.0).unwrap_or(usize::MAX);
        let entries = log.read(session, read, left.min(READ_EVENTS)).await?;
        let Some(end) = entries.last() else { break };
        read = end.seq;
        for entry in entries {
            let SessionEvent::Run { run, event, .. } = entry.event else { continue };
            if matches!(event, RunEvent::Started { parent: None, .. }) {
                last = Some(Last { open: Some((run, entry.seq)) });
            } else if matches!(event, RunEvent::Ended { .. })
                && let Some(Last { open }) = &mut last
            {
                open.take_if(|(running, _)| *running == run);
            }
        }
    }
    Ok(last)
}
