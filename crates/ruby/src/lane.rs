//! The one task that has a worker: it serves calls one after another, in the order in which they came.
//!
//! One interpreter, one lane: what one call defines the next one sees, whoever makes it.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, Sleep, sleep};
use tokio_util::sync::CancellationToken;

use crate::channel::Lost;
use crate::worker::{DeadWorker, Worker, connect_in_time};
use crate::{PrintedOutput, RubyAnswer, RubyError, RubySettings, RubySource, START_TRIES};

/// A call that waits for its turn.
pub(crate) struct Job {
    pub(crate) work: Work,
    pub(crate) cancel: CancellationToken,
    pub(crate) claim: Claim,
    pub(crate) answer: oneshot::Sender<RubyAnswer>,
}

/// Decides between the lane, which takes a job, and its caller, who gives it up.
#[derive(Clone, Debug, Default)]
pub(crate) struct Claim(Arc<AtomicBool>);

impl Claim {
    /// Whether it was the first to ask.
    pub(crate) fn take(&self) -> bool {
        !self.0.swap(true, Ordering::Relaxed)
    }
}

/// What can be wanted of the lane.
pub(crate) enum Work {
    Evaluate(RubySource),
    /// To have a worker that is up.
    Prepare,
    /// To have another worker than before, one that is up.
    Replace,
}

pub(crate) struct Lane {
    settings: RubySettings,
    stop: CancellationToken,
    worker: Option<Worker>,
    /// How a worker was lost between calls, until a call is told.
    lost_before: Option<String>,
    /// When the current evaluation must be over. Kept from call to call: a new timer would wake the
    /// runtime each time.
    deadline: Pin<Box<Sleep>>,
}

/// What keeps a call from its end.
enum Interrupted {
    Cancelled,
    Stopped,
}

impl Lane {
    pub(crate) fn new(settings: RubySettings, stop: CancellationToken) -> Self {
        let deadline = Box::pin(sleep(settings.time_limit));
        Self { settings, stop, worker: None, lost_before: None, deadline }
    }

    /// Serves until the host is stopped or dropped. Jobs that still wait are dropped with their
    /// answers, which tells who waits for these.
    pub(crate) async fn run(mut self, mut jobs: mpsc::Receiver<Job>) {
        loop {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => break,
                lost = idle(&mut self.worker) => self.lose_idle(lost).await,
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
        let Job { work, cancel, claim, answer } = job;
        // Nobody waits for it any more, or it was given up.
        if answer.is_closed() || !claim.take() {
            return;
        }
        let (outcome, output) = self.perform(work, &cancel).await;
        // Nobody to tell is fine: the code has run all the same.
        let _ = answer.send(RubyAnswer { outcome, output, lost_before: self.lost_before.take() });
    }

    async fn perform(
        &mut self,
        work: Work,
        cancel: &CancellationToken,
    ) -> (Result<String, RubyError>, PrintedOutput) {
        let nothing = PrintedOutput::default();
        if matches!(work, Work::Replace)
            && let Some(worker) = self.worker.take()
        {
            worker.end().await;
        }
        let stop = self.stop.clone();
        match uninterrupted(self.ready(), cancel, &stop).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return (Err(error), nothing),
            Err(Interrupted::Cancelled) => return (Err(RubyError::Cancelled { started: false }), nothing),
            Err(Interrupted::Stopped) => return (Err(RubyError::Stopped), nothing),
        }
        match work {
            Work::Evaluate(source) => self.evaluate(&source, cancel).await,
            Work::Prepare | Work::Replace => (Ok(String::new()), nothing),
        }
    }

    /// Sees to it that there is a worker and that it is up. Cancel safe.
    async fn ready(&mut self) -> Result<(), RubyError> {
        let mut tries = 0;
        loop {
            tries += 1;
            let worker = match &mut self.worker {
                Some(worker) => worker,
                none => none.insert(Worker::start(&self.settings)?),
            };
            let Err(lost) = connect_in_time(worker).await else { return Ok(()) };
            let worker = self.worker.take().expect("it was there a moment ago");
            // It has not been given any code, so there is no harm in another try.
            let DeadWorker { reason, output, was_killed } = worker.bury(lost).await;
            if !was_killed || tries == START_TRIES {
                let said = output.text();
                let said = said.trim_end();
                let reason = if said.is_empty() { reason } else { format!("{reason}; it said: {said}") };
                return Err(RubyError::NotStarted { reason });
            }
        }
    }

    async fn evaluate(
        &mut self,
        source: &RubySource,
        cancel: &CancellationToken,
    ) -> (Result<String, RubyError>, PrintedOutput) {
        let mut worker = self.worker.take().expect("one was made ready");
        let limit = self.settings.time_limit;
        self.deadline.as_mut().reset(Instant::now() + limit);
        let evaluation = async {
            tokio::select! {
                biased;
                answered = worker.evaluate(source) => Some(answered),
                () = self.deadline.as_mut() => None,
            }
        };
        let error = match uninterrupted(evaluation, cancel, &self.stop).await {
            Ok(Some(Ok(answered))) => {
                self.worker = Some(worker);
                return answered;
            }
            Ok(Some(Err(lost))) => {
                let DeadWorker { reason, output, .. } = worker.bury(lost).await;
                self.warm_up();
                return (Err(RubyError::WorkerLost { reason }), output);
            }
            Ok(None) => RubyError::TimedOut { limit },
            Err(Interrupted::Cancelled) => RubyError::Cancelled { started: true },
            Err(Interrupted::Stopped) => RubyError::Stopped,
        };
        let output = worker.end().await;
        if error != RubyError::Stopped {
            self.warm_up();
        }
        (Err(error), output)
    }

    async fn lose_idle(&mut self, lost: Lost) {
        let Some(worker) = self.worker.take() else { return };
        // One that never came up would be started for ever; the next call tells why it does not.
        if worker.is_connected() {
            self.lost_before = Some(worker.bury(lost).await.reason);
            self.warm_up();
        }
    }

    /// Starts a worker for whoever comes next. If that fails, the next call will try and say so.
    fn warm_up(&mut self) {
        self.worker = Worker::start(&self.settings).ok();
    }
}

/// Waits for the loss of a worker, if there is one.
async fn idle(worker: &mut Option<Worker>) -> Lost {
    match worker {
        Some(worker) => worker.idle().await,
        None => std::future::pending().await,
    }
}

/// What `future` gives, unless it is interrupted before.
async fn uninterrupted<T>(
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
