//! Counts in the metrics what sessions append to the log.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use parlor_log::{EventLog, LogWrite, ObservedLog};
use parlor_vocab::{NewEntry, RunEnding, RunEvent, RunId, SessionEvent, SessionId, Timestamp};

use crate::metrics::{Metrics, OutcomeLabel};
use crate::readiness::Readiness;

/// How many runs the gauges count at most.
const COUNTED_RUNS: usize = 65_536;

/// Counts the writes of a log in the metrics, and reports failed ones to the readiness check.
pub struct LogMetrics {
    metrics: Arc<Metrics>,
    readiness: Arc<Readiness>,
    runs: Mutex<UnfinishedRuns>,
}

/// The runs of this process that have not ended.
#[derive(Default)]
struct UnfinishedRuns {
    /// Runs whose input waits for the run before it, and since when.
    queued: HashMap<RunId, Timestamp>,
    active: HashSet<RunId>,
}

impl LogMetrics {
    /// Counts in `metrics`, and reports failed writes to `readiness`.
    pub fn new(metrics: Arc<Metrics>, readiness: Arc<Readiness>) -> Self {
        Self { metrics, readiness, runs: Mutex::default() }
    }

    /// Wraps `log`, so that its writes are counted.
    pub fn observe(self, log: Arc<dyn EventLog>) -> ObservedLog {
        ObservedLog::new(log, Arc::new(move |write| self.on_write(write)))
    }

    fn on_write(&self, write: LogWrite<'_>) {
        let metrics = &self.metrics;
        match write {
            LogWrite::AppendStarted => {
                metrics.appends_waiting.inc();
            }
            LogWrite::AppendFinished => {
                metrics.appends_waiting.dec();
            }
            LogWrite::Appended { session, entries, time, error } => {
                metrics.append_seconds.observe(time.as_secs_f64());
                match error {
                    None => self.count(session, entries),
                    Some(error) => {
                        metrics.appends_failed.inc();
                        self.readiness.write_failed(error);
                    }
                }
            }
            LogWrite::AcquireFailed(error) => self.readiness.write_failed(error),
        }
    }

    fn count(&self, session: &SessionId, appended: &[NewEntry]) {
        let metrics = &self.metrics;
        metrics.events.inc_by(appended.len() as u64);
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        for entry in appended {
            match &entry.event {
                SessionEvent::Queued(queued) => {
                    if runs.queued.len() < COUNTED_RUNS {
                        runs.queued.insert(queued.run.clone(), entry.at);
                    }
                }
                SessionEvent::Unqueued { runs: gone } => {
                    for run in gone {
                        runs.queued.remove(run);
                    }
                }
                SessionEvent::Run { run, event: RunEvent::Started { .. }, .. } => {
                    tracing::info!(session = session.as_str(), run = run.as_str(), "run started");
                    metrics.runs_started.inc();
                    if let Some(since) = runs.queued.remove(run) {
                        metrics
                            .input_wait_seconds
                            .observe(entry.at.0.saturating_sub(since.0).max(0) as f64 / 1000.0);
                    }
                    insert(&mut runs.active, run);
                }
                SessionEvent::Run { run, event: RunEvent::Ended { ending, duration_ms }, .. } => {
                    let outcome = match ending {
                        RunEnding::Completed { .. } => "completed",
                        RunEnding::Failed(_) => "failed",
                        RunEnding::Stopped { .. } => "stopped",
                    };
                    tracing::info!(session = session.as_str(), run = run.as_str(), outcome, "run ended");
                    metrics.runs_ended.get_or_create(&OutcomeLabel { outcome }).inc();
                    metrics.run_seconds.observe(*duration_ms as f64 / 1000.0);
                    runs.active.remove(run);
                }
                SessionEvent::Run { event: RunEvent::UsageAdded { usage, .. }, .. } => {
                    metrics.add_usage(*usage)
                }
                SessionEvent::Run { .. }
                | SessionEvent::Created(_)
                | SessionEvent::Renamed { .. }
                | SessionEvent::AgentChosen(_)
                | SessionEvent::ModeChosen { .. }
                | SessionEvent::Cleared
                | SessionEvent::Compacted { .. }
                | SessionEvent::MessageAdded(_) => {}
            }
        }
        let gauge = |runs: usize| i64::try_from(runs).unwrap_or(i64::MAX);
        metrics.inputs_waiting.set(gauge(runs.queued.len()));
        metrics.runs_active.set(gauge(runs.active.len()));
    }
}

fn insert(runs: &mut HashSet<RunId>, run: &RunId) {
    if runs.len() < COUNTED_RUNS {
        runs.insert(run.clone());
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use parlor_log::{MemoryLog, SystemClock, TimeOrderedIds};
    use parlor_vocab::{Clock, EventId, IdSource, QueuedInput, Seq, Usage, UserInput};

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
        let log = LogMetrics::new(Arc::clone(&metrics), readiness).observe(log);
        let ids = TimeOrderedIds::new(Arc::new(SystemClock));
        let new_entry = |event| NewEntry { id: EventId::generate(ids.next()), at: SystemClock.now(), event };
        let run = RunId::generate(ids.next());
        let ended = RunEvent::Ended { ending: RunEnding::Completed { message: None }, duration_ms: 1 };
        let started = RunEvent::Started {
            parent: None,
            agent: parlor_vocab::AgentId::parse("a").unwrap(),
            model: None,
            missing_agent: None,
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
        let usage = Usage { input_tokens: 7, output_tokens: 2, cost_micros: 1_500_000, ..Usage::default() };
        let used = RunEvent::UsageAdded { usage, model: None };
        let head = log.append(&lease, head, &[in_run(used, 2)]).await.unwrap();
        log.append(&lease, head, &[in_run(ended.clone(), 3)]).await.unwrap();
        assert_eq!((metrics.runs_active.get(), metrics.events.get()), (0, 4));
        assert!(log.append(&lease, Seq::START, &[in_run(ended, 4)]).await.is_err());
        assert_eq!((metrics.events.get(), metrics.appends_failed.get()), (4, 1));
        let text = metrics.render();
        for line in [
            "parlor_input_wait_seconds_count 1",
            "parlor_run_seconds_count 1",
            "parlor_model_answers_total 1",
            "parlor_model_tokens_total{kind=\"input\"} 7",
            "parlor_model_tokens_total{kind=\"output\"} 2",
            "parlor_model_cost_dollars_total 1.5",
        ] {
            assert!(text.lines().any(|shown| shown == line), "{line} is not in\n{text}");
        }
        assert_eq!(metrics.runs_ended.get_or_create(&OutcomeLabel { outcome: "completed" }).get(), 1);
        assert_eq!(metrics.appends_waiting.get(), 0);
    }
}
