//! A log that counts what passes through it, for the metrics. It changes nothing.

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
use parlor_web::{Metrics, OutcomeLabel};
use tokio::sync::watch;

use super::readiness::Readiness;

/// How many runs are told apart; those beyond are not in the gauges.
const COUNTED_RUNS: usize = 65_536;

/// Another log, with a counter beside it.
pub(super) struct MeasuredLog {
    log: Arc<dyn EventLog>,
    metrics: Arc<Metrics>,
    readiness: Arc<Readiness>,
    runs: Mutex<Runs>,
}

/// The runs that this process has seen begin, and not end.
#[derive(Default)]
struct Runs {
    waiting: HashSet<RunId>,
    active: HashSet<RunId>,
}

impl MeasuredLog {
    pub(super) fn new(log: Arc<dyn EventLog>, metrics: Arc<Metrics>, readiness: Arc<Readiness>) -> Self {
        Self { log, metrics, readiness, runs: Mutex::default() }
    }

    fn count(&self, session: &SessionId, appended: &[NewEntry]) {
        let metrics = &self.metrics;
        metrics.events.inc_by(appended.len() as u64);
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        for draft in appended {
            match &draft.event {
                SessionEvent::Queued(queued) => keep(&mut runs.waiting, &queued.run),
                SessionEvent::Unqueued { runs: gone } => {
                    for run in gone {
                        runs.waiting.remove(run);
                    }
                }
                SessionEvent::Run { run, event: RunEvent::Started { .. }, .. } => {
                    tracing::info!(session = session.as_str(), run = run.as_str(), "run started");
                    metrics.runs_started.inc();
                    runs.waiting.remove(run);
                    keep(&mut runs.active, run);
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
                | SessionEvent::Chosen(_)
                | SessionEvent::Cleared
                | SessionEvent::Compacted { .. }
                | SessionEvent::MessageAdded(_) => {}
            }
        }
        let gauge = |runs: &HashSet<RunId>| i64::try_from(runs.len()).unwrap_or(i64::MAX);
        metrics.inputs_waiting.set(gauge(&runs.waiting));
        metrics.runs_active.set(gauge(&runs.active));
    }
}

fn keep(runs: &mut HashSet<RunId>, run: &RunId) {
    if runs.len() < COUNTED_RUNS {
        runs.insert(run.clone());
    }
}

#[async_trait]
impl EventLog for MeasuredLog {
    async fn append(&self, lease: &Lease, after: Seq, new: &[NewEntry]) -> Result<Seq, LogError> {
        let began = Instant::now();
        let waiting = Waiting::begin(&self.metrics);
        let appended = self.log.append(lease, after, new).await;
        drop(waiting);
        self.metrics.append_seconds.observe(began.elapsed().as_secs_f64());
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

/// An append that is under way, or was given up.
struct Waiting<'a>(&'a Metrics);

impl<'a> Waiting<'a> {
    fn begin(metrics: &'a Metrics) -> Self {
        metrics.appends_waiting.inc();
        Self(metrics)
    }
}

impl Drop for Waiting<'_> {
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
    fn the_runs_that_are_told_apart_have_a_limit() {
        let ids = TimeOrderedIds::new(Arc::new(SystemClock));
        let mut runs = HashSet::new();
        for _ in 0..=COUNTED_RUNS {
            keep(&mut runs, &RunId::generate(ids.next()));
        }
        assert_eq!(runs.len(), COUNTED_RUNS);
    }

    #[tokio::test]
    async fn runs_and_events_are_counted_as_they_become_durable() {
        let metrics = Arc::new(Metrics::default());
        let log = Arc::new(MemoryLog::new(Arc::new(SystemClock)));
        let readiness = Readiness::of(Arc::clone(&log) as _, Path::new("/"));
        let log = MeasuredLog::new(log, Arc::clone(&metrics), readiness);
        let ids = TimeOrderedIds::new(Arc::new(SystemClock));
        let draft = |event| NewEntry { id: EventId::generate(ids.next()), at: SystemClock.now(), event };
        let run = RunId::generate(ids.next());
        let ended = RunEvent::Ended { ending: RunEnding::Completed { message: None }, duration_ms: 1 };
        let started = RunEvent::Started {
            parent: None,
            agent: parlor_vocab::AgentId::parse("a").unwrap(),
            model: None,
            input: UserInput::default(),
            message: parlor_vocab::MessageId::generate(ids.next()),
        };
        let about = |event, sequence| draft(SessionEvent::Run { run: run.clone(), sequence, event });
        let session = SessionId::parse("s").unwrap();
        let lease = log.acquire(&session).await.unwrap();
        let queued =
            draft(SessionEvent::Queued(QueuedInput { run: run.clone(), input: UserInput::default() }));
        let head = log.append(&lease, Seq::START, &[queued]).await.unwrap();
        assert_eq!((metrics.inputs_waiting.get(), metrics.runs_active.get()), (1, 0));
        let head = log.append(&lease, head, &[about(started, 1)]).await.unwrap();
        assert_eq!((metrics.inputs_waiting.get(), metrics.runs_active.get()), (0, 1));
        log.append(&lease, head, &[about(ended.clone(), 2)]).await.unwrap();
        assert_eq!((metrics.runs_active.get(), metrics.events.get()), (0, 3));
        assert!(log.append(&lease, Seq::START, &[about(ended, 3)]).await.is_err());
        assert_eq!((metrics.events.get(), metrics.appends_failed.get()), (3, 1));
        assert_eq!(metrics.runs_ended.get_or_create(&OutcomeLabel { outcome: "completed" }).get(), 1);
        assert_eq!(metrics.appends_waiting.get(), 0);
    }
}
