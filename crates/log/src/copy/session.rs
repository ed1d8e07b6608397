//! Copies one session: compares what both logs have, appends the rest, and reads back what was appended.

use std::time::Duration;

use parlor_vocab::{Seq, SessionId};
use tokio::time::{Instant, sleep};

use super::{CopyError, CopyableLog, SessionCopy, StoredEvent};
use crate::{Lease, LogError, PartialText, SessionRecord};

/// The largest number of events that are copied and compared at a time.
pub const COPY_EVENTS: usize = 1024;

/// How long a copy waits for a session that is in use in the target. Long enough for the lease of a copy that was killed.
/// After it has waited in vain once, it does not wait for further sessions.
pub const HELD_WAIT: Duration = Duration::from_secs(8);

/// The pause between two attempts to take a lease.
const HELD_RETRY: Duration = Duration::from_millis(250);

/// Copies sessions one after the other.
pub(super) struct Copier<'a> {
    source: &'a dyn CopyableLog,
    target: &'a dyn CopyableLog,
    has_waited: bool,
}

impl<'a> Copier<'a> {
    pub(super) fn new(source: &'a dyn CopyableLog, target: &'a dyn CopyableLog) -> Self {
        Self { source, target, has_waited: false }
    }

    /// Copies the session of `record`. Calls `on_compared` with the number of further events that are the same.
    pub(super) async fn copy(
        &mut self,
        record: &SessionRecord,
        mut on_compared: impl FnMut(u64),
    ) -> Result<SessionCopy, CopyError> {
        let id = &record.id;
        let in_target = match self.target.session(id).await {
            Ok(record) => Some(record),
            Err(LogError::UnknownSession(_)) => None,
            Err(error) => return Err(CopyError::Target(error)),
        };
        let target_head = in_target.as_ref().map_or(Seq::START, |record| record.head);
        let common = target_head.min(record.head);
        let mut at = Seq::START;
        while at < common {
            let count = batch_size(at, common);
            let events = match self.read_source(id, at, count).await? {
                Ok(events) => events,
                Err(unreadable) => return Ok(unreadable),
            };
            if let Some(seq) = self.first_difference(id, at, &events).await? {
                return Ok(SessionCopy::Differs { seq });
            }
            on_compared(events.len() as u64);
            at = Seq(at.0 + events.len() as u64);
        }
        let new_events = record.head.0.saturating_sub(target_head.0);
        let target_only = target_head.0.saturating_sub(record.head.0);
        let complete = SessionCopy::Complete { new_events, target_only };
        if new_events == 0 {
            // After a kill between the last event and the text that follows it, the text is still missing.
            if target_only == 0 && self.lacks_partial_text(id).await? {
                match self.acquire(id).await? {
                    Ok(lease) => self.copy_partial_text(id, &lease).await?,
                    Err(held) => return Ok(held),
                }
            }
        } else {
            let lease = match self.acquire(id).await? {
                Ok(lease) => lease,
                Err(held) => return Ok(held),
            };
            if let Some(stopped) = self.append(record, at, &lease, &mut on_compared).await? {
                return Ok(stopped);
            }
            self.copy_partial_text(id, &lease).await?;
            self.target.release(lease).await.map_err(CopyError::Target)?;
        }
        if target_only > 0 || self.target.session(id).await.map_err(CopyError::Target)? == *record {
            Ok(complete)
        } else {
            Ok(SessionCopy::RecordDiffers)
        }
    }

    /// Appends the events after `at`, and reads each back. Returns why it ended early, if it did.
    async fn append(
        &self,
        record: &SessionRecord,
        mut at: Seq,
        lease: &Lease,
        on_compared: &mut impl FnMut(u64),
    ) -> Result<Option<SessionCopy>, CopyError> {
        let id = &record.id;
        while at < record.head {
            let events = match self.read_source(id, at, batch_size(at, record.head)).await? {
                Ok(events) => events,
                Err(unreadable) => return Ok(Some(unreadable)),
            };
            match self.target.append_stored(lease, at, events.clone()).await {
                Ok(_) => {}
                Err(LogError::Unreadable { seq, reason, .. }) => {
                    return Ok(Some(SessionCopy::Unreadable { seq, reason }));
                }
                // Somebody wrote to the session between the comparison and the lease.
                Err(LogError::Conflict { .. }) => {
                    return Ok(Some(SessionCopy::Differs { seq: Seq(at.0 + 1) }));
                }
                Err(error) => return Err(CopyError::Target(error)),
            }
            if let Some(seq) = self.first_difference(id, at, &events).await? {
                return Ok(Some(SessionCopy::Differs { seq }));
            }
            on_compared(events.len() as u64);
            at = Seq(at.0 + events.len() as u64);
        }
        Ok(None)
    }

    /// Reads at least one event of the source.
    async fn read_source(
        &self,
        id: &SessionId,
        after: Seq,
        count: usize,
    ) -> Result<Result<Vec<StoredEvent>, SessionCopy>, CopyError> {
        match self.source.stored_events(id, after, count).await {
            Ok(events) if events.is_empty() => {
                let (seq, reason) = (Seq(after.0 + 1), "it is missing in the source".to_owned());
                Ok(Err(SessionCopy::Unreadable { seq, reason }))
            }
            Ok(events) => Ok(Ok(events)),
            Err(LogError::Unreadable { seq, reason, .. }) => Ok(Err(SessionCopy::Unreadable { seq, reason })),
            Err(error) => Err(CopyError::Source(error)),
        }
    }

    /// The number of the first of `events`, which follow `after`, that is not the same in the target.
    async fn first_difference(
        &self,
        id: &SessionId,
        after: Seq,
        events: &[StoredEvent],
    ) -> Result<Option<Seq>, CopyError> {
        let mut rest = events;
        let mut at = after;
        while !rest.is_empty() {
            let found = match self.target.stored_events(id, at, rest.len()).await {
                Ok(found) => found,
                // Deleted, or damaged.
                Err(LogError::UnknownSession(_)) => Vec::new(),
                Err(LogError::Unreadable { seq, .. }) => return Ok(Some(seq)),
                Err(error) => return Err(CopyError::Target(error)),
            };
            let same = rest.iter().zip(&found).take_while(|(left, right)| left == right).count();
            at = Seq(at.0 + same as u64);
            rest = rest.get(same..).unwrap_or_default();
            // A read may be shorter than asked for, but it is not empty.
            if !rest.is_empty() && (same < found.len() || found.is_empty()) {
                return Ok(Some(Seq(at.0 + 1)));
            }
        }
        Ok(None)
    }

    /// Takes the lease of a session in the target, or says who has it.
    async fn acquire(&mut self, id: &SessionId) -> Result<Result<Lease, SessionCopy>, CopyError> {
        let deadline = Instant::now() + HELD_WAIT;
        loop {
            match self.target.acquire(id).await {
                Ok(lease) => return Ok(Ok(lease)),
                Err(LogError::Held { by, .. }) if self.has_waited || Instant::now() >= deadline => {
                    self.has_waited = true;
                    return Ok(Err(SessionCopy::Held { by }));
                }
                Err(LogError::Held { .. }) => sleep(HELD_RETRY).await,
                Err(error) => return Err(CopyError::Target(error)),
            }
        }
    }

    async fn lacks_partial_text(&self, id: &SessionId) -> Result<bool, CopyError> {
        let in_source = self.source.partial_message(id).await.map_err(CopyError::Source)?;
        Ok(in_source.is_some() && self.target.partial_message(id).await.map_err(CopyError::Target)?.is_none())
    }

    /// Copies the text of a message that was being written when its process ended.
    async fn copy_partial_text(&self, id: &SessionId, lease: &Lease) -> Result<(), CopyError> {
        let partial = self.source.partial_message(id).await.map_err(CopyError::Source)?;
        let Some(partial) = partial else { return Ok(()) };
        let part = PartialText { message: &partial.message, start: 0, text: &partial.text };
        self.target.keep_partial_text(lease, part).await.map_err(CopyError::Target)
    }
}

fn batch_size(at: Seq, end: Seq) -> usize {
    usize::try_from(end.0 - at.0).unwrap_or(usize::MAX).min(COPY_EVENTS)
}
