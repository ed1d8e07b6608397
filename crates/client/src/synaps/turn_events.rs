//! The events of one turn that its handle has not taken yet, and how the turn ended.

use super::{SynapsError, TurnEnd, TurnEvent};
use crate::child::backlog::{Backlog, DropOverflow};

/// How much of one turn is kept for a handle that does not take its events, measured in bytes on the wire.
pub const TURN_BACKLOG_BYTES: usize = 8 << 20;

/// What an event costs on top of its bytes.
const EVENT_OVERHEAD_BYTES: usize = 128;

#[derive(Debug)]
pub(super) struct TurnEvents {
    /// The id of the command that began the turn; the turn's answer has it too.
    pub(super) id: String,
    backlog: Backlog<TurnEvent, TurnStatus>,
}

#[derive(Debug, Default)]
pub(super) struct TurnStatus {
    /// The text of the child's `error` with the turn's id. The child has refused the turn, or the turn has failed and its
    /// answer will follow.
    error: Option<String>,
    end: Option<Result<TurnEnd, SynapsError>>,
}

/// What a handle finds when it takes the next event.
#[derive(Debug)]
pub(super) enum NextEvent {
    Event(TurnEvent),
    End(Result<TurnEnd, SynapsError>),
    /// The child has sent `error` and nothing since: it may have refused the turn.
    RefusedOrFailed,
    /// Nothing has arrived.
    Nothing,
}

impl TurnEvents {
    pub(super) fn new(id: String) -> Self {
        Self { id, backlog: Backlog::new(TURN_BACKLOG_BYTES) }
    }

    /// Puts in an event that had `bytes` on the wire, or returns it if there is no room.
    pub(super) fn try_push(&self, event: TurnEvent, bytes: usize) -> Result<(), TurnEvent> {
        self.backlog.try_push(event, bytes + EVENT_OVERHEAD_BYTES)
    }

    /// Puts in an event once there is room.
    pub(super) async fn push(&self, event: TurnEvent, bytes: usize) {
        self.backlog.push(event, bytes + EVENT_OVERHEAD_BYTES).await;
    }

    /// Notes the child's `error` with the turn's id. Returns whether the turn has a handle, which then finds out whether the
    /// turn was refused.
    pub(super) fn set_error(&self, message: String) -> bool {
        self.backlog.set_status(|status| status.error = Some(message));
        !self.backlog.is_abandoned()
    }

    pub(super) fn has_error(&self) -> bool {
        self.backlog.status(|status| status.error.is_some())
    }

    /// Notes how the turn ended. Only the first end counts.
    pub(super) fn end(&self, end: Result<TurnEnd, SynapsError>) {
        self.backlog.set_status(|status| {
            status.end.get_or_insert(end);
        });
    }

    /// Ends the turn as refused, with the text of the child's `error`.
    pub(super) fn refuse(&self) {
        let message = self.backlog.status(|status| status.error.clone()).unwrap_or_default();
        self.end(Err(SynapsError::Refused(message)));
    }

    pub(super) fn take(&self) -> NextEvent {
        let taken = self.backlog.take(|status| match (&status.end, &status.error) {
            (Some(end), _) => NextEvent::End(end.clone()),
            (None, Some(_)) => NextEvent::RefusedOrFailed,
            (None, None) => NextEvent::Nothing,
        });
        taken.map_or_else(|status| status, NextEvent::Event)
    }

    /// Waits until there may be more to take.
    pub(super) async fn arrived(&self) {
        self.backlog.arrived().await;
    }

    /// Drops all events, because the handle is gone.
    pub(super) fn abandon(&self) {
        self.backlog.abandon();
    }

    /// Drops events that do not fit until the guard is dropped: the answer to an `abort` comes after the events.
    pub(super) fn drop_overflow(&self) -> DropOverflow<'_, TurnEvent, TurnStatus> {
        self.backlog.drop_overflow()
    }
}

#[cfg(test)]
mod tests {
    use super::super::AssistantEvent;
    use super::*;

    fn event() -> TurnEvent {
        TurnEvent::Assistant(AssistantEvent::TextDelta { delta: "x".to_owned() })
    }

    #[test]
    fn small_events_cost_more_than_their_bytes() {
        let turn = TurnEvents::new("1".to_owned());
        let accepted = (0..TURN_BACKLOG_BYTES).take_while(|_| turn.try_push(event(), 1).is_ok()).count();
        assert_eq!(accepted, TURN_BACKLOG_BYTES / (1 + EVENT_OVERHEAD_BYTES));
    }

    #[test]
    fn the_first_end_counts_and_comes_after_the_events() {
        let turn = TurnEvents::new("1".to_owned());
        assert!(turn.try_push(event(), 1).is_ok());
        assert!(turn.set_error("no".to_owned()));
        turn.refuse();
        turn.end(Err(SynapsError::CLOSED));
        assert!(matches!(turn.take(), NextEvent::Event(_)));
        assert!(matches!(turn.take(), NextEvent::End(Err(SynapsError::Refused(text))) if text == "no"));
    }
}
