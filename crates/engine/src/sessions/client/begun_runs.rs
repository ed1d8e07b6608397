//! The runs that a client has begun, so that they can be stopped when the client leaves.

use std::collections::{HashMap, VecDeque};

use parlor_vocab::{RegistryReply, RegistryRequest, RunId, SessionCommand, SessionId, SessionReply, Ticket};

use super::dispatch::Outcome;

/// For how many sessions the newest run is remembered. Runs in sessions that were used before these go on when the client
/// leaves.
const MAX_SESSIONS: usize = 64;

/// The newest run that a client began in each of its sessions.
#[derive(Default)]
pub(super) struct BegunRuns {
    /// The sessions of inputs that are not accepted yet.
    sending: HashMap<Ticket, SessionId>,
    /// The session that was used longest ago is the first.
    newest: VecDeque<(SessionId, RunId)>,
}

impl BegunRuns {
    pub(super) fn on_request(&mut self, ticket: Ticket, request: &RegistryRequest) {
        if let RegistryRequest::Session(session, SessionCommand::Send { .. }) = request {
            self.sending.insert(ticket, session.clone());
        }
    }

    pub(super) fn on_answer(&mut self, ticket: Ticket, outcome: &Outcome) {
        let Some(session) = self.sending.remove(&ticket) else { return };
        let Ok(RegistryReply::Session(SessionReply::Started(run) | SessionReply::Queued { run, .. })) =
            outcome
        else {
            return;
        };
        self.newest.retain(|(known, _)| *known != session);
        self.newest.push_back((session, run.clone()));
        if self.newest.len() > MAX_SESSIONS {
            self.newest.pop_front();
        }
    }

    pub(super) fn take_newest(&mut self) -> VecDeque<(SessionId, RunId)> {
        std::mem::take(&mut self.newest)
    }
}
