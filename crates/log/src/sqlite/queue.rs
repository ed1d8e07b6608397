//! The queue of the writer thread. It is bounded: when it is full, callers wait asynchronously.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, oneshot};

use super::request::{WriteReply, WriteRequest};
use super::{MAX_BATCH, WRITE_QUEUE_JOBS};
use crate::LogError;

/// A request and the channel for its reply.
pub(super) struct Job {
    pub(super) request: WriteRequest,
    /// `None` for the release of a dropped lease: no caller waits for the reply.
    pub(super) reply_sender: Option<oneshot::Sender<Result<WriteReply, LogError>>>,
}

/// A bounded queue of jobs, which callers fill and the writer thread empties.
pub(super) struct Queue {
    state: Mutex<State>,
    changed: Condvar,
    /// One permit for each free slot. The release of a dropped lease takes no slot: each lease is released only once, so
    /// their number is limited.
    free_slots: Semaphore,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    /// The number of jobs that the writer waits for while it gathers a batch, else 0.
    wanted_jobs: usize,
    poll_requested: bool,
    closed: bool,
}

/// What the writer thread has to do next.
pub(super) struct Batch {
    /// At most [`MAX_BATCH`] jobs, oldest first. May be empty.
    pub(super) jobs: Vec<Job>,
    /// Whether [`Queue::request_poll`] was called since the last batch.
    pub(super) poll_requested: bool,
    /// Whether the queue is closed and has no further jobs.
    pub(super) is_last: bool,
}

impl Default for Queue {
    fn default() -> Self {
        let free_slots = Semaphore::new(WRITE_QUEUE_JOBS);
        Self { state: Mutex::default(), changed: Condvar::new(), free_slots }
    }
}

impl Queue {
    /// Waits for a free slot and queues a request. Returns the channel of the reply, or `None` if the queue is closed.
    pub(super) async fn push(
        &self,
        request: WriteRequest,
    ) -> Option<oneshot::Receiver<Result<WriteReply, LogError>>> {
        // The writer returns the permit when it takes the job.
        self.free_slots.acquire().await.ok()?.forget();
        let (reply_sender, receiver) = oneshot::channel();
        let mut state = self.lock();
        if state.closed {
            return None;
        }
        state.jobs.push_back(Job { request, reply_sender: Some(reply_sender) });
        let enough = state.jobs.len() >= state.wanted_jobs;
        drop(state);
        if enough {
            self.changed.notify_one();
        }
        Some(receiver)
    }

    /// Queues the release of a dropped lease.
    pub(super) fn push_release(&self, request: WriteRequest) {
        let mut state = self.lock();
        if !state.closed {
            state.jobs.push_back(Job { request, reply_sender: None });
            self.changed.notify_one();
        }
    }

    /// Makes the writer poll for appends of other processes to followed sessions.
    pub(super) fn request_poll(&self) {
        self.lock().poll_requested = true;
        self.changed.notify_one();
    }

    /// Refuses further requests. The writer still carries out the queued ones.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.free_slots.close();
        self.changed.notify_one();
    }

    /// Refuses further requests and drops the queued ones; their callers get `LogError::Closed`.
    pub(super) fn abandon(&self) {
        self.close();
        let dropped = std::mem::take(&mut self.lock().jobs);
        // Outside of the lock: dropping a job can drop a lease, which calls `push_release`.
        drop(dropped);
    }

    /// Whether the queue refuses further requests.
    pub(super) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// The number of queued jobs.
    pub(super) fn len(&self) -> usize {
        self.lock().jobs.len()
    }

    /// Waits for a job, a requested poll or the close of the queue, at most for `wait` (`None`: without limit). If there
    /// are jobs, but fewer than `expected`, then waits for the others, at most for `gather_wait`.
    pub(super) fn next_batch(&self, wait: Option<Duration>, expected: usize, gather_wait: Duration) -> Batch {
        let mut state = self.lock();
        let is_idle = |state: &mut State| state.jobs.is_empty() && !state.poll_requested && !state.closed;
        state = match wait {
            None => self.changed.wait_while(state, is_idle).unwrap_or_else(PoisonError::into_inner),
            Some(wait) => {
                let woken = self.changed.wait_timeout_while(state, wait, is_idle);
                woken.unwrap_or_else(PoisonError::into_inner).0
            }
        };
        let expected = expected.min(MAX_BATCH);
        if (1..expected).contains(&state.jobs.len()) {
            state.wanted_jobs = expected;
            let is_gathering = |state: &mut State| state.jobs.len() < expected && !state.closed;
            let woken = self.changed.wait_timeout_while(state, gather_wait, is_gathering);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
            state.wanted_jobs = 0;
        }
        let count = state.jobs.len().min(MAX_BATCH);
        let jobs: Vec<Job> = state.jobs.drain(..count).collect();
        let is_last = state.closed && state.jobs.is_empty();
        let poll_requested = std::mem::take(&mut state.poll_requested);
        drop(state);
        self.free_slots.add_permits(jobs.iter().filter(|job| job.reply_sender.is_some()).count());
        Batch { jobs, poll_requested, is_last }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic cannot leave the state half changed: each change is a single call.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
