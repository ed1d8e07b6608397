//! A turn that another client of the session began. The parent sees its answer: the text and the `agent_end`.

use parlor_vocab::{RunEvent, RunId, SessionEvent, SessionUpdate, StreamKind};

use super::turn::{TurnTotals, text_delta};
use super::wire::RpcEvent;

/// A running turn of another client.
#[derive(Debug)]
pub(super) struct OtherTurn {
    pub(super) run: RunId,
    totals: TurnTotals,
}

impl OtherTurn {
    pub(super) fn new(run: RunId) -> Self {
        Self { run, totals: TurnTotals::default() }
    }

    /// The turn that this update begins, if it begins one.
    pub(super) fn begun_by(update: &SessionUpdate) -> Option<Self> {
        match run_event(update) {
            Some((run, RunEvent::Started { parent: None, agent, model, .. })) => {
                let mut turn = Self::new(run.clone());
                turn.totals.set_model(model.clone().unwrap_or_else(|| agent.to_string()));
                Some(turn)
            }
            _ => None,
        }
    }

    /// Handles an update of the session. Returns the frame for the parent, and whether the turn has ended.
    pub(super) fn on_update(&mut self, update: &SessionUpdate) -> (Option<RpcEvent>, bool) {
        if let SessionUpdate::Delta { run, stream: StreamKind::Message(_), text } = update
            && *run == self.run
        {
            return (Some(text_delta(text)), false);
        }
        match run_event(update) {
            Some((_, RunEvent::UsageAdded { usage, model })) => self.totals.add(*usage, model.as_ref()),
            Some((run, RunEvent::Ended { .. })) if *run == self.run => return (Some(self.end()), true),
            _ => {}
        }
        (None, false)
    }

    /// The frame that ends the turn for the parent.
    pub(super) fn end(&mut self) -> RpcEvent {
        RpcEvent::AgentEnd { usage: std::mem::take(&mut self.totals).into_wire() }
    }
}

fn run_event(update: &SessionUpdate) -> Option<(&RunId, &RunEvent)> {
    match update {
        SessionUpdate::Entry(entry) => match &entry.event {
            SessionEvent::Run { run, event, .. } => Some((run, event)),
            SessionEvent::Created(_)
            | SessionEvent::Renamed { .. }
            | SessionEvent::AgentChosen(_)
            | SessionEvent::ModeChosen { .. }
            | SessionEvent::Queued(_)
            | SessionEvent::Unqueued { .. }
            | SessionEvent::Cleared
            | SessionEvent::Compacted { .. }
            | SessionEvent::MessageAdded(_) => None,
        },
        SessionUpdate::Delta { .. } => None,
    }
}
