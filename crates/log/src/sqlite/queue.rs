//! What waits for the writer. Bounded: who finds it full waits, without holding up the runtime.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, oneshot};

use super::work::{Done, Work};
use super::{MAX_BATCH, WRITE_QUEUE_JOBS};
use crate::LogError;

/// What is to be done, and who wants to know.
pub(super) struct Job {
    pub(super) work: Work,
    /// Absent for a lease that was dropped: nobody waits for that.
    pub(super) answer: Option<oneshot::Sender<Result<Done, LogError>>>,
}

/// The writer's queue.
pub(super) struct Queue {
    waiting: Mutex<Waiting>,
    changed: Condvar,
    /// Room for more jobs that have somebody waiting. Leases that are given back need none: they
    /// are not more than there are leases.
    room: Semaphore,
}

#[derive(Default)]
struct Waiting {
    jobs: VecDeque<Job>,
    /// How many jobs the writer shall be woken for.
    wanted: usize,
    look: bool,
    closed: bool,
}

/// What the writer is woken for.
pub(super) struct Taken {
    /// At most [`MAX_BATCH`], in the order in which they came. Maybe none.
    pub(super) jobs: Vec<Job>,
    /// Somebody began to follow a session.
    pub(super) look: bool,
    /// Nothing will come any more.
    pub(super) last: bool,
}

impl Default for Queue {
    fn default() -> Self {
        let room = Semaphore::new(WRITE_QUEUE_JOBS);
        Self { waiting: Mutex::default(), changed: Condvar::new(), room }
    }
}

impl Queue {
    /// Puts work in, as soon as there is room. `None` if the queue is closed.
    pub(super) async fn put(&self, work: Work) -> Option<oneshot::Receiver<Result<Done, LogError>>> {
        // The room comes back when the writer takes the job.
        self.room.acquire().await.ok()?.forget();
        let (answer, receiver) = oneshot::channel();
        let mut waiting = self.lock();
        if waiting.closed {
            return None;
        }
        waiting.jobs.push_back(Job { work, answer: Some(answer) });
        let enough = waiting.jobs.len() >= waiting.wanted;
        drop(waiting);
        if enough {
            self.changed.notify_one();
        }
        Some(receiver)
    }

    /// Puts in that a lease is given back.
    pub(super) fn put_release(&self, work: Work) {
        let mut waiting = self.lock();
        if !waiting.closed {
            waiting.jobs.push_back(Job { work, answer: None });
            self.changed.notify_one();
        }
    }

    /// Has the writer look who follows what.
    pub(super) fn look(&self) {
        self.lock().look = true;
        self.changed.notify_one();
    }

    /// Lets nothing in any more.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.room.close();
        self.changed.notify_one();
    }

    /// Lets nothing in any more, and drops what waits: whoever waits for it is told that the log is closed.
    pub(super) fn abandon(&self) {
        self.close();
        let dropped = std::mem::take(&mut self.lock().jobs);
        // Outside of the lock: a lease among them gives itself back to this queue.
        drop(dropped);
    }

    /// Whether nothing is let in any more.
    pub(super) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// How many jobs wait.
    pub(super) fn len(&self) -> usize {
        self.lock().jobs.len()
    }

    /// Waits until there is something to do, or for as long as `wait`. If jobs are there, but not
    /// as many as are `expected`, gives the others a `moment` to come as well.
    pub(super) fn take(&self, wait: Option<Duration>, expected: usize, moment: Duration) -> Taken {
        let mut waiting = self.lock();
        let idle = |waiting: &mut Waiting| waiting.jobs.is_empty() && !waiting.look && !waiting.closed;
        waiting = match wait {
            None => self.changed.wait_while(waiting, idle).unwrap_or_else(PoisonError::into_inner),
            Some(wait) => {
                let woken = self.changed.wait_timeout_while(waiting, wait, idle);
                woken.unwrap_or_else(PoisonError::into_inner).0
            }
        };
        let expected = expected.min(MAX_BATCH);
        if (1..expected).contains(&waiting.jobs.len()) {
            waiting.wanted = expected;
            let few = |waiting: &mut Waiting| waiting.jobs.len() < expected && !waiting.closed;
            let woken = self.changed.wait_timeout_while(waiting, moment, few);
            waiting = woken.unwrap_or_else(PoisonError::into_inner).0;
            waiting.wanted = 0;
        }
        let count = waiting.jobs.len().min(MAX_BATCH);
        let jobs: Vec<Job> = waiting.jobs.drain(..count).collect();
        let last = waiting.closed && waiting.jobs.is_empty();
        let look = std::mem::take(&mut waiting.look);
        drop(waiting);
        self.room.add_permits(jobs.iter().filter(|job| job.answer.is_some()).count());
        Taken { jobs, look, last }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        // A panic cannot leave it half changed: each change is a single call.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
