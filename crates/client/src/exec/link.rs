//! Who waits for what on one connection: calls for their answers, processes for their output.
//!
//! The handles put entries in, the connection's task takes them out. No I/O, and no waiting.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::value::RawValue;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::ExecServerError;
use super::inbox::{Ending, Inbox};

/// Where an answer goes.
pub(super) type Reply<T> = oneshot::Sender<Result<T, ExecServerError>>;

/// A request that was queued and not answered yet.
#[derive(Debug)]
pub(super) enum Pending {
    /// Its caller decodes the result. `to` is the process that it is about, if any.
    Call { to: Option<Arc<Inbox>>, reply: Reply<Box<RawValue>> },
    /// The start of a process, which may speak before the answer comes.
    Start { inbox: Arc<Inbox>, reply: Reply<()> },
}

#[derive(Debug)]
pub(super) struct Link {
    /// A plain mutex: it is held for a lookup and never across an `await`.
    state: Mutex<State>,
    /// A permit for each entry of `State::pending`. Closed when calls can no longer be answered.
    pub(super) slots: Arc<Semaphore>,
}

#[derive(Debug, Default)]
struct State {
    pending: HashMap<i64, (Pending, OwnedSemaphorePermit)>,
    /// The processes that have not exited, also those whose handle is gone: their id is in use.
    routes: HashMap<String, Arc<Inbox>>,
    /// Why there will be no more answers.
    verdict: Option<ExecServerError>,
}

impl Link {
    pub(super) fn new(max_pending: usize) -> Self {
        Self { state: Mutex::default(), slots: Arc::new(Semaphore::new(max_pending)) }
    }

    /// Enters a request and then queues it, both under the lock: frames leave in the order of their
    /// entries, so that one for a process cannot slip behind the start of its namesake.
    pub(super) fn enter(
        &self,
        id: i64,
        pending: Pending,
        slot: OwnedSemaphorePermit,
        queue: impl FnOnce(),
    ) -> Result<(), ExecServerError> {
        let mut state = self.state();
        if let Some(verdict) = &state.verdict {
            return Err(verdict.clone());
        }
        match &pending {
            Pending::Call { to: None, .. } => {}
            Pending::Call { to: Some(inbox), .. } => {
                if !state.routes.get(&inbox.process_id).is_some_and(|route| Arc::ptr_eq(route, inbox)) {
                    return Err(ExecServerError::ProcessExited(inbox.process_id.clone()));
                }
            }
            // The route is there before the request is: output may overtake the answer.
            Pending::Start { inbox, .. } => match state.routes.entry(inbox.process_id.clone()) {
                Entry::Occupied(taken) => {
                    return Err(ExecServerError::DuplicateProcess(taken.key().clone()));
                }
                Entry::Vacant(free) => {
                    free.insert(Arc::clone(inbox));
                }
            },
        }
        state.pending.insert(id, (pending, slot));
        queue();
        Ok(())
    }

    /// Takes out the request that `id` answers.
    pub(super) fn leave(&self, id: i64) -> Option<Pending> {
        self.state().pending.remove(&id).map(|(pending, _slot)| pending)
    }

    /// Where the output of process `id` goes.
    pub(super) fn route(&self, id: &str) -> Option<Arc<Inbox>> {
        self.state().routes.get(id).cloned()
    }

    /// Frees the id of a process, unless a namesake has it by now.
    pub(super) fn unroute(&self, inbox: &Arc<Inbox>) {
        let mut state = self.state();
        if state.routes.get(&inbox.process_id).is_some_and(|route| Arc::ptr_eq(route, inbox)) {
            state.routes.remove(&inbox.process_id);
        }
    }

    /// Fails all calls, now and from now on. Processes may still be heard.
    pub(super) fn fail_calls(&self, verdict: ExecServerError) {
        let mut state = self.state();
        let pending = std::mem::take(&mut state.pending);
        state.verdict = Some(verdict.clone());
        drop(state);
        self.slots.close();
        for (pending, _slot) in pending.into_values() {
            // A caller that no longer waits does not need to know.
            let _ = match pending {
                Pending::Call { reply, .. } => reply.send(Err(verdict.clone())).is_ok(),
                Pending::Start { reply, .. } => reply.send(Err(verdict.clone())).is_ok(),
            };
        }
    }

    /// Fails all calls and all processes that have not exited.
    pub(super) fn end(&self, verdict: ExecServerError) {
        self.fail_calls(verdict.clone());
        let routes = std::mem::take(&mut self.state().routes);
        for inbox in routes.into_values() {
            inbox.end(Ending::Lost(verdict.clone()));
        }
    }

    /// Why there are no more answers, for a caller who found the way closed.
    pub(super) fn verdict(&self) -> ExecServerError {
        self.state().verdict.clone().unwrap_or(ExecServerError::CLOSED)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
