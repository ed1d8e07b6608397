//! A log that counts in the metrics what sessions append to another log. It changes nothing.

use std::collections::{BTreeSet, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use async_trait::async_trait;
use parlor_log::{
    Erased, EventLog, Lease, LeaseHolder, LogError, Page, PageRequest, Reclaimed, SessionRecord, UsageLine,
};
use parlor_vocab::{
    Entry, EventId, MediaId, NewEntry, RunEnding, RunEvent, RunId, Seq, SessionEvent, SessionId,
};
use tokio::sync::watch;

use crate::metrics::{Metrics, OutcomeLabel};
use crate::readiness::Readiness;

/// How many runs the gauges count at most.
const COUNTED_RUNS: usize = 65_536;

/// Another log whose appends are counted and timed.
pub struct MeasuredLog {
    log: Arc<dyn EventLog>,
    metrics: Arc<Metrics>,
    readiness: Arc<Readiness>,
    runs: Mutex<UnfinishedRuns>,
}

/// The runs of this process that have not ended.
#[derive(Default)]
struct UnfinishedRuns {
    /// Runs whose input waits for the run before it.
    queued: HashSet<RunId>,
    active: HashSet<RunId>,
}

impl MeasuredLog {
    /// Counts in `metrics`, and reports failed writes to `readiness`.
    pub fn new(log: Arc<dyn EventLog>, metrics: Arc<Metrics>, readiness: Arc<Readiness>) -> Self {
        Self { log, metrics, readiness, runs: Mutex::default() }
    }

    fn count(&self, session: &SessionId, appended: &[NewEntry]) {
        let metrics = &self.metrics;
        metrics.events.inc_by(appended.len() as u64);
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        for entry in appended {
            match &entry.event {
                SessionEvent::Queued(queued) => insert(&mut runs.queued, &queued.run),
                SessionEvent::Unqueued { runs: gone } => {
                    for run in gone {
                        runs.queued.remove(run);
                    }
                }
                SessionEvent::Run { run, event: RunEvent::Started { .. }, .. } => {
                    tracing::info!(session = session.as_str(), run = run.as_str(), "run started");
                    metrics.runs_started.inc();
                    runs.queued.remove(run);
                    insert(&mut runs.active, run);
                }
                SessionEvent::Run { run, event: RunEvent::Ended { ending, .. }, .. } => {
                    let outcome = match ending {
                        RunEnding::Completed { .. } => "completed",
                        RunEnding::Failed(_) => "failed",
                        RunEnding::Stopped { .. } => "stopped",
                    };
                    tracing::info!(session = session.as_str(), run = run.as_str(), outcome, "run ended");
                    metrics.runs_ended.get_or_create(&OutcomeLabel { outcome }).inc();
                    runs.active.remove(run);
                }
                SessionEvent::Run { .. }
                | SessionEvent::Created(_)
                | SessionEvent::Renamed { .. }
                | SessionEvent::AgentChosen(_)
                | SessionEvent::Cleared
                | SessionEvent::Compacted { .. }
                | SessionEvent::MessageAdded(_) => {}
            }
        }
        let gauge = |runs: &HashSet<RunId>| i64::try_from(runs.len()).unwrap_or(i64::MAX);
        metrics.inputs_waiting.set(gauge(&runs.queued));
        metrics.runs_active.set(gauge(&runs.active));
    }
}

fn insert(runs: &mut HashSet<RunId>, run: &RunId) {
    if runs.len() < COUNTED_RUNS {
        runs.insert(run.clone());
    }
}

#[async_trait]
impl EventLog for MeasuredLog {
    async fn append(&self, lease: &Lease, after: Seq, new: &[NewEntry]) -> Result<Seq, LogError> {
        let started = Instant::now();
        let append = PendingAppend::start(&self.metrics);
        let appended = self.log.append(lease, after, new).await;
        drop(append);
        self.metrics.append_seconds.observe(started.elapsed().as_secs_f64());
        match &appended {
            Ok(_) => self.count(lease.session(), new),
            Err(error) => {
                self.metrics.appends_failed.inc();
                self.readiness.write_failed(error);
            }
        }
        appended
    }

    async fn read(&self, of: &SessionId, after: Seq, max: usize) -> Result<Vec<Entry>, LogError> {
        self.log.read(of, after, max).await
    }

    async fn find(&self, of: &SessionId, event: &EventId) -> Result<Option<Seq>, LogError> {
        self.log.find(of, event).await
    }

    fn head(&self, of: &SessionId) -> watch::Receiver<Seq> {
        self.log.head(of)
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
            self.readiness.write_failed(error);
        }
        acquired
    }

    async fn holder(&self, of: &SessionId) -> Result<Option<LeaseHolder>, LogError> {
        self.log.holder(of).await
    }

    async fn release(&self, lease: Lease) -> Result<(), LogError> {
        self.log.release(lease).await
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
}

/// Counts as an unfinished append until it is dropped, even if the caller gives up.
struct PendingAppend<'a>(&'a Metrics);

impl<'a> PendingAppend<'a> {
    fn start(metrics: &'a Metrics) -> Self {
        metrics.appends_waiting.inc();
        Self(metrics)
    }
}

impl Drop for PendingAppend<'_> {
    fn drop(&mut self) {
        self.0.appends_waiting.dec();
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use parlor_log::{MemoryLog, SystemClock, TimeOrderedIds};
    use parlor_vocab::{Clock, IdSource, QueuedInput, UserInput};

    use super::*;

    #[test]
    fn the_number_of_counted_runs_has_a_limit() {
        let ids = TimeOrderedIds::new(Arc::new(SystemClock));
        let mut runs = HashSet::new();
        for _ in 0..=COUNTED_RUNS {
            insert(&mut runs, &RunId::generate(ids.next()));
        }
        assert_eq!(runs.len(), COUNTED_RUNS);
    }

    #[tokio::test]
    async fn runs_and_events_are_counted_as_they_become_durable() {
        let metrics = Arc::new(Metrics::default());
        let log = Arc::new(MemoryLog::new(Arc::new(SystemClock)));
        let readiness = Readiness::new(Arc::clone(&log) as _, Path::new("/"));
        let log = MeasuredLog::new(log, Arc::clone(&metrics), readiness);
        let ids = TimeOrderedIds::new(Arc::new(SystemClock));
        let new_entry = |event| NewEntry { id: EventId::generate(ids.next()), at: SystemClock.now(), event };
        let run = RunId::generate(ids.next());
        let ended = RunEvent::Ended { ending: RunEnding::Completed { message: None }, duration_ms: 1 };
        let started = RunEvent::Started {
            parent: None,
            agent: parlor_vocab::AgentId::parse("a").unwrap(),
            model: None,
            input: UserInput::default(),
            message: parlor_vocab::MessageId::generate(ids.next()),
        };
        let in_run = |event, sequence| new_entry(SessionEvent::Run { run: run.clone(), sequence, event });
        let session = SessionId::parse("s").unwrap();
        let lease = log.acquire(&session).await.unwrap();
        let queued =
            new_entry(SessionEvent::Queued(QueuedInput { run: run.clone(), input: UserInput::default() }));
        let head = log.append(&lease, Seq::START, &[queued]).await.unwrap();
        assert_eq!((metrics.inputs_waiting.get(), metrics.runs_active.get()), (1, 0));
        let head = log.append(&lease, head, &[in_run(started, 1)]).await.unwrap();
        assert_eq!((metrics.inputs_waiting.get(), metrics.runs_active.get()), (0, 1));
        log.append(&lease, head, &[in_run(ended.clone(), 2)]).await.unwrap();
        assert_eq!((metrics.runs_active.get(), metrics.events.get()), (0, 3));
        assert!(log.append(&lease, Seq::START, &[in_run(ended, 3)]).await.is_err());
        assert_eq!((metrics.events.get(), metrics.appends_failed.get()), (3, 1));
        assert_eq!(metrics.runs_ended.get_or_create(&OutcomeLabel { outcome: "completed" }).get(), 1);
        assert_eq!(metrics.appends_waiting.get(), 0);
    }
}
