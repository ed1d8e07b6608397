//! A log that reports its appends to an observer, for metrics. It changes nothing.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use parlor_vocab::{Entry, EventId, MediaId, NewEntry, Seq, SessionId};
use tokio::sync::watch;

use crate::{
    Erased, EventLog, Lease, LeaseHolder, LogError, NodeRecord, Page, PageRequest, PartialMessage,
    PartialText, Reclaimed, SessionRecord, SessionSnapshot, UsageLine,
};

/// A write to an [`ObservedLog`].
#[derive(Clone, Copy, Debug)]
pub enum LogWrite<'a> {
    /// An append starts.
    AppendStarted,
    /// An append is over: it succeeded, it failed, or its caller gave up.
    AppendFinished,
    /// An append succeeded or failed. Not reported if its caller gave up.
    Appended {
        /// The session that was appended to.
        session: &'a SessionId,
        /// The new entries.
        entries: &'a [NewEntry],
        /// How long the append took.
        time: Duration,
        /// Why it failed, if it did.
        error: Option<&'a LogError>,
    },
    /// The log could not acquire a lease.
    AcquireFailed(&'a LogError),
}

/// Is called for each write. The log waits for it, so it must be quick.
pub type ObserveWrite = Arc<dyn Fn(LogWrite<'_>) + Send + Sync>;

/// Another log whose writes are reported to an observer.
pub struct ObservedLog {
    log: Arc<dyn EventLog>,
    observe: ObserveWrite,
}

impl ObservedLog {
    /// Passes everything on to `log`, and reports writes to `observe`.
    pub fn new(log: Arc<dyn EventLog>, observe: ObserveWrite) -> Self {
        Self { log, observe }
    }
}

#[async_trait]
impl EventLog for ObservedLog {
    async fn append(&self, lease: &Lease, after: Seq, new: &[NewEntry]) -> Result<Seq, LogError> {
        let started = Instant::now();
        let unfinished = UnfinishedAppend::start(&self.observe);
        let appended = self.log.append(lease, after, new).await;
        drop(unfinished);
        let (session, time, error) = (lease.session(), started.elapsed(), appended.as_ref().err());
        (self.observe)(LogWrite::Appended { session, entries: new, time, error });
        appended
    }

    async fn keep_partial_text(&self, lease: &Lease, part: PartialText<'_>) -> Result<(), LogError> {
        self.log.keep_partial_text(lease, part).await
    }

    async fn partial_message(&self, session: &SessionId) -> Result<Option<PartialMessage>, LogError> {
        self.log.partial_message(session).await
    }

    async fn keep_snapshot(&self, lease: &Lease, snapshot: &SessionSnapshot) -> Result<(), LogError> {
        self.log.keep_snapshot(lease, snapshot).await
    }

    async fn snapshot(&self, session: &SessionId) -> Result<Option<SessionSnapshot>, LogError> {
        self.log.snapshot(session).await
    }

    async fn read(&self, session: &SessionId, after: Seq, max: usize) -> Result<Vec<Entry>, LogError> {
        self.log.read(session, after, max).await
    }

    async fn find(&self, session: &SessionId, event: &EventId) -> Result<Option<Seq>, LogError> {
        self.log.find(session, event).await
    }

    fn head(&self, session: &SessionId) -> watch::Receiver<Seq> {
        self.log.head(session)
    }

    async fn sessions(&self, page: PageRequest) -> Result<Page, LogError> {
        self.log.sessions(page).await
    }

    async fn session(&self, id: &SessionId) -> Result<SessionRecord, LogError> {
        self.log.session(id).await
    }

    async fn acquire(&self, session: &SessionId) -> Result<Lease, LogError> {
        let acquired = self.log.acquire(session).await;
        if let Err(error) = &acquired {
            (self.observe)(LogWrite::AcquireFailed(error));
        }
        acquired
    }

    fn lost(&self, lease: &Lease) -> watch::Receiver<bool> {
        self.log.lost(lease)
    }

    async fn holder(&self, session: &SessionId) -> Result<Option<LeaseHolder>, LogError> {
        self.log.holder(session).await
    }

    async fn release(&self, lease: Lease) -> Result<(), LogError> {
        self.log.release(lease).await
    }

    async fn abandon(&self, lease: Lease) -> Result<(), LogError> {
        self.log.abandon(lease).await
    }

    async fn orphans(&self) -> Result<Vec<SessionId>, LogError> {
        self.log.orphans().await
    }

    async fn nodes(&self) -> Result<Vec<NodeRecord>, LogError> {
        self.log.nodes().await
    }

    async fn delete(&self, lease: &Lease) -> Result<(), LogError> {
        self.log.delete(lease).await
    }

    async fn referenced_media(&self) -> Result<BTreeSet<MediaId>, LogError> {
        self.log.referenced_media().await
    }

    async fn usage(&self, since: i64) -> Result<Vec<UsageLine>, LogError> {
        self.log.usage(since).await
    }

    async fn erase(&self) -> Result<Erased, LogError> {
        self.log.erase().await
    }

    async fn check(&self) -> Result<(), LogError> {
        self.log.check().await
    }

    async fn size(&self) -> Result<u64, LogError> {
        self.log.size().await
    }

    async fn reclaim(&self) -> Result<Reclaimed, LogError> {
        self.log.reclaim().await
    }

    async fn close(&self) {
        self.log.close().await;
    }
}

/// Reports the end of an append when it is dropped, which also happens if the caller gives up.
struct UnfinishedAppend<'a>(&'a ObserveWrite);

impl<'a> UnfinishedAppend<'a> {
    fn start(observe: &'a ObserveWrite) -> Self {
        observe(LogWrite::AppendStarted);
        Self(observe)
    }
}

impl Drop for UnfinishedAppend<'_> {
    fn drop(&mut self) {
        (self.0)(LogWrite::AppendFinished);
    }
}
