//! Turns that other clients of a saved chat begin: the server watches the chat between its own turns and shows them.
//!
//! While the session is idle, another client's run becomes a turn of the session: the client sees it as its own, and can
//! steer and interrupt it. While the session's own turn waits, only the messages of other runs are shown.

use parlor_vocab::{
    FrontendReply, FrontendRequest, MessageEvent, RegistryEvent, RegistryRequest, RunEvent, RunId, Seq,
    SessionEvent, SessionId, SessionRefusal, SessionUpdate, WatchFrom,
};

use super::chat::{Chat, Kind, ModelMessage, READY, Work};
use super::machine::{LoafMachine, Outgoing};
use super::pending::{Pending, TurnKey};
use super::turn::Turn;

/// The most sessions that the server watches, those of running turns included. Beyond it, the watch of the idle session
/// that was used longest ago ends. The backend accepts no more watches than this.
pub(super) const MAX_WATCHES: usize = 64;

impl LoafMachine {
    /// Handles an event of a session in which no turn of this server runs.
    pub(super) fn on_idle_event(&mut self, event: &RegistryEvent) {
        let SessionUpdate::Entry(entry) = &event.update else { return };
        // The watch may have ended while this event was on its way.
        if !self.idle_watches.contains(&event.session) {
            return;
        }
        let is_of_session = |chat: &&mut Chat| chat.saved_session.as_ref() == Some(&event.session);
        let chat = self.chats.values_mut().find(is_of_session);
        let Some(chat) = chat.filter(|chat| chat.last_seq < entry.seq) else { return };
        chat.last_seq = entry.seq;
        match (&entry.event, &chat.work) {
            (
                SessionEvent::Run { run, event: RunEvent::Started { parent: None, input, .. }, .. },
                Work::Idle,
            ) => {
                let (chat, run, text) = (chat.id.clone(), run.clone(), input.text.clone());
                self.begin_other_turn(&chat, event.session.clone(), run, Some(text));
            }
            _ => chat.show_other_run(&mut self.out, &event.update),
        }
    }

    /// Shows the active run of another client as a turn of an idle session. `prompt` is the other client's message, unless
    /// the client has it already.
    pub(super) fn begin_other_turn(
        &mut self,
        chat: &str,
        session: SessionId,
        run: RunId,
        prompt: Option<String>,
    ) {
        let (id, provider) = (self.out.new_id(), self.state.provider().to_owned());
        let Some(chat) = self.chats.get_mut(chat) else { return };
        let turn_key = TurnKey { chat: chat.id.clone(), turn: id.clone() };
        let mut turn = Turn::new(id, None, prompt.clone().unwrap_or_default(), Vec::new(), provider);
        turn.session = Some((session.clone(), false));
        turn.run = Some(run);
        turn.is_of_other_client = true;
        match prompt {
            Some(_) => turn.on_run_started(chat, &mut self.out, &self.state),
            None => chat.set_status(&mut self.out, "drafting response...", Some(&turn.id)),
        }
        chat.work = Work::Turn(Box::new(turn));
        self.idle_watches.retain(|watched| *watched != session);
        self.running_turns.insert(session, turn_key);
    }

    /// Whether the server watches the session between turns. From now on it counts as the session of a running turn.
    pub(super) fn take_idle_watch(&mut self, session: &SessionId) -> bool {
        let index = self.idle_watches.iter().position(|watched| watched == session);
        index.and_then(|index| self.idle_watches.remove(index)).is_some()
    }

    /// Goes on watching the session of a turn that has ended.
    pub(super) fn keep_watching(&mut self, session: &SessionId) {
        self.running_turns.remove(session);
        self.orphans.remove(session);
        self.idle_watches.push_back(session.clone());
        self.make_room_for_watch(MAX_WATCHES);
    }

    /// Begins to watch a saved chat that the client has resumed.
    pub(super) fn watch_idle(&mut self, session: &SessionId, after: Seq) {
        let is_watched = self.idle_watches.contains(session)
            || self.running_turns.contains_key(session)
            || self.orphans.contains_key(session);
        if is_watched {
            return;
        }
        self.make_room_for_watch(MAX_WATCHES - 1);
        self.idle_watches.push_back(session.clone());
        let watch =
            RegistryRequest::Watch { session: session.clone(), after: WatchFrom::At(after), deltas: true };
        self.out.submit(FrontendRequest::Registry(watch), Pending::IdleWatch(session.clone()));
    }

    /// Handles the answer to the watch of an idle session. If it is refused, the next turn watches the session again.
    pub(super) fn on_idle_watch(
        &mut self,
        session: &SessionId,
        answer: &Result<FrontendReply, SessionRefusal>,
    ) {
        if answer.is_ok() {
            return;
        }
        self.take_idle_watch(session);
        let Some(turn_key) = self.running_turns.get(session).cloned() else { return };
        let Some(chat) = self.chats.get_mut(&turn_key.chat) else { return };
        if chat.turn_with_id(&turn_key.turn).is_some_and(|turn| turn.is_of_other_client) {
            chat.work = Work::Idle;
            chat.set_status(&mut self.out, READY, None);
            self.running_turns.remove(session);
        }
    }

    /// Ends the watch of a session that no chat shows any more.
    pub(super) fn end_idle_watch(&mut self, session: &SessionId) {
        let is_shown = self.chats.values().any(|chat| chat.saved_session.as_ref() == Some(session));
        if !is_shown && self.take_idle_watch(session) {
            self.unwatch(session);
        }
    }

    /// Ends watches of idle sessions until at most `limit` sessions are watched.
    pub(super) fn make_room_for_watch(&mut self, limit: usize) {
        while self.idle_watches.len() + self.running_turns.len() + self.orphans.len() > limit
            && let Some(oldest) = self.idle_watches.pop_front()
        {
            self.unwatch(&oldest);
        }
    }
}

impl Chat {
    /// Shows the messages of another client's run, without its text while it is written.
    pub(super) fn show_other_run(&mut self, out: &mut Outgoing, update: &SessionUpdate) {
        let SessionUpdate::Entry(entry) = update else { return };
        match &entry.event {
            SessionEvent::Run { run, event: RunEvent::Started { parent: None, input, .. }, .. } => {
                self.other_run = Some(run.clone());
                self.append(out, Kind::User, &input.text, &[]);
                self.history.add(ModelMessage::user(input.text.as_str(), Vec::new()));
            }
            // The texts of a run that began before the chat was resumed are in its history.
            SessionEvent::Run {
                run, event: RunEvent::Message(MessageEvent::Completed { text, .. }), ..
            } if self.other_run.as_ref() == Some(run) => {
                self.append(out, Kind::Assistant, text, &[]);
                self.history.add(ModelMessage::assistant(text.as_str()));
            }
            SessionEvent::AgentChosen(choice) => self.agent_choice = Some(choice.clone()),
            SessionEvent::Run { .. }
            | SessionEvent::Created(_)
            | SessionEvent::Renamed { .. }
            | SessionEvent::ModeChosen { .. }
            | SessionEvent::Queued(_)
            | SessionEvent::Unqueued { .. }
            | SessionEvent::Cleared
            | SessionEvent::Compacted { .. }
            | SessionEvent::MessageAdded(_) => {}
        }
    }
}
