//! The commands of a connection that wait for an answer, and the turns that have not ended: matches each answer to them
//! by its id.
//!
//! The events of a turn carry no id. They belong to the oldest turn that has not ended, because a child runs one turn at a
//! time and refuses others meanwhile.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parlor_doors::synaps::TurnUsage;
use serde_json::{Map, Value};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::turn_events::TurnEvents;
use super::{SynapsError, TurnEnd, TurnOutcome};
use crate::child::link::PendingTable;

/// The members of an answer.
pub(super) type AnswerBody = Map<String, Value>;

/// Where an answer goes.
pub(super) type ReplySender = oneshot::Sender<Result<AnswerBody, SynapsError>>;

#[derive(Debug, Default)]
pub(super) struct PendingCommands {
    calls: HashMap<String, (ReplySender, OwnedSemaphorePermit)>,
    /// The turns that have not ended, the oldest first. Also those whose handle is gone.
    turns: VecDeque<(Arc<TurnEvents>, OwnedSemaphorePermit)>,
    /// The usage of the turn whose answer comes next.
    usage: Option<TurnUsage>,
}

impl PendingCommands {
    /// Adds a command that waits for a single answer.
    pub(super) fn add_call(&mut self, id: String, reply: ReplySender, slot: OwnedSemaphorePermit) {
        self.calls.insert(id, (reply, slot));
    }

    /// Adds a command that begins a turn.
    pub(super) fn add_turn(&mut self, turn: Arc<TurnEvents>, slot: OwnedSemaphorePermit) {
        self.turns.push_back((turn, slot));
    }

    /// Removes a call whose caller no longer waits.
    pub(super) fn remove_call(&mut self, id: &str) {
        self.calls.remove(id);
    }

    /// The turn that is running.
    pub(super) fn running_turn(&self) -> Option<Arc<TurnEvents>> {
        self.turns.iter().map(|(turn, _)| turn).find(|turn| !turn.has_error()).cloned()
    }

    /// Notes the usage that a child sends right before the answer to a turn.
    pub(super) fn set_usage(&mut self, usage: TurnUsage) {
        self.usage = Some(usage);
    }

    /// Handles the answer to a command.
    pub(super) fn on_answer(&mut self, id: &str, body: AnswerBody) -> Result<(), SynapsError> {
        if let Some((reply, _slot)) = self.calls.remove(id) {
            // The send fails only if the caller no longer waits.
            let _ = reply.send(Ok(body));
            return Ok(());
        }
        let usage = self.usage.take();
        let Some(index) = self.turns.iter().position(|(turn, _)| turn.id == id) else { return Ok(()) };
        let outcome = outcome(&body)?;
        // The child refused the turns before this one, or it would have answered them before.
        for (turn, _slot) in self.turns.drain(..=index) {
            if turn.id == id {
                turn.end(Ok(TurnEnd { outcome: outcome.clone(), usage: usage.clone().unwrap_or_default() }));
            } else {
                turn.refuse();
            }
        }
        Ok(())
    }

    /// Handles an `error` frame with the id of a command.
    pub(super) fn on_error(&mut self, id: &str, message: String) {
        if let Some((reply, _slot)) = self.calls.remove(id) {
            // The send fails only if the caller no longer waits.
            let _ = reply.send(Err(SynapsError::Refused(message)));
            return;
        }
        let Some(index) = self.turns.iter().position(|(turn, _)| turn.id == id) else { return };
        let is_behind_another = self.turns.iter().take(index).any(|(turn, _)| !turn.has_error());
        let Some((turn, _)) = self.turns.get(index) else { return };
        // A child reports a failed turn twice, with `error` and then with an answer, and a refused turn only with `error`.
        // If the turn has a handle, the handle finds out which it is. Behind another turn, this one was refused.
        if turn.set_error(message) && !is_behind_another {
            return;
        }
        if let Some((turn, _slot)) = self.turns.remove(index) {
            turn.refuse();
        }
    }

    /// Removes a turn without ending it.
    pub(super) fn remove_turn(&mut self, turn: &Arc<TurnEvents>) {
        self.turns.retain(|(pending, _)| !Arc::ptr_eq(pending, turn));
    }
}

impl PendingTable for PendingCommands {
    type Error = SynapsError;

    fn fail_calls(&mut self, error: &SynapsError) {
        for (reply, _slot) in std::mem::take(&mut self.calls).into_values() {
            // The send fails only if the caller no longer waits.
            let _ = reply.send(Err(error.clone()));
        }
    }

    fn fail_streams(&mut self, error: &SynapsError) {
        for (turn, _slot) in std::mem::take(&mut self.turns) {
            turn.end(Err(error.clone()));
        }
    }
}

/// How a turn ended, according to the members of its answer.
fn outcome(body: &AnswerBody) -> Result<TurnOutcome, SynapsError> {
    let flag = |name: &str| body.get(name).and_then(Value::as_bool);
    match (flag("ok"), flag("cancelled")) {
        (Some(true), Some(true)) => Ok(TurnOutcome::Cancelled),
        (Some(true), _) => Ok(TurnOutcome::Completed),
        (Some(false), _) => {
            let message = body.get("error").and_then(Value::as_str).unwrap_or("it did not say why");
            Ok(TurnOutcome::Failed(message.to_owned()))
        }
        (None, _) => Err(SynapsError::protocol("the answer to a prompt does not say `ok`")),
    }
}
