//! The handle to the host.

use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::lane::{Claim, Job, Lane, Work};
use crate::{Evaluation, MAX_CODE_BYTES, MAX_WAITING, RubyAnswer, RubyError, RubySettings};

/// Evaluates Ruby. Clones share one worker and one queue; when the last one is dropped, the worker is
/// ended.
#[derive(Clone, Debug)]
pub struct RubyHost {
    jobs: mpsc::Sender<Job>,
    stop: CancellationToken,
    stopped: CancellationToken,
}

impl RubyHost {
    /// A host. Nothing runs until the first call.
    ///
    /// Must be called within a tokio runtime, whose threads live as long as the program: a worker ends
    /// with the thread that started it.
    pub fn new(settings: RubySettings) -> Self {
        let (jobs, waiting) = mpsc::channel(MAX_WAITING);
        let stop = CancellationToken::new();
        let stopped = CancellationToken::new();
        let (lane, at_the_end) = (Lane::new(settings, stop.clone()), stopped.clone().drop_guard());
        tokio::spawn(async move {
            lane.run(waiting).await;
            drop(at_the_end);
        });
        Self { jobs, stop, stopped }
    }

    /// Evaluates code, after all that was asked for before.
    ///
    /// Dropping the future of a call that waits takes it out of the queue. One that runs goes on to
    /// its end, and what it does stays.
    pub async fn evaluate(&self, evaluation: Evaluation) -> RubyAnswer {
        let Evaluation { source, cancel } = evaluation;
        if source.size() > MAX_CODE_BYTES {
            let error = RubyError::CodeTooLarge { bytes: source.size(), limit: MAX_CODE_BYTES };
            return RubyAnswer::refusal(error);
        }
        self.ask(Work::Evaluate(source), cancel).await
    }

    /// Sees to it that a worker is up. It waits for its turn, as evaluations do.
    pub async fn prepare(&self) -> Result<(), RubyError> {
        self.ask(Work::Prepare, CancellationToken::new()).await.outcome.map(|_| ())
    }

    /// Puts a new worker in the place of the one there is: all that was defined is gone. It waits for
    /// its turn, as evaluations do.
    pub async fn replace_worker(&self) -> Result<(), RubyError> {
        self.ask(Work::Replace, CancellationToken::new()).await.outcome.map(|_| ())
    }

    /// Ends the worker, with what it runs. Calls that run or wait are answered with
    /// [`RubyError::Stopped`], and so are all that come later. Returns when nothing is left.
    pub async fn stop(&self) {
        self.stop.cancel();
        self.stopped.cancelled().await;
    }

    async fn ask(&self, work: Work, cancel: CancellationToken) -> RubyAnswer {
        let claim = Claim::default();
        let (answer, mut answered) = oneshot::channel();
        let job = Job { work, cancel: cancel.clone(), claim: claim.clone(), answer };
        match self.jobs.try_send(job) {
            Ok(()) => {}
            Err(mpsc::error::TrySendError::Full(_)) => {
                return RubyAnswer::refusal(RubyError::TooManyWaiting { limit: MAX_WAITING });
            }
            Err(mpsc::error::TrySendError::Closed(_)) => return RubyAnswer::refusal(RubyError::Stopped),
        }
        let answer = tokio::select! {
            biased;
            answer = &mut answered => answer,
            () = cancel.cancelled() => {
                if claim.take() {
                    return RubyAnswer::refusal(RubyError::Cancelled { started: false });
                }
                // The lane has it, and sees to the rest.
                answered.await
            }
        };
        // The lane answers what it has taken. If it is gone, the host has stopped.
        answer.unwrap_or_else(|_| RubyAnswer::refusal(RubyError::Stopped))
    }
}
