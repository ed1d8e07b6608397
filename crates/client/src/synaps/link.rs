//! Who waits for what on one connection: commands for their answers, turns for what happens in them.
//!
//! The handles put entries in, the connection's task takes them out. No I/O, and no waiting.
//!
//! What happens in a turn carries no id. It belongs to the oldest turn that is not over, since a
//! child has one turn at a time and refuses others meanwhile.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use parlor_doors::synaps::TurnUsage;
use serde_json::{Map, Value};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::backlog::Backlog;
use super::{SynapsError, TurnEnd, TurnOutcome};

/// The members of an answer.
pub(super) type Body = Map<String, Value>;

/// Where an answer goes.
pub(super) type Reply = oneshot::Sender<Result<Body, SynapsError>>;

/// A command that was queued and not answered yet.
#[derive(Debug)]
pub(super) enum Pending {
    Call(Reply),
    Turn(Arc<Backlog>),
}

#[derive(Debug)]
pub(super) struct Link {
    /// A plain mutex: it is held for a lookup and never across an `await`.
    state: Mutex<State>,
    /// A permit for each entry. Closed when commands can no longer be answered.
    pub(super) slots: Arc<Semaphore>,
}

#[derive(Debug, Default)]
struct State {
    calls: HashMap<String, (Reply, OwnedSemaphorePermit)>,
    /// The turns that are not over, also those whose handle is gone, the oldest first.
    turns: VecDeque<(Arc<Backlog>, OwnedSemaphorePermit)>,
    /// What the turn consumed that is about to be answered.
    usage: Option<TurnUsage>,
    /// Why there will be no more answers.
    verdict: Option<SynapsError>,
}

impl Link {
    pub(super) fn new(max_pending: usize) -> Self {
        Self { state: Mutex::default(), slots: Arc::new(Semaphore::new(max_pending)) }
    }

    /// Enters a command and then queues it, both under the lock: frames leave in the order of their
    /// entries.
    pub(super) fn enter(
        &self,
        id: String,
        pending: Pending,
        slot: OwnedSemaphorePermit,
        queue: impl FnOnce(),
    ) -> Result<(), SynapsError> {
        let mut state = self.state();
        if let Some(verdict) = &state.verdict {
            return Err(verdict.clone());
        }
        match pending {
            Pending::Call(reply) => {
                state.calls.insert(id, (reply, slot));
            }
            Pending::Turn(turn) => state.turns.push_back((turn, slot)),
        }
        queue();
        Ok(())
    }

    /// Whoever waited for the answer to `id` no longer does.
    pub(super) fn forget(&self, id: &str) {
        self.state().calls.remove(id);
    }

    /// The turn that is running.
    pub(super) fn running(&self) -> Option<Arc<Backlog>> {
        let state = self.state();
        state.turns.iter().map(|(turn, _)| turn).find(|turn| !turn.is_in_doubt()).cloned()
    }

    /// A turn is about to be answered.
    pub(super) fn consumed(&self, usage: TurnUsage) {
        self.state().usage = Some(usage);
    }

    /// A command was answered.
    pub(super) fn answer(&self, id: &str, body: Body) -> Result<(), SynapsError> {
        let mut state = self.state();
        if let Some((reply, _slot)) = state.calls.remove(id) {
            drop(state);
            // A caller that no longer waits does not need to know.
            let _ = reply.send(Ok(body));
            return Ok(());
        }
        let usage = state.usage.take();
        let Some(at) = state.turns.iter().position(|(turn, _)| turn.id == id) else { return Ok(()) };
        let outcome = outcome(&body)?;
        // Those before it were refused, or they would have been answered before.
        let over: Vec<_> = state.turns.drain(..=at).collect();
        drop(state);
        for (turn, _slot) in over {
            if turn.id == id {
                turn.end(Ok(TurnEnd { outcome: outcome.clone(), usage: usage.clone().unwrap_or_default() }));
            } else {
                turn.refuse();
            }
        }
        Ok(())
    }

    /// The child has said `error` to a command.
    pub(super) fn refuse(&self, id: &str, message: String) {
        let mut state = self.state();
        if let Some((reply, _slot)) = state.calls.remove(id) {
            drop(state);
            // A caller that no longer waits does not need to know.
            let _ = reply.send(Err(SynapsError::Refused(message)));
            return;
        }
        let Some(at) = state.turns.iter().position(|(turn, _)| turn.id == id) else { return };
        let is_behind = state.turns.iter().take(at).any(|(turn, _)| !turn.is_in_doubt());
        let Some((turn, _)) = state.turns.get(at) else { return };
        // A turn that has failed says so twice: now, and in its answer. One that was refused says it
        // once. While another turn is running, or if nobody asks, there is nothing to find out.
        if turn.doubt(message) && !is_behind {
            return;
        }
        if let Some((turn, _slot)) = state.turns.remove(at) {
            drop(state);
            turn.refuse();
        }
    }

    /// `turn` turned out not to have begun.
    pub(super) fn never_began(&self, turn: &Arc<Backlog>) {
        self.remove(turn);
        turn.refuse();
    }

    /// The handle of `turn` is gone.
    pub(super) fn abandon(&self, turn: &Arc<Backlog>) {
        turn.abandon();
        if turn.is_in_doubt() {
            self.remove(turn);
        }
    }

    /// Fails all commands, now and from now on. Turns may still be heard.
    pub(super) fn fail_calls(&self, verdict: SynapsError) {
        let mut state = self.state();
        let calls = std::mem::take(&mut state.calls);
        state.verdict = Some(verdict.clone());
        drop(state);
        self.slots.close();
        for (reply, _slot) in calls.into_values() {
            // A caller that no longer waits does not need to know.
            let _ = reply.send(Err(verdict.clone()));
        }
    }

    /// Fails all commands and all turns that are not over.
    pub(super) fn end(&self, verdict: SynapsError) {
        self.fail_calls(verdict.clone());
        let turns = std::mem::take(&mut self.state().turns);
        for (turn, _slot) in turns {
            turn.end(Err(verdict.clone()));
        }
    }

    /// Why there are no more answers, for a caller who found the way closed.
    pub(super) fn verdict(&self) -> SynapsError {
        self.state().verdict.clone().unwrap_or(SynapsError::CLOSED)
    }

    fn remove(&self, gone: &Arc<Backlog>) {
        self.state().turns.retain(|(turn, _)| !Arc::ptr_eq(turn, gone));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How a turn ended, by the members of its answer.
fn outcome(body: &Body) -> Result<TurnOutcome, SynapsError> {
    let is = |name: &str| body.get(name).and_then(Value::as_bool);
    match (is("ok"), is("cancelled")) {
        (Some(true), Some(true)) => Ok(TurnOutcome::Cancelled),
        (Some(true), _) => Ok(TurnOutcome::Completed),
        (Some(false), _) => {
            let message = body.get("error").and_then(Value::as_str).unwrap_or("it did not say why");
            Ok(TurnOutcome::Failed(message.to_owned()))
        }
        (None, _) => Err(SynapsError::protocol("the answer to a prompt does not say `ok`")),
    }
}
