//! [`RubyHost`], the handle that callers use.

use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::worker_task::{Claim, Job, JobKind, WorkerTask};
use crate::{Evaluation, MAX_CODE_BYTES, MAX_WAITING, RubyAnswer, RubyError, RubySettings, WorkerLosses};

/// Evaluates Ruby code. Clones share one worker and one queue; dropping the last clone ends the worker.
#[derive(Clone, Debug)]
pub struct RubyHost {
    jobs: mpsc::Sender<Job>,
    stop: CancellationToken,
    stopped: CancellationToken,
}

impl RubyHost {
    /// Creates a host. No worker runs until the first call.
    ///
    /// Must be called within a tokio runtime whose threads live as long as the program, because a worker ends with
    /// the thread that started it.
    pub fn new(settings: RubySettings) -> Self {
        let (jobs, waiting) = mpsc::channel(MAX_WAITING);
        let stop = CancellationToken::new();
        let stopped = CancellationToken::new();
        let (task, on_end) = (WorkerTask::new(settings, stop.clone()), stopped.clone().drop_guard());
        tokio::spawn(async move {
            task.run(waiting).await;
            drop(on_end);
        });
        Self { jobs, stop, stopped }
    }

    /// Evaluates code, after all earlier calls.
    ///
    /// Dropping the future of a waiting call removes it from the queue. A running call continues to its end.
    pub async fn evaluate(&self, evaluation: Evaluation) -> RubyAnswer {
        let Evaluation { source, cancel } = evaluation;
        if source.size() > MAX_CODE_BYTES {
            let error = RubyError::CodeTooLarge { bytes: source.size(), limit: MAX_CODE_BYTES };
            return RubyAnswer::refusal(error);
        }
        self.submit(JobKind::Evaluate(source), cancel).await
    }

    /// Starts a worker if none is up. Waits in the queue like an evaluation.
    pub async fn prepare(&self) -> Result<(), RubyError> {
        self.submit(JobKind::Prepare, CancellationToken::new()).await.outcome.map(|_| ())
    }

    /// Replaces the worker with a new one, so everything that earlier calls defined is gone. Waits in the queue like
    /// an evaluation. Returns the losses up to now, with the replaced worker.
    pub async fn replace_worker(&self) -> Result<WorkerLosses, RubyError> {
        let answer = self.submit(JobKind::Replace, CancellationToken::new()).await;
        answer.outcome.map(|_| answer.losses.unwrap_or_default())
    }

    /// Ends the worker. Calls that run, wait or come later are answered with [`RubyError::Stopped`]. Returns when the
    /// worker has ended.
    pub async fn stop(&self) {
        self.stop.cancel();
        self.stopped.cancelled().await;
    }

    async fn submit(&self, kind: JobKind, cancel: CancellationToken) -> RubyAnswer {
        let claim = Claim::default();
        let (answer, mut answered) = oneshot::channel();
        let job = Job { kind, cancel: cancel.clone(), claim: claim.clone(), answer };
        match self.jobs.try_send(job) {
            Ok(()) => {}
            Err(mpsc::error::TrySendError::Full(_)) => {
                return RubyAnswer::refusal(RubyError::TooManyWaiting { limit: MAX_WAITING });
            }
            Err(mpsc::error::TrySendError::Closed(_)) => {
                return RubyAnswer::refusal(RubyError::Stopped { started: false });
            }
        }
        let answer = tokio::select! {
            biased;
            answer = &mut answered => answer,
            () = cancel.cancelled() => {
                if claim.take() {
                    return RubyAnswer::refusal(RubyError::Cancelled { started: false });
                }
                // The worker task has taken the job, and handles the cancellation.
                answered.await
            }
        };
        // The worker task answers every job that it takes. If it has ended, the host has stopped.
        answer.unwrap_or_else(|_| RubyAnswer::refusal(RubyError::Stopped { started: false }))
    }
}
