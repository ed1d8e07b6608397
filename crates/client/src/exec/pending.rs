//! The requests of a connection that wait for an answer, and the processes that have not exited.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use serde_json::value::RawValue;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::ExecServerError;
use super::events::{EventsEnd, ProcessEvents};
use super::output::{ProcessEnd, ProcessOutput};
use crate::child::link::PendingTable;

/// Where an answer goes.
pub(super) type ReplySender<T> = oneshot::Sender<Result<T, ExecServerError>>;

/// A request that was queued and not answered yet.
#[derive(Debug)]
pub(super) enum PendingRequest {
    /// A request whose caller decodes the result. `process` is the process that it is about, if any.
    Call { process: Option<Arc<ProcessOutput>>, reply: ReplySender<Box<RawValue>> },
    /// The start of a process, whose output may arrive before the answer.
    Start { process: Arc<ProcessOutput>, reply: ReplySender<()> },
    /// The start of a process with numbered events.
    StartNumbered { process: Arc<ProcessEvents>, reply: ReplySender<()> },
    /// The read of what a process did before this connection.
    CatchUp { process: Arc<ProcessEvents>, reply: ReplySender<()> },
}

#[derive(Debug, Default)]
pub(super) struct PendingRequests {
    requests: HashMap<i64, (PendingRequest, OwnedSemaphorePermit)>,
    /// The processes that have not exited, by id. Also those whose handle is gone, because their id is still in use.
    processes: HashMap<String, Arc<ProcessOutput>>,
    /// The processes with numbered events whose last event has not arrived. Their ids are independent of the others.
    numbered: HashMap<String, Arc<ProcessEvents>>,
}

impl PendingRequests {
    /// Adds a request. A start also reserves the id of its process, because output may arrive before the answer. A call for
    /// a process fails if that process has exited: another process may have its id now.
    pub(super) fn add(
        &mut self,
        id: i64,
        request: PendingRequest,
        slot: OwnedSemaphorePermit,
    ) -> Result<(), ExecServerError> {
        match &request {
            PendingRequest::Call { process: None, .. } => {}
            PendingRequest::Call { process: Some(process), .. } => {
                if !self.is_running(process) {
                    return Err(ExecServerError::ProcessExited(process.process_id.clone()));
                }
            }
            PendingRequest::Start { process, .. } => match self.processes.entry(process.process_id.clone()) {
                Entry::Occupied(used) => {
                    return Err(ExecServerError::DuplicateProcess(used.key().clone()));
                }
                Entry::Vacant(free) => {
                    free.insert(Arc::clone(process));
                }
            },
            PendingRequest::StartNumbered { process, .. } | PendingRequest::CatchUp { process, .. } => {
                match self.numbered.entry(process.process_id.clone()) {
                    Entry::Occupied(used) => {
                        return Err(ExecServerError::DuplicateProcess(used.key().clone()));
                    }
                    Entry::Vacant(free) => {
                        free.insert(Arc::clone(process));
                    }
                }
            }
        }
        self.requests.insert(id, (request, slot));
        Ok(())
    }

    /// Takes out the request with this id.
    pub(super) fn take(&mut self, id: i64) -> Option<PendingRequest> {
        self.requests.remove(&id).map(|(request, _slot)| request)
    }

    /// The process with this id.
    pub(super) fn process(&self, process_id: &str) -> Option<Arc<ProcessOutput>> {
        self.processes.get(process_id).cloned()
    }

    /// Frees the id of a process, unless a newer process has it.
    pub(super) fn remove_process(&mut self, process: &Arc<ProcessOutput>) {
        if self.is_running(process) {
            self.processes.remove(&process.process_id);
        }
    }

    /// The process with numbered events and this id.
    pub(super) fn numbered(&self, process_id: &str) -> Option<Arc<ProcessEvents>> {
        self.numbered.get(process_id).cloned()
    }

    /// Forgets a process with numbered events, after its last one.
    pub(super) fn remove_numbered(&mut self, process_id: &str) {
        self.numbered.remove(process_id);
    }

    fn is_running(&self, process: &Arc<ProcessOutput>) -> bool {
        self.processes.get(&process.process_id).is_some_and(|found| Arc::ptr_eq(found, process))
    }
}

impl PendingTable for PendingRequests {
    type Error = ExecServerError;

    fn fail_calls(&mut self, error: &ExecServerError) {
        for (request, _slot) in std::mem::take(&mut self.requests).into_values() {
            // A send fails only if the caller no longer waits.
            let _ = match request {
                PendingRequest::Call { reply, .. } => reply.send(Err(error.clone())).is_ok(),
                PendingRequest::Start { reply, .. }
                | PendingRequest::StartNumbered { reply, .. }
                | PendingRequest::CatchUp { reply, .. } => reply.send(Err(error.clone())).is_ok(),
            };
        }
    }

    fn fail_streams(&mut self, error: &ExecServerError) {
        for process in std::mem::take(&mut self.processes).into_values() {
            process.end(ProcessEnd::Lost(error.clone()));
        }
        for process in std::mem::take(&mut self.numbered).into_values() {
            process.end(EventsEnd::Lost(error.clone()));
        }
    }
}
