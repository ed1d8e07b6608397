//! Routes the events of the engine's sessions to the turns that run there.

use parlor_vocab::{
    FrontendReply, FrontendRequest, RegistryEvent, RegistryReply, RegistryRequest, RunEnding, RunEvent,
    RunId, SessionCommand, SessionEvent, SessionId, SessionRefusal, SessionReply, SessionUpdate, StopCause,
    WhenBusy,
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
            } else if let Some(queued) = queued_run(&event.update, &turn.id) {
                self.restore_work(turn_key, Work::Turn(turn));
                return self.on_turn_queued(turn_key, queued);
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
        if let Some(queued) = queued_run(&event.update, &orphan.turn) {
            return self.unqueue_orphan(&event.session, queued);
        }
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

    /// The prompt of an orphaned turn waits to start `run`: takes it back.
    fn unqueue_orphan(&mut self, session: &SessionId, run: RunId) {
        let Some(orphan) = self.orphans.get_mut(session) else { return };
        if orphan.run.is_none() && orphan.queued.is_none() {
            orphan.queued = Some(run.clone());
            self.submit_unqueue(session, run);
        }
    }

    /// Handles the answer to a step of a turn that is no longer in its chat.
    pub(super) fn on_late_step(
        &mut self,
        turn_key: &TurnKey,
        step: TurnStep,
        answer: &Result<FrontendReply, SessionRefusal>,
    ) {
        let orphan =
            self.orphans.iter().find(|(_, orphan)| orphan.turn == turn_key.turn && orphan.run.is_none());
        let Some(session) = orphan.map(|(session, _)| session.clone()) else { return };
        match (step, answer) {
            (TurnStep::Create | TurnStep::Watch | TurnStep::Send, Err(_)) => self.unwatch(&session),
            (
                TurnStep::Send,
                Ok(FrontendReply::Registry(RegistryReply::Session(SessionReply::Queued { run, .. }))),
            ) => self.unqueue_orphan(&session, run.clone()),
            _ => {}
        }
    }
}

/// Whether this update removes the prompt that waits to start the run `queued` from the queue.
pub(super) fn is_unqueued(queued: Option<&RunId>, update: &SessionUpdate) -> bool {
    let SessionUpdate::Entry(entry) = update else { return false };
    matches!((&entry.event, queued), (SessionEvent::Unqueued { runs }, Some(queued)) if runs.contains(queued))
}

/// The run that the prompt of the turn waits to start, if this update adds the prompt to the queue.
fn queued_run(update: &SessionUpdate, turn: &str) -> Option<RunId> {
    let SessionUpdate::Entry(entry) = update else { return None };
    let SessionEvent::Queued(queued) = &entry.event else { return None };
    (queued.input.key.as_deref() == Some(turn)).then(|| queued.run.clone())
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
        | SessionEvent::ModeChosen { .. }
        | SessionEvent::Queued(_)
        | SessionEvent::Unqueued { .. }
        | SessionEvent::Cleared
        | SessionEvent::Compacted { .. }
        | SessionEvent::MessageAdded(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::Arc;
    use std::time::Instant;

    use parlor_vocab::{
        AgentChoice, AgentId, Credentials, Entry, EventId, FrontendEvent, ModelOption, Preferences,
        QueuedInput, Seq, Ticket, Timestamp, UserInput, WatchFrom,
    };
    use serde_json::Value;

    use super::*;
    use crate::fuzz_harness::DeterministicSource;
    use crate::loaf::ServerParams;
    use crate::{Input, Machine, Output};

    /// A server whose only client has sent a prompt in a new session. The backend has answered nothing yet.
    struct Server {
        machine: LoafMachine,
        /// The id of the client's session.
        chat: String,
        /// The session of the engine, the key of the prompt and the request that sends it.
        session: SessionId,
        key: String,
        sent: Ticket,
        seq: Seq,
        frames: Vec<Value>,
        requests: Vec<RegistryRequest>,
    }

    impl Server {
        fn with_prompt() -> Self {
            let mut machine = LoafMachine::new(params());
            let (frames, _) = talk(&mut machine, r#"{"jsonrpc":"2.0","id":1,"method":"session.create"}"#);
            let created = frames.iter().find(|frame| frame["id"] == 1).unwrap();
            let chat = created["result"]["session_id"].as_str().unwrap().to_owned();
            let send = json!({"session_id": chat, "text": "hi"});
            let send = json!({"jsonrpc": "2.0", "id": 2, "method": "session.send", "params": send});
            let (_, requests) = talk(&mut machine, &send.to_string());
            let (sent, session, key) = requests.into_iter().find_map(sent_prompt).unwrap();
            let (frames, requests) = (Vec::new(), Vec::new());
            Self { machine, chat, session, key, sent, seq: Seq(1), frames, requests }
        }

        fn drain(&mut self) {
            let (frames, requests) = drain(&mut self.machine);
            self.frames.extend(frames);
            self.requests.extend(requests.into_iter().map(|(_, request)| request));
        }

        fn on_event(&mut self, event: SessionEvent) {
            self.seq = Seq(self.seq.0 + 1);
            let entry = Entry { seq: self.seq, id: EventId::parse("e").unwrap(), at: Timestamp(0), event };
            let update = SessionUpdate::Entry(Arc::new(entry));
            let event = FrontendEvent::Registry(RegistryEvent { session: self.session.clone(), update });
            self.machine.handle(Instant::now(), Input::Event(&event));
            self.drain();
        }

        fn on_queued(&mut self) {
            let input = UserInput { key: Some(self.key.clone()), ..UserInput::default() };
            self.on_event(SessionEvent::Queued(QueuedInput { run: run(), input }));
        }

        fn on_unqueued(&mut self) {
            self.on_event(SessionEvent::Unqueued { runs: vec![run()] });
        }

        fn on_queued_reply(&mut self) {
            let reply = RegistryReply::Session(SessionReply::Queued { run: run(), waiting: 1 });
            let answer = Input::Answer(self.sent, Ok(FrontendReply::Registry(reply)));
            self.machine.handle(Instant::now(), answer);
            self.drain();
        }

        /// Makes an orphan of the turn.
        fn clear_session(&mut self) {
            let params = json!({"session_id": self.chat});
            let clear =
                json!({"jsonrpc": "2.0", "id": 3, "method": "history.clear_session", "params": params});
            self.machine.handle(Instant::now(), Input::Frame(clear.to_string().as_bytes()));
            self.drain();
        }

        fn unqueue_requests(&self) -> usize {
            let unqueue = RegistryRequest::Session(self.session.clone(), SessionCommand::Unqueue(run()));
            self.requests.iter().filter(|request| **request == unqueue).count()
        }

        fn has_unwatched(&self) -> bool {
            self.requests.contains(&RegistryRequest::Unwatch(self.session.clone()))
        }
    }

    fn run() -> RunId {
        RunId::parse("r").unwrap()
    }

    fn params() -> ServerParams {
        let source = DeterministicSource::new(Timestamp(1));
        let text = String::new;
        ServerParams {
            folder: "/".into(),
            user_home: None,
            chats_path: "/chats".into(),
            preferences: Preferences {
                model: text(),
                provider: text(),
                reasoning: text(),
                route: text(),
                setup_done: false,
            },
            models: vec![ModelOption {
                id: "local".to_owned(),
                provider: "openai".to_owned(),
                provider_label: None,
                label: "local".to_owned(),
                description: text(),
                context_window: None,
                choice: AgentChoice { agent: AgentId::parse("local").ok(), ..AgentChoice::default() },
            }],
            credentials: Credentials::default(),
            skill_folders: Vec::new(),
            skill_count: 0,
            agent_commands: HashMap::new(),
            tools: Vec::new(),
            clock: Arc::clone(&source) as _,
            ids: source,
        }
    }

    fn talk(machine: &mut LoafMachine, line: &str) -> (Vec<Value>, Vec<(Ticket, RegistryRequest)>) {
        machine.handle(Instant::now(), Input::Frame(line.as_bytes()));
        drain(machine)
    }

    fn drain(machine: &mut LoafMachine) -> (Vec<Value>, Vec<(Ticket, RegistryRequest)>) {
        let (mut frames, mut requests) = (Vec::new(), Vec::new());
        while let Some(output) = machine.poll() {
            match output {
                Output::Send(frame) => frames.push(serde_json::from_slice(&frame).unwrap()),
                Output::Request(ticket, FrontendRequest::Registry(request)) => {
                    requests.push((ticket, request))
                }
                other @ (Output::SendShared(_) | Output::Request(..) | Output::WakeAt(_) | Output::Close) => {
                    panic!("unexpected: {other:?}")
                }
            }
        }
        (frames, requests)
    }

    fn sent_prompt((ticket, request): (Ticket, RegistryRequest)) -> Option<(Ticket, SessionId, String)> {
        let RegistryRequest::Session(session, SessionCommand::Send { input, .. }) = request else {
            return None;
        };
        Some((ticket, session, input.key?))
    }

    #[test]
    fn a_prompt_that_is_unqueued_before_its_reply_ends() {
        let mut server = Server::with_prompt();
        server.on_queued();
        server.on_unqueued();
        let ends = server.frames.iter().filter(|frame| frame["params"]["type"] == "session.error");
        assert_eq!(ends.count(), 1, "{:?}", server.frames);
        assert!(server.has_unwatched());
        server.on_queued_reply();
        assert_eq!(server.unqueue_requests(), 0);
    }

    #[test]
    fn the_queued_prompt_of_an_orphaned_turn_is_taken_back_once() {
        for is_reply_first in [true, false] {
            let mut server = Server::with_prompt();
            server.clear_session();
            assert_eq!(server.unqueue_requests(), 0, "its run is not known yet");
            if is_reply_first {
                server.on_queued_reply();
                server.on_queued();
            } else {
                server.on_queued();
                server.on_queued_reply();
            }
            assert_eq!(server.unqueue_requests(), 1, "reply first: {is_reply_first}");
            assert!(!server.has_unwatched());
            server.on_unqueued();
            assert!(server.has_unwatched());
        }
    }

    #[test]
    fn a_new_session_is_deleted_only_if_no_other_client_uses_it() {
        let mut unqueued = Server::with_prompt();
        unqueued.on_queued_reply();
        unqueued.on_unqueued();
        let delete = RegistryRequest::Delete(unqueued.session.clone());
        assert!(!unqueued.requests.contains(&delete), "{:?}", unqueued.requests);
        let after = WatchFrom::At(unqueued.seq);
        let watch = RegistryRequest::Watch { session: unqueued.session.clone(), after, deltas: true };
        assert!(unqueued.requests.contains(&watch), "{:?}", unqueued.requests);

        let mut refused = Server::with_prompt();
        let refusal = SessionRefusal::LogUnavailable { reason: "the disk is full".to_owned() };
        refused.machine.handle(Instant::now(), Input::Answer(refused.sent, Err(refusal)));
        refused.drain();
        let delete = RegistryRequest::Delete(refused.session.clone());
        assert!(refused.requests.contains(&delete), "{:?}", refused.requests);
    }
}
