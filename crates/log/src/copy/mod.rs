//! Copies all sessions of one log to another, and compares them event by event.
//!
//! Events are copied in their stored form, so that nothing is lost that this version does not interpret. Everything that is
//! in the target already is compared with the source. A session that differs is left as it is. A copy that was interrupted
//! is continued by a second one.
//!
//! The source must not change meanwhile: [`copy_log`] refuses one that another process uses, and fails if its list of
//! sessions is another one at the end. The target may be in use.

mod session;

use async_trait::async_trait;
use parlor_vocab::{EventId, NewEntry, Seq, SessionId, Timestamp};

use crate::row::{Decoder, Row};
use crate::{EventLog, Lease, LeaseHolder, LogError, MAX_PAGE, PageRequest, UsageLine};

pub use session::{COPY_EVENTS, HELD_WAIT};

/// An event in the form in which a log stores it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredEvent {
    pub(crate) seq: Seq,
    pub(crate) id: EventId,
    pub(crate) at: Timestamp,
    pub(crate) row: Row,
}

impl StoredEvent {
    /// The event for the log that stores it next, with its stored form.
    pub(crate) fn decode(
        self,
        session: &SessionId,
        decoder: &mut Decoder,
    ) -> Result<(NewEntry, Row), LogError> {
        let Self { seq, id, at, row } = self;
        match decoder.decode(row.version, &row.body) {
            Ok(event) => Ok((NewEntry { id, at, event }, row)),
            Err(error) => {
                Err(LogError::Unreadable { session: session.clone(), seq, reason: error.to_string() })
            }
        }
    }
}

/// A log that can be copied, and to which others can be copied.
#[async_trait]
pub trait CopyableLog: EventLog {
    /// Like [`EventLog::read`], but does not interpret the events. Stops at an event whose number does not follow.
    async fn stored_events(
        &self,
        session: &SessionId,
        after: Seq,
        max: usize,
    ) -> Result<Vec<StoredEvent>, LogError>;

    /// Like [`EventLog::append`], for events of another log. Fails with `Unreadable` if one cannot be interpreted, because
    /// the record of the session could not be computed.
    async fn append_stored(
        &self,
        lease: &Lease,
        after: Seq,
        events: Vec<StoredEvent>,
    ) -> Result<Seq, LogError>;

    /// Raises each number of these lines that is smaller in this log. Appends count the usage of their events; this is for
    /// sessions that were deleted before.
    async fn raise_usage(&self, lines: &[UsageLine]) -> Result<(), LogError>;

    /// Another process that has this log open, if the log knows any.
    async fn other_user(&self) -> Result<Option<String>, LogError>;
}

/// What a copy reports while it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CopyProgress<'a> {
    /// The size of the source.
    Source {
        /// The number of sessions.
        sessions: u64,
        /// The number of events.
        events: u64,
    },
    /// So many more events are known to be the same in both logs.
    Compared {
        /// The number of events since the last report.
        events: u64,
    },
    /// A session is done.
    Session {
        /// The session.
        id: &'a SessionId,
        /// What became of it.
        outcome: &'a SessionCopy,
    },
}

/// What became of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionCopy {
    /// The target has all events of the source, and this many of them are new.
    Complete {
        /// The number of events that this copy has appended.
        new_events: u64,
        /// The number of events that only the target has: the session went on there.
        target_only: u64,
    },
    /// An event of the target is missing or not the same. The session was left as it is.
    Differs {
        /// The number of the first such event.
        seq: Seq,
    },
    /// The events are the same, but the target's record of the session is not.
    RecordDiffers,
    /// A process uses the session in the target, and there are new events for it.
    Held {
        /// That process.
        by: LeaseHolder,
    },
    /// The source cannot be read completely. The events before are copied.
    Unreadable {
        /// The number of the event that cannot be read.
        seq: Seq,
        /// Why it cannot be read.
        reason: String,
    },
}

impl SessionCopy {
    /// Whether everything of the session is in the target.
    pub fn is_complete(&self) -> bool {
        matches!(self, Self::Complete { .. })
    }
}

/// What a copy has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopyReport {
    /// The number of sessions of the source.
    pub sessions: u64,
    /// How many of them got new events.
    pub copied_sessions: u64,
    /// The number of events that were appended.
    pub copied_events: u64,
    /// How many events were compared and found to be the same.
    pub compared_events: u64,
    /// The number of sessions that are not complete in the target.
    pub incomplete_sessions: u64,
}

/// Why a copy ended early. What was copied stays, and the next copy continues there.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// Another process has the source open.
    #[error("{user} uses the source; end it and try again")]
    SourceInUse {
        /// That process.
        user: String,
    },
    /// The list of sessions in the source is not the one of the beginning.
    #[error(
        "the source changed while it was copied; end what writes to it and copy again, which copies only what is new"
    )]
    SourceChanged,
    /// The source failed.
    #[error("the source: {0}")]
    Source(LogError),
    /// The target failed.
    #[error("the target: {0}")]
    Target(LogError),
}

/// Copies all sessions and the usage of `source` to `target`. See the module for what is compared.
pub async fn copy_log(
    source: &dyn CopyableLog,
    target: &dyn CopyableLog,
    mut on_progress: impl FnMut(CopyProgress<'_>),
) -> Result<CopyReport, CopyError> {
    if let Some(user) = source.other_user().await.map_err(CopyError::Source)? {
        return Err(CopyError::SourceInUse { user });
    }
    let before = SourceSize::of(source).await?;
    on_progress(CopyProgress::Source { sessions: before.sessions, events: before.events });
    let mut report = CopyReport { sessions: before.sessions, ..CopyReport::default() };
    let mut copier = session::Copier::new(source, target);
    let mut request = PageRequest::first(MAX_PAGE);
    loop {
        let page = source.sessions(request.clone()).await.map_err(CopyError::Source)?;
        for record in &page.records {
            let outcome = copier
                .copy(record, |events| {
                    report.compared_events += events;
                    on_progress(CopyProgress::Compared { events });
                })
                .await?;
            match outcome {
                SessionCopy::Complete { new_events, .. } => {
                    report.copied_sessions += u64::from(new_events > 0);
                    report.copied_events += new_events;
                }
                SessionCopy::Differs { .. }
                | SessionCopy::RecordDiffers
                | SessionCopy::Held { .. }
                | SessionCopy::Unreadable { .. } => report.incomplete_sessions += 1,
            }
            on_progress(CopyProgress::Session { id: &record.id, outcome: &outcome });
        }
        match page.next {
            Some(next) => request.after = Some(next),
            None => break,
        }
    }
    let usage = source.usage(i64::MIN).await.map_err(CopyError::Source)?;
    target.raise_usage(&usage).await.map_err(CopyError::Target)?;
    if SourceSize::of(source).await? != before {
        return Err(CopyError::SourceChanged);
    }
    Ok(report)
}

/// What shows that a log has changed: every append changes the number of events, every deletion that of sessions.
#[derive(Default, PartialEq, Eq)]
struct SourceSize {
    sessions: u64,
    events: u64,
    last_update: Option<Timestamp>,
}

impl SourceSize {
    async fn of(source: &dyn CopyableLog) -> Result<Self, CopyError> {
        let mut size = Self::default();
        let mut request = PageRequest::first(MAX_PAGE);
        loop {
            let page = source.sessions(request.clone()).await.map_err(CopyError::Source)?;
            for record in &page.records {
                size.sessions += 1;
                size.events += record.head.0;
                size.last_update = size.last_update.max(Some(record.updated));
            }
            match page.next {
                Some(next) => request.after = Some(next),
                None => return Ok(size),
            }
        }
    }
}
