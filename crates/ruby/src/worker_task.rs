//! The task that owns the worker and runs calls on it one after another, in the order in which they came.
//!
//! All calls share one interpreter: what one call defines, the next one sees, whichever client makes it.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, Sleep, sleep};
use tokio_util::sync::CancellationToken;

use crate::channel::WorkerLoss;
use crate::worker::{DeadWorker, Worker, connect_in_time};
use crate::{PrintedOutput, RubyAnswer, RubyError, RubySettings, RubySource, START_TRIES, WorkerLosses};

/// A call in the queue.
pub(crate) struct Job {
    pub(crate) kind: JobKind,
    pub(crate) cancel: CancellationToken,
    pub(crate) claim: Claim,
    pub(crate) answer: oneshot::Sender<RubyAnswer>,
}

/// Decides whether the worker task takes a job or its caller cancels it: the first to take the claim wins.
#[derive(Clone, Debug, Default)]
pub(crate) struct Claim(Arc<AtomicBool>);

impl Claim {
    /// Takes the claim. Returns whether nobody had taken it before.
    pub(crate) fn take(&self) -> bool {
        !self.0.swap(true, Ordering::Relaxed)
    }
}

/// What a job does.
pub(crate) enum JobKind {
    Evaluate(RubySource),
    /// Start a worker if none is up.
    Prepare,
    /// Replace the worker with a new one.
    Replace,
}

/// The state of the task: the worker, and what is known about lost ones.
pub(crate) struct WorkerTask {
    settings: RubySettings,
    stop: CancellationToken,
    worker: Option<Worker>,
    /// Why a worker was lost between calls, until an answer has reported it.
    restart_reason: Option<String>,
    losses: WorkerLosses,
    /// The time limit of the current evaluation. Reused for all calls, because a new timer would wake the runtime
    /// each time.
    deadline: Pin<Box<Sleep>>,
}

/// Why a job was interrupted.
enum Interrupted {
    Cancelled,
    Stopped,
}

impl WorkerTask {
    pub(crate) fn new(settings: RubySettings, stop: CancellationToken) -> Self {
        let deadline = Box::pin(sleep(settings.time_limit));
        Self { settings, stop, worker: None, restart_reason: None, losses: WorkerLosses::default(), deadline }
    }

    /// Runs jobs until the host is stopped or dropped. Jobs that still wait are dropped with their answer channels,
    /// which wakes their callers.
    pub(crate) async fn run(mut self, mut jobs: mpsc::Receiver<Job>) {
        loop {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => break,
                loss = wait_for_loss(&mut self.worker) => self.on_idle_loss(loss).await,
                job = jobs.recv() => match job {
                    Some(job) => self.serve(job).await,
                    None => break,
                },
            }
        }
        drop(jobs);
        if let Some(worker) = self.worker.take() {
            worker.end().await;
        }
    }

    async fn serve(&mut self, job: Job) {
        let Job { kind, cancel, claim, answer } = job;
        // The caller no longer waits, or has cancelled the job.
        if answer.is_closed() || !claim.take() {
            return;
        }
        let (outcome, output) = self.run_job(kind, &cancel).await;
        // The code has run even if the caller no longer waits.
        let _ = answer.send(RubyAnswer {
            outcome,
            output,
            restart_reason: self.restart_reason.take(),
            losses: Some(self.losses.clone()),
        });
    }

    async fn run_job(
        &mut self,
        kind: JobKind,
        cancel: &CancellationToken,
    ) -> (Result<String, RubyError>, PrintedOutput) {
        let nothing = PrintedOutput::default();
        if matches!(kind, JobKind::Replace)
            && let Some(worker) = self.worker.take()
        {
            worker.end().await;
            self.count_loss("a client had it restarted");
        }
        let stop = self.stop.clone();
        match unless_interrupted(self.ensure_worker(), cancel, &stop).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return (Err(error), nothing),
            Err(Interrupted::Cancelled) => return (Err(RubyError::Cancelled { started: false }), nothing),
            Err(Interrupted::Stopped) => return (Err(RubyError::Stopped { started: false }), nothing),
        }
        match kind {
            JobKind::Evaluate(source) => self.evaluate(&source, cancel).await,
            JobKind::Prepare | JobKind::Replace => (Ok(String::new()), nothing),
        }
    }

    /// Starts a worker if there is none, and waits until it is up. Cancel safe.
    async fn ensure_worker(&mut self) -> Result<(), RubyError> {
        let mut tries = 0;
        loop {
            tries += 1;
            let worker = match &mut self.worker {
                Some(worker) => worker,
                none => none.insert(Worker::start(&self.settings)?),
            };
            let Err(loss) = connect_in_time(worker).await else { return Ok(()) };
            let worker = self.worker.take().expect("the worker that failed to connect");
            // The worker has not got any code, so another try is safe.
            let DeadWorker { reason, output, was_killed } = worker.reap(loss).await;
            if !was_killed || tries == START_TRIES {
                let printed = output.text();
                let printed = printed.trim_end();
                let reason =
                    if printed.is_empty() { reason } else { format!("{reason}; it said: {printed}") };
                return Err(RubyError::NotStarted { reason });
            }
        }
    }

    async fn evaluate(
        &mut self,
        source: &RubySource,
        cancel: &CancellationToken,
    ) -> (Result<String, RubyError>, PrintedOutput) {
        let mut worker = self.worker.take().expect("ensure_worker has started one");
        let limit = self.settings.time_limit;
        self.deadline.as_mut().reset(Instant::now() + limit);
        let evaluation = async {
            tokio::select! {
                biased;
                answered = worker.evaluate(source) => Some(answered),
                () = self.deadline.as_mut() => None,
            }
        };
        let error = match unless_interrupted(evaluation, cancel, &self.stop).await {
            Ok(Some(Ok(answered))) => {
                self.worker = Some(worker);
                return answered;
            }
            Ok(Some(Err(loss))) => {
                let DeadWorker { reason, output, .. } = worker.reap(loss).await;
                self.count_loss(&reason);
                self.start_spare();
                return (Err(RubyError::WorkerLost { reason }), output);
            }
            Ok(None) => RubyError::TimedOut { limit },
            Err(Interrupted::Cancelled) => RubyError::Cancelled { started: true },
            Err(Interrupted::Stopped) => RubyError::Stopped { started: true },
        };
        let output = worker.end().await;
        self.count_loss(if matches!(error, RubyError::TimedOut { .. }) {
            "a call took too long"
        } else {
            "a call was cancelled"
        });
        if !matches!(error, RubyError::Stopped { .. }) {
            self.start_spare();
        }
        (Err(error), output)
    }

    async fn on_idle_loss(&mut self, loss: WorkerLoss) {
        let Some(worker) = self.worker.take() else { return };
        // A worker that never came up is not started again here, or that would repeat forever. The next call reports
        // why.
        if worker.is_connected() {
            let reason = worker.reap(loss).await.reason;
            self.count_loss(&reason);
            self.restart_reason = Some(reason);
            self.start_spare();
        }
    }

    fn count_loss(&mut self, reason: &str) {
        self.losses = WorkerLosses { count: self.losses.count + 1, last_reason: Some(reason.into()) };
    }

    /// Starts a worker for the next call. An error is ignored: the next call tries again and reports it.
    fn start_spare(&mut self) {
        self.worker = Worker::start(&self.settings).ok();
    }
}

/// Waits until an idle worker is lost. Without a worker, waits forever.
async fn wait_for_loss(worker: &mut Option<Worker>) -> WorkerLoss {
    match worker {
        Some(worker) => worker.idle().await,
        None => std::future::pending().await,
    }
}

/// The result of `future`, unless the job is cancelled or the host stopped before.
async fn unless_interrupted<T>(
    future: impl Future<Output = T>,
    cancel: &CancellationToken,
    stop: &CancellationToken,
) -> Result<T, Interrupted> {
    tokio::select! {
        biased;
        done = future => Ok(done),
        () = cancel.cancelled() => Err(Interrupted::Cancelled),
        () = stop.cancelled() => Err(Interrupted::Stopped),
    }
}
