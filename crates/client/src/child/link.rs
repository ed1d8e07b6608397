//! The state that the handles and the task of a connection share: which requests wait for an answer, and why the connection
//! ended.
//!
//! Handles add requests, the task takes them out when answers arrive. No I/O, and no waiting except for a request slot.

use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::driver::ConnectionError;
use super::process::ChildStatus;

/// The pending requests of a dialect.
pub(crate) trait PendingTable: Debug + Default + Send + 'static {
    /// Why a request fails.
    type Error: ConnectionError;

    /// Fails and removes all requests that wait for a single answer.
    fn fail_calls(&mut self, error: &Self::Error);

    /// Fails and removes everything else: processes or turns that have not ended.
    fn fail_streams(&mut self, error: &Self::Error);
}

#[derive(Debug)]
pub(crate) struct Link<T: PendingTable> {
    /// A plain mutex: it is locked for a lookup and never across an `await`.
    state: Mutex<State<T>>,
    /// One permit for each pending request. Closed when requests can no longer be answered.
    slots: Arc<Semaphore>,
}

#[derive(Debug)]
struct State<T: PendingTable> {
    pending: T,
    /// Why there will be no more answers.
    end_reason: Option<T::Error>,
}

impl<T: PendingTable> Link<T> {
    pub(crate) fn new(max_pending: usize) -> Self {
        let state = State { pending: T::default(), end_reason: None };
        Self { state: Mutex::new(state), slots: Arc::new(Semaphore::new(max_pending)) }
    }

    /// Waits for a slot, which the pending request holds until its answer.
    pub(crate) async fn slot(&self) -> Result<OwnedSemaphorePermit, T::Error> {
        Arc::clone(&self.slots).acquire_owned().await.map_err(|_| self.end_reason())
    }

    /// Adds a request and then queues its frame, both under the lock, so that frames leave in the order in which their
    /// requests were added.
    pub(crate) fn add_and_queue(
        &self,
        add: impl FnOnce(&mut T) -> Result<(), T::Error>,
        queue: impl FnOnce(),
    ) -> Result<(), T::Error> {
        let mut state = self.state();
        if let Some(reason) = &state.end_reason {
            return Err(reason.clone());
        }
        add(&mut state.pending)?;
        queue();
        Ok(())
    }

    /// Reads or changes the pending requests.
    pub(crate) fn with_pending<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        change(&mut self.state().pending)
    }

    /// Waits for `delivery`, which puts an item into a full backlog. If the child exits meanwhile, all calls fail at once:
    /// the task does not read while it waits here, so it would not see the end of the child's output.
    pub(crate) async fn deliver(&self, status: &mut ChildStatus, delivery: impl Future<Output = ()>) {
        let mut delivery = std::pin::pin!(delivery);
        tokio::select! {
            biased;
            () = &mut delivery => return,
            status = status.exited() => self.fail_calls(T::Error::closed(status, None)),
        }
        delivery.await;
    }

    /// Fails all calls, now and from now on. Processes and turns may still receive what the child has written.
    pub(crate) fn fail_calls(&self, reason: T::Error) {
        let mut state = self.state();
        state.pending.fail_calls(&reason);
        state.end_reason = Some(reason);
        drop(state);
        self.slots.close();
    }

    /// Fails all calls, and all processes and turns that have not ended.
    pub(crate) fn end(&self, reason: T::Error) {
        self.fail_calls(reason.clone());
        self.state().pending.fail_streams(&reason);
    }

    /// Why the connection ended.
    pub(crate) fn end_reason(&self) -> T::Error {
        self.state().end_reason.clone().unwrap_or_else(|| T::Error::closed(None, None))
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
