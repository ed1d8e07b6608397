//! The queue of the writer task. It is bounded: when it is full, callers wait.

use std::collections::{HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use parlor_vocab::SessionId;
use tokio::sync::{Notify, Semaphore, oneshot};

use super::request::{WriteReply, WriteRequest};
use super::{GATHER_WAIT, MAX_GROUP, MAX_GROUP_BYTES, WRITE_QUEUE_REQUESTS};
use crate::LogError;

/// A request and the channel for its reply.
pub(super) struct Job {
    pub(super) request: WriteRequest,
    /// `None` for the release of a dropped lease: no caller waits for the reply.
    pub(super) reply_sender: Option<oneshot::Sender<Result<WriteReply, LogError>>>,
}

impl Job {
    /// Answers the caller.
    pub(super) fn reply(self, reply: Result<WriteReply, LogError>) {
        if let Some(sender) = self.reply_sender {
            // Fails if the caller dropped its future.
            let _ = sender.send(reply);
        }
    }
}

/// A bounded queue of jobs, which callers fill and the writer task empties.
pub(super) struct Queue {
    state: Mutex<State>,
    changed: Notify,
    /// One permit for each free slot. The release of a dropped lease takes no slot: each lease is released only once, so
    /// their number is limited.
    free_slots: Semaphore,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    closed: bool,
}

impl Default for Queue {
    fn default() -> Self {
        let free_slots = Semaphore::new(WRITE_QUEUE_REQUESTS);
        Self { state: Mutex::default(), changed: Notify::new(), free_slots }
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
        drop(state);
        self.changed.notify_one();
        Some(receiver)
    }

    /// Queues the release of a dropped lease.
    pub(super) fn push_release(&self, request: WriteRequest) {
        let mut state = self.lock();
        if !state.closed {
            state.jobs.push_back(Job { request, reply_sender: None });
            drop(state);
            self.changed.notify_one();
        }
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

    /// The number of queued jobs.
    pub(super) fn len(&self) -> usize {
        self.lock().jobs.len()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// Waits for jobs and takes as many as one transaction may have: at most [`MAX_GROUP`], at most about
    /// [`MAX_GROUP_BYTES`], and one for each session. `None` when the queue is closed and empty.
    ///
    /// If there are jobs, but fewer than `expected`, other tasks run first, at most for [`GATHER_WAIT`]: the callers of the
    /// last transaction probably send their next requests now.
    pub(super) async fn next_group(&self, expected: usize) -> Option<Vec<Job>> {
        let mut gathering_since = None;
        loop {
            let count = self.len();
            if (1..expected.min(MAX_GROUP)).contains(&count) && !self.is_closed() {
                let since = *gathering_since.get_or_insert_with(Instant::now);
                if since.elapsed() < GATHER_WAIT {
                    tokio::task::yield_now().await;
                    continue;
                }
            }
            {
                let mut state = self.lock();
                let group = take_group(&mut state.jobs);
                if !group.is_empty() {
                    drop(state);
                    self.free_slots
                        .add_permits(group.iter().filter(|job| job.reply_sender.is_some()).count());
                    return Some(group);
                }
                if state.closed {
                    return None;
                }
            }
            self.changed.notified().await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic cannot leave the state half changed: each change is a single call.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes jobs from the front. The second job of a session waits for the next group, because the jobs of a group have no
/// order; jobs of other sessions may overtake it.
fn take_group(jobs: &mut VecDeque<Job>) -> Vec<Job> {
    let mut sessions: HashSet<SessionId> = HashSet::new();
    let (mut group, mut kept, mut bytes) = (Vec::new(), VecDeque::new(), 0);
    while let Some(job) = jobs.pop_front() {
        bytes += job.request.bytes();
        if !group.is_empty() && bytes > MAX_GROUP_BYTES {
            kept.push_back(job);
            break;
        }
        if sessions.insert(job.request.session().clone()) {
            group.push(job);
        } else {
            kept.push_back(job);
        }
        if group.len() == MAX_GROUP {
            break;
        }
    }
    kept.append(jobs);
    *jobs = kept;
    group
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::Token;

    fn job(session: &str, bytes: usize) -> Job {
        let session = SessionId::parse(session).unwrap();
        let message = parlor_vocab::MessageId::parse("m").unwrap();
        let text = "x".repeat(bytes);
        let request = WriteRequest::KeepPartialText { session, token: Token(1), message, start: 0, text };
        Job { request, reply_sender: None }
    }

    fn names(group: &[Job]) -> Vec<&str> {
        group.iter().map(|job| job.request.session().as_str()).collect()
    }

    #[test]
    fn a_group_has_each_session_once_and_keeps_their_order() {
        let mut jobs: VecDeque<Job> = ["a", "b", "a", "c", "a"].map(|name| job(name, 1)).into();
        let groups: Vec<Vec<Job>> = (0..3).map(|_| take_group(&mut jobs)).collect();
        let groups: Vec<Vec<&str>> = groups.iter().map(|group| names(group)).collect();
        assert_eq!(groups, [vec!["a", "b", "c"], vec!["a"], vec!["a"]]);
        assert!(take_group(&mut jobs).is_empty());
    }

    #[test]
    fn a_group_is_limited_in_number_and_size_but_never_empty() {
        let mut jobs: VecDeque<Job> = (0..2 * MAX_GROUP).map(|number| job(&number.to_string(), 1)).collect();
        assert_eq!(take_group(&mut jobs).len(), MAX_GROUP);
        let sizes = [MAX_GROUP_BYTES + 1, MAX_GROUP_BYTES / 2, MAX_GROUP_BYTES / 2, 1];
        let mut jobs: VecDeque<Job> =
            sizes.iter().zip(["a", "b", "c", "d"]).map(|(bytes, name)| job(name, *bytes)).collect();
        assert_eq!(names(&take_group(&mut jobs)), ["a"]);
        assert_eq!(names(&take_group(&mut jobs)), ["b", "c"]);
        assert_eq!(names(&take_group(&mut jobs)), ["d"]);
    }
}
