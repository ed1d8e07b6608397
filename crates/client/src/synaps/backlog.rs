//! What happened in one turn and its handle has not taken yet: a queue bounded by bytes.
//!
//! The connection's task puts in, the one handle takes out; each side waits for the other. Knows
//! nothing of the wire.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::{SynapsError, TurnEnd, TurnEvent};

/// How much of one turn is kept for a handle that does not take it, measured as the frames were
/// written.
pub const TURN_BACKLOG_BYTES: usize = 8 << 20;

/// What an event costs on top of its bytes.
const EVENT_OVERHEAD_BYTES: usize = 128;

/// A turn as the connection's task sees it.
#[derive(Debug)]
pub(super) struct Backlog {
    /// The id under which the turn's answer comes.
    pub(super) id: String,
    /// A plain mutex: it is held for a queue operation and never across an `await`.
    state: Mutex<State>,
    /// Something to take. One permit is enough, since there is one handle.
    arrived: Notify,
    /// Something was taken. One permit is enough, since there is one task that puts in.
    room: Notify,
}

#[derive(Debug, Default)]
struct State {
    events: VecDeque<(TurnEvent, usize)>,
    bytes: usize,
    /// The child's `error` under the turn's id: it was refused, or has failed and will say so.
    error: Option<String>,
    end: Option<Result<TurnEnd, SynapsError>>,
    /// The handle is gone.
    is_abandoned: bool,
    /// An abort cut off what follows.
    is_cut: bool,
    /// How many aborts wait for their answer.
    aborting: usize,
}

/// What a handle can take.
#[derive(Debug)]
pub(super) enum Taken {
    Event(TurnEvent),
    End(Result<TurnEnd, SynapsError>),
    /// The child has said `error` and nothing since: it may have refused the turn.
    InDoubt,
    Nothing,
}

impl Backlog {
    pub(super) fn new(id: String) -> Self {
        Self { id, state: Mutex::default(), arrived: Notify::new(), room: Notify::new() }
    }

    /// Puts in an event that took `bytes` on the wire, or gives it back if there is no room.
    pub(super) fn offer(&self, event: TurnEvent, bytes: usize) -> Result<(), TurnEvent> {
        let mut state = self.state();
        if state.is_abandoned || state.is_cut {
            return Ok(());
        }
        let cost = bytes + EVENT_OVERHEAD_BYTES;
        // An event over the limit is taken alone, or it would never be taken.
        if state.bytes + cost > TURN_BACKLOG_BYTES && !state.events.is_empty() {
            if state.aborting == 0 {
                return Err(event);
            }
            // The answer to the abort is behind this event, and its caller may not be able to make
            // room: waiting would be forever. What is kept stays a prefix of what happened.
            state.is_cut = true;
            return Ok(());
        }
        state.bytes += cost;
        state.events.push_back((event, cost));
        drop(state);
        self.arrived.notify_one();
        Ok(())
    }

    /// Puts in an event, once there is room.
    pub(super) async fn push(&self, mut event: TurnEvent, bytes: usize) {
        while let Err(back) = self.offer(event, bytes) {
            event = back;
            self.room.notified().await;
        }
    }

    /// The child has said `error` under the turn's id. False if nobody is there to find out more.
    pub(super) fn doubt(&self, message: String) -> bool {
        let mut state = self.state();
        state.error = Some(message);
        let has_handle = !state.is_abandoned;
        drop(state);
        self.arrived.notify_one();
        has_handle
    }

    pub(super) fn is_in_doubt(&self) -> bool {
        self.state().error.is_some()
    }

    /// The first end is the one that counts.
    pub(super) fn end(&self, end: Result<TurnEnd, SynapsError>) {
        self.state().end.get_or_insert(end);
        self.arrived.notify_one();
    }

    /// The turn never began, as the child's `error` said.
    pub(super) fn refuse(&self) {
        let message = self.state().error.clone().unwrap_or_default();
        self.end(Err(SynapsError::Refused(message)));
    }

    pub(super) fn take(&self) -> Taken {
        let mut state = self.state();
        if let Some((event, cost)) = state.events.pop_front() {
            state.bytes -= cost;
            drop(state);
            self.room.notify_one();
            return Taken::Event(event);
        }
        match (&state.end, &state.error) {
            (Some(end), _) => Taken::End(end.clone()),
            (None, Some(_)) => Taken::InDoubt,
            (None, None) => Taken::Nothing,
        }
    }

    /// Waits until there may be more to take.
    pub(super) async fn arrived(&self) {
        self.arrived.notified().await;
    }

    /// The handle is gone: forgets the events and lets the task go on.
    pub(super) fn abandon(&self) {
        let mut state = self.state();
        state.is_abandoned = true;
        state.bytes = 0;
        let events = std::mem::take(&mut state.events);
        drop(state);
        drop(events);
        self.room.notify_one();
    }

    /// Until as many calls of [`no_longer_aborting`](Self::no_longer_aborting), events that find no
    /// room are cut off instead of waiting.
    pub(super) fn aborting(&self) {
        self.state().aborting += 1;
        self.room.notify_one();
    }

    pub(super) fn no_longer_aborting(&self) {
        self.state().aborting -= 1;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::super::AssistantEvent;
    use super::*;

    fn event() -> TurnEvent {
        TurnEvent::Assistant(AssistantEvent::TextDelta { delta: "x".to_owned() })
    }

    fn backlog() -> Backlog {
        Backlog::new("1".to_owned())
    }

    #[test]
    fn an_event_over_the_limit_is_taken_alone() {
        let backlog = backlog();
        assert!(backlog.offer(event(), TURN_BACKLOG_BYTES + 1).is_ok());
        assert!(backlog.offer(event(), 1).is_err());
        assert!(matches!(backlog.take(), Taken::Event(_)));
        assert!(backlog.offer(event(), 1).is_ok());
    }

    #[test]
    fn small_events_cost_more_than_their_bytes() {
        let backlog = backlog();
        let taken = (0..TURN_BACKLOG_BYTES).take_while(|_| backlog.offer(event(), 1).is_ok()).count();
        assert_eq!(taken, TURN_BACKLOG_BYTES / (1 + EVENT_OVERHEAD_BYTES));
    }

    #[test]
    fn what_an_abort_leaves_is_a_prefix() {
        let backlog = backlog();
        assert!(backlog.offer(event(), TURN_BACKLOG_BYTES).is_ok());
        backlog.aborting();
        assert!(backlog.offer(event(), 1).is_ok(), "cut off");
        backlog.no_longer_aborting();
        assert!(matches!(backlog.take(), Taken::Event(_)));
        assert!(backlog.offer(event(), 1).is_ok());
        assert!(matches!(backlog.take(), Taken::Nothing), "nothing follows the cut");
    }

    #[test]
    fn the_first_end_counts_and_comes_after_the_events() {
        let backlog = backlog();
        assert!(backlog.offer(event(), 1).is_ok());
        assert!(backlog.doubt("no".to_owned()));
        backlog.refuse();
        backlog.end(Err(SynapsError::CLOSED));
        assert!(matches!(backlog.take(), Taken::Event(_)));
        assert!(matches!(backlog.take(), Taken::End(Err(SynapsError::Refused(text))) if text == "no"));
    }
}
