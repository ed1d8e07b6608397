//! A stored session as frames, without a parent: those that a parent would have got if it had sent all prompts.
//!
//! What the log does not have is not replayed: the answers to other commands than prompts, and the ids of prompts, which
//! are those of their runs here.

use std::time::Instant;

use parlor_vocab::{RegistryEvent, RunEvent, SessionEvent, SessionReply, SessionUpdate};

use super::machine::SynapsMachine;
use super::params::ChildParams;
use super::turn::Turn;
use crate::{Input, Machine, Output};

/// Makes frames of the updates of a stored session. Pass them in order, from the first event on.
pub struct SynapsReplay {
    machine: SynapsMachine,
}

impl SynapsReplay {
    /// Begins with the frame `ready`.
    pub fn new(params: ChildParams) -> Self {
        Self { machine: SynapsMachine::new(params) }
    }

    /// The frames of the next update, which happened at `now`. The first frame, `ready`, comes before those of the first
    /// update.
    pub fn frames(&mut self, now: Instant, update: &SessionUpdate) -> Vec<Vec<u8>> {
        if let SessionUpdate::Entry(entry) = update
            && let SessionEvent::Run { run, event: RunEvent::Started { parent: None, .. }, .. } = &entry.event
        {
            let mut turn = Turn::new(run.to_string(), String::new(), now);
            turn.on_accepted(SessionReply::Started(run.clone()));
            self.machine.turn = Some(turn);
        }
        let session = self.machine.params.session.clone();
        let event = RegistryEvent { session, update: update.clone() };
        self.machine.handle(now, Input::Event(&event));
        let mut frames = Vec::new();
        while let Some(output) = self.machine.poll() {
            // The machine requests nothing but the watch, whose events are the updates.
            if let Output::Send(frame) = output {
                frames.push(frame);
            }
        }
        frames
    }
}
