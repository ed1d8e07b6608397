//! What happens in the engine's sessions, handed to the turns that are at work there.

use parlor_vocab::{
    FrontendReply, FrontendRequest, RegistryEvent, RegistryRequest, RunEnding, RunEvent, RunId,
    SessionCommand, SessionEvent, SessionId, SessionRefusal, SessionUpdate, StopCause, WhenBusy,
};
use serde_json::json;

use super::chat::{SummaryFor, Work};
use super::code;
use super::machine::LoafMachine;
use super::pending::{Pending, Place, TurnStep};

/// A turn that nobody hears of any more.
#[derive(Debug)]
pub(super) struct Dropped {
    turn: String,
    run: Option<RunId>,
}

impl LoafMachine {
    pub(super) fn on_seen(&mut self, event: &RegistryEvent) {
        if let Some(place) = self.running.get(&event.session).cloned() {
            self.on_turn(&place, event);
        } else if self.dropped.contains_key(&event.session) {
            self.on_dropped(event);
        }
    }

    fn on_turn(&mut self, place: &Place, event: &RegistryEvent) {
        let Some(chat) = self.chats.get_mut(&place.chat) else { return };
        if let SessionUpdate::Entry(entry) = &event.seen {
            chat.seen = entry.seq;
        }
        let mut turn = match std::mem::take(&mut chat.work) {
            Work::Turn(turn) if turn.id == place.turn => turn,
            other @ (Work::Idle | Work::Turn(_) | Work::Summary(_)) => return chat.work = other,
        };
        if turn.run.is_none() {
            if let Some(run) = started(&event.seen, &turn.id) {
                turn.run = Some(run.clone());
                chat.saved = Some(event.session.clone());
                turn.begin(chat, &mut self.out, &self.state);
                let (early, is_stopping) = (std::mem::take(&mut turn.early), turn.stopping.is_some());
                turn.handed_on += early.len();
                for text in early {
                    self.pass_on(&event.session, &text, Pending::Nothing);
                }
                if is_stopping {
                    self.stop_run(&event.session, run);
                }
            }
            return self.put_back(place, Work::Turn(turn));
        }
        let Some(ending) = turn.see(chat, &mut self.out, &self.state, &event.seen) else {
            return chat.work = Work::Turn(turn);
        };
        if matches!(&ending, RunEnding::Stopped { cause: StopCause::Shutdown, .. }) {
            self.is_closing = true;
        }
        let summary = turn.finish(chat, &mut self.out, &self.state, &ending);
        self.stop_watching(&event.session);
        match summary {
            Some(to) => self.compress(to, &place.chat, SummaryFor::Command),
            None => self.start_next(&place.chat),
        }
    }

    fn put_back(&mut self, place: &Place, work: Work) {
        if let Some(chat) = self.chats.get_mut(&place.chat) {
            chat.work = work;
        }
    }

    /// Hands text to the run of a session.
    pub(super) fn pass_on(&mut self, session: &SessionId, text: &str, pending: Pending) {
        let input = parlor_vocab::UserInput { text: text.to_owned(), ..Default::default() };
        let send = SessionCommand::Send { input, when_busy: WhenBusy::Steer };
        self.out.ask(FrontendRequest::Registry(RegistryRequest::Session(session.clone(), send)), pending);
    }

    /// Stops a run.
    pub(super) fn stop_run(&mut self, session: &SessionId, run: RunId) {
        let reason = Some(code::interrupted(false).to_owned());
        let stop = SessionCommand::Stop { run: Some(run), reason };
        self.out.ask(
            FrontendRequest::Registry(RegistryRequest::Session(session.clone(), stop)),
            Pending::Nothing,
        );
    }

    /// Nothing more is heard of a session of the engine.
    pub(super) fn stop_watching(&mut self, session: &SessionId) {
        self.running.remove(session);
        self.dropped.remove(session);
        self.out.ask(FrontendRequest::Registry(RegistryRequest::Unwatch(session.clone())), Pending::Nothing);
    }

    /// Takes what is at work out of a session: it is stopped, and what it still says reaches nobody.
    pub(super) fn detach(&mut self, chat: &str) {
        let Some(chat) = self.chats.get_mut(chat) else { return };
        match std::mem::take(&mut chat.work) {
            Work::Idle => {}
            Work::Summary(summary) => {
                self.out.refuse(&summary.to.id, &code::not_compressed(code::SESSION_CLEARED));
                if let Some(saved) = chat.saved.clone() {
                    let stop = SessionCommand::Stop { run: None, reason: None };
                    let command = FrontendRequest::Registry(RegistryRequest::Session(saved, stop));
                    self.out.ask(command, Pending::Nothing);
                }
            }
            Work::Turn(mut turn) => {
                turn.accept(&chat.id, &mut self.out);
                if let Some(super::turn::Stopping::ForSummary(to)) = turn.stopping.take() {
                    self.out.refuse(&to.id, &code::not_compressed(code::SESSION_CLEARED));
                }
                let payload =
                    json!({"session_id": chat.id, "turn_id": turn.id, "partial_output": turn.has_said()});
                self.out.event("session.interrupted", &payload);
                let Some((session, _)) = turn.session.clone() else { return };
                self.running.remove(&session);
                if let Some(run) = turn.run.clone() {
                    self.stop_run(&session, run);
                }
                self.dropped.insert(session, Dropped { turn: turn.id, run: turn.run });
            }
        }
    }

    fn on_dropped(&mut self, event: &RegistryEvent) {
        let Some(dropped) = self.dropped.get_mut(&event.session) else { return };
        if dropped.run.is_none() {
            dropped.run = started(&event.seen, &dropped.turn);
            if let Some(run) = dropped.run.clone() {
                self.stop_run(&event.session, run);
            }
            return;
        }
        let has_ended = matches!(&event.seen, SessionUpdate::Entry(entry) if matches!(
            &entry.event,
            SessionEvent::Run { run, event: RunEvent::Ended { .. }, .. } if dropped.run.as_ref() == Some(run)
        ));
        if has_ended {
            self.dropped.remove(&event.session);
            // Others may go on with it.
            let command = FrontendRequest::Registry(RegistryRequest::Leave(event.session.clone()));
            self.out.ask(command, Pending::Nothing);
        }
    }

    /// An answer about a turn that is no more in its session.
    pub(super) fn on_late_step(
        &mut self,
        place: &Place,
        step: TurnStep,
        answer: &Result<FrontendReply, SessionRefusal>,
    ) {
        let is_refused =
            answer.is_err() && matches!(step, TurnStep::Create | TurnStep::Watch | TurnStep::Send);
        let of_turn =
            self.dropped.iter().find(|(_, dropped)| dropped.turn == place.turn && dropped.run.is_none());
        if let Some(session) = of_turn.map(|(session, _)| session.clone()).filter(|_| is_refused) {
            self.stop_watching(&session);
        }
    }
}

/// The run that the turn has become, if this is its start.
fn started(seen: &SessionUpdate, turn: &str) -> Option<RunId> {
    let SessionUpdate::Entry(entry) = seen else { return None };
    match &entry.event {
        SessionEvent::Run { run, event: RunEvent::Started { parent: None, input, .. }, .. }
            if input.key.as_deref() == Some(turn) =>
        {
            Some(run.clone())
        }
        SessionEvent::Run { .. }
        | SessionEvent::Created(_)
        | SessionEvent::Renamed { .. }
        | SessionEvent::Chosen(_)
        | SessionEvent::Queued(_)
        | SessionEvent::Unqueued { .. }
        | SessionEvent::Cleared
        | SessionEvent::Compacted { .. }
        | SessionEvent::MessageAdded(_) => None,
    }
}
