//! Routes the events of the engine's sessions to the turns that run there.

use parlor_vocab::{
    FrontendReply, FrontendRequest, RegistryEvent, RegistryRequest, RunEnding, RunEvent, RunId,
    SessionCommand, SessionEvent, SessionId, SessionRefusal, SessionUpdate, StopCause, WhenBusy,
};
use serde_json::json;

use super::chat::{Chat, READY, SummaryTrigger, Work};
use super::code;
use super::machine::LoafMachine;
use super::pending::{Pending, TurnKey, TurnStep};

/// A turn that was taken out of its chat while its run continues in the engine.
#[derive(Debug)]
pub(super) struct OrphanedTurn {
    turn: String,
    run: Option<RunId>,
    /// The run that the session will start for the prompt, after those of other clients.
    queued: Option<RunId>,
}

impl LoafMachine {
    pub(super) fn on_registry_event(&mut self, event: &RegistryEvent) {
        if let Some(turn_key) = self.running_turns.get(&event.session).cloned() {
            self.on_turn_event(&turn_key, event);
        } else if self.orphans.contains_key(&event.session) {
            self.on_orphan_event(event);
        } else {
            self.on_idle_event(event);
        }
    }

    fn on_turn_event(&mut self, turn_key: &TurnKey, event: &RegistryEvent) {
        let Some(chat) = self.chats.get_mut(&turn_key.chat) else { return };
        if let SessionUpdate::Entry(entry) = &event.update {
            chat.last_seq = entry.seq;
        }
        let mut turn = match std::mem::take(&mut chat.work) {
            Work::Turn(turn) if turn.id == turn_key.turn => turn,
            other @ (Work::Idle | Work::Turn(_) | Work::Summary(_)) => return chat.work = other,
        };
        if turn.run.is_none() {
            if let Some(run) = started_run(&event.update, &turn.id) {
                turn.run = Some(run.clone());
                chat.saved_session = Some(event.session.clone());
                turn.on_run_started(chat, &mut self.out, &self.state);
                let (early_steers, is_stopping) =
                    (std::mem::take(&mut turn.early_steers), turn.stop_reason.is_some());
                turn.submitted_steers += early_steers.len();
                for text in early_steers {
                    self.submit_steer(&event.session, &text, Pending::Ignored);
                }
                if is_stopping {
                    self.submit_stop(&event.session, run);
                }
            } else if turn.is_unqueued_by(&event.update) {
                self.restore_work(turn_key, Work::Turn(turn));
                return self.abandon_turn(turn_key, code::UNQUEUED, code::UNQUEUED);
            } else {
                chat.show_other_run(&mut self.out, &event.update);
            }
            return self.restore_work(turn_key, Work::Turn(turn));
        }
        let Some(ending) = turn.on_update(chat, &mut self.out, &self.state, &event.update) else {
            return chat.work = Work::Turn(turn);
        };
        let is_shutdown = matches!(&ending, RunEnding::Stopped { cause: StopCause::Shutdown, .. });
        let summary = turn.finish(chat, &mut self.out, &self.state, &ending);
        self.keep_watching(&event.session);
        match summary {
            Some(reply_to) => self.start_compression(reply_to, &turn_key.chat, SummaryTrigger::Command),
            None if is_shutdown => self.ask_whether_closing(&turn_key.chat),
            None => self.start_next_turn(&turn_key.chat),
        }
    }

    /// After a shutdown stopped a run: asks whether this server is closing, or the process of another client that had the
    /// session open. The backend refuses all requests of a connection that is closing.
    fn ask_whether_closing(&mut self, chat: &str) {
        let request = FrontendRequest::Registry(RegistryRequest::DeleteIfUnused(None));
        self.out.submit(request, Pending::ClosingCheck(chat.to_owned()));
    }

    pub(super) fn on_closing_check(&mut self, chat: &str, answer: &Result<FrontendReply, SessionRefusal>) {
        match answer {
            Ok(_) => self.start_next_turn(chat),
            Err(_) => self.is_closing = true,
        }
    }

    fn restore_work(&mut self, turn_key: &TurnKey, work: Work) {
        if let Some(chat) = self.chats.get_mut(&turn_key.chat) {
            chat.work = work;
        }
    }

    /// Submits a steering text for the run of a session.
    pub(super) fn submit_steer(&mut self, session: &SessionId, text: &str, pending: Pending) {
        let by = Some(self.out.sender());
        let input = parlor_vocab::UserInput { text: text.to_owned(), by, ..Default::default() };
        let send = SessionCommand::Send { input, when_busy: WhenBusy::Steer };
        self.out.submit(FrontendRequest::Registry(RegistryRequest::Session(session.clone(), send)), pending);
    }

    /// Submits a request to stop a run.
    pub(super) fn submit_stop(&mut self, session: &SessionId, run: RunId) {
        let reason = Some(code::interrupted(false).to_owned());
        let stop = SessionCommand::Stop { run: Some(run), reason };
        self.out.submit(
            FrontendRequest::Registry(RegistryRequest::Session(session.clone(), stop)),
            Pending::Ignored,
        );
    }

    /// Takes a prompt back that waits for the runs of other clients.
    pub(super) fn submit_unqueue(&mut self, session: &SessionId, run: RunId) {
        let request = RegistryRequest::Session(session.clone(), SessionCommand::Unqueue(run));
        self.out.submit(FrontendRequest::Registry(request), Pending::Ignored);
    }

    /// Stops watching a session of the engine.
    pub(super) fn unwatch(&mut self, session: &SessionId) {
        self.running_turns.remove(session);
        self.orphans.remove(session);
        self.out
            .submit(FrontendRequest::Registry(RegistryRequest::Unwatch(session.clone())), Pending::Ignored);
    }

    /// Stops the work of a session and takes it out of the session. Its later events are not sent, so the session is
    /// ready at once.
    pub(super) fn cancel_work(&mut self, id: &str) {
        if !self.chats.get(id).is_some_and(Chat::is_pending) {
            return;
        }
        self.take_work(id);
        if let Some(chat) = self.chats.get_mut(id) {
            chat.set_status(&mut self.out, READY, None);
        }
    }

    fn take_work(&mut self, id: &str) {
        let Some(chat) = self.chats.get_mut(id) else { return };
        match std::mem::take(&mut chat.work) {
            Work::Idle => {}
            Work::Summary(summary) => {
                self.out.send_error(&summary.reply_to.id, &code::not_compressed(code::SESSION_CLEARED));
                if let Some(saved) = chat.saved_session.clone() {
                    let stop = SessionCommand::Stop { run: None, reason: None };
                    let request = FrontendRequest::Registry(RegistryRequest::Session(saved, stop));
                    self.out.submit(request, Pending::Ignored);
                }
            }
            Work::Turn(mut turn) => {
                turn.accept(&chat.id, &mut self.out);
                if let Some(super::turn::StopReason::Summary(reply_to)) = turn.stop_reason.take() {
                    self.out.send_error(&reply_to.id, &code::not_compressed(code::SESSION_CLEARED));
                }
                let payload =
                    json!({"session_id": chat.id, "turn_id": turn.id, "partial_output": turn.has_answer()});
                self.out.send_event("session.interrupted", &payload);
                let Some((session, _)) = turn.session.clone() else { return };
                if turn.is_of_other_client {
                    return self.unwatch(&session);
                }
                self.running_turns.remove(&session);
                match (turn.run.clone(), turn.queued.clone()) {
                    (Some(run), _) => self.submit_stop(&session, run),
                    (None, Some(queued)) => self.submit_unqueue(&session, queued),
                    (None, None) => {}
                }
                let orphan = OrphanedTurn { turn: turn.id, run: turn.run, queued: turn.queued };
                self.orphans.insert(session, orphan);
            }
        }
    }

    fn on_orphan_event(&mut self, event: &RegistryEvent) {
        let Some(orphan) = self.orphans.get_mut(&event.session) else { return };
        if orphan.run.is_none() && is_unqueued(orphan.queued.as_ref(), &event.update) {
            return self.unwatch(&event.session);
        }
        if orphan.run.is_none() {
            orphan.run = started_run(&event.update, &orphan.turn);
            if let Some(run) = orphan.run.clone() {
                self.submit_stop(&event.session, run);
            }
            return;
        }
        let has_ended = matches!(&event.update, SessionUpdate::Entry(entry) if matches!(
            &entry.event,
            SessionEvent::Run { run, event: RunEvent::Ended { .. }, .. } if orphan.run.as_ref() == Some(run)
        ));
        if has_ended {
            self.orphans.remove(&event.session);
            // Other clients may open it now.
            let request = FrontendRequest::Registry(RegistryRequest::Release(event.session.clone()));
            self.out.submit(request, Pending::Ignored);
        }
    }

    /// Handles the answer to a step of a turn that is no longer in its chat.
    pub(super) fn on_late_step(
        &mut self,
        turn_key: &TurnKey,
        step: TurnStep,
        answer: &Result<FrontendReply, SessionRefusal>,
    ) {
        let is_refused =
            answer.is_err() && matches!(step, TurnStep::Create | TurnStep::Watch | TurnStep::Send);
        let orphan =
            self.orphans.iter().find(|(_, orphan)| orphan.turn == turn_key.turn && orphan.run.is_none());
        if let Some(session) = orphan.map(|(session, _)| session.clone()).filter(|_| is_refused) {
            self.unwatch(&session);
        }
    }
}

/// Whether this update removes the prompt that waits to start the run `queued` from the queue.
pub(super) fn is_unqueued(queued: Option<&RunId>, update: &SessionUpdate) -> bool {
    let SessionUpdate::Entry(entry) = update else { return false };
    matches!((&entry.event, queued), (SessionEvent::Unqueued { runs }, Some(queued)) if runs.contains(queued))
}

/// The run of the turn, if this update is its start.
fn started_run(update: &SessionUpdate, turn: &str) -> Option<RunId> {
    let SessionUpdate::Entry(entry) = update else { return None };
    match &entry.event {
        SessionEvent::Run { run, event: RunEvent::Started { parent: None, input, .. }, .. }
            if input.key.as_deref() == Some(turn) =>
        {
            Some(run.clone())
        }
        SessionEvent::Run { .. }
        | SessionEvent::Created(_)
        | SessionEvent::Renamed { .. }
        | SessionEvent::AgentChosen(_)
        | SessionEvent::Queued(_)
        | SessionEvent::Unqueued { .. }
        | SessionEvent::Cleared
        | SessionEvent::Compacted { .. }
        | SessionEvent::MessageAdded(_) => None,
    }
}
