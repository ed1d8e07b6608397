//! The `session.*` methods: sending prompts, and steering or interrupting the running turn.

use parlor_vocab::{FrontendReply, RegistryReply, SessionRefusal, SessionReply};
use serde_json::json;
use serde_json::value::RawValue;

use super::chat::{Chat, Prompt, Work};
use super::code::{self, FrameError};
use super::machine::LoafMachine;
use super::params::Params;
use super::pending::{Pending, ReplyTo, TurnKey};
use super::turn::StopReason;
use super::{MAX_QUEUED, MAX_QUEUED_BYTES, MAX_SESSIONS, MAX_STEERS, MAX_TURNS, image};

impl LoafMachine {
    pub(super) fn create_session(
        &mut self,
        reply_to: &ReplyTo,
        params: Option<&RawValue>,
    ) -> Result<(), FrameError> {
        // The title is checked and ignored: all clients send the same one.
        Params::optional("session.create", params)?.optional_text("title")?;
        if self.chats.len() >= MAX_SESSIONS {
            return Err(code::too_many_sessions());
        }
        let id = self.out.new_id();
        let chat = Chat::new(id.clone(), self.out.now());
        let state = chat.to_json(&self.state);
        self.chats.insert(id.clone(), chat);
        self.order.push(id.clone());
        self.send_state_changed("session_created", Some(&id));
        self.out.send_result(reply_to, json!({"session_id": id, "state": state}));
        Ok(())
    }

    pub(super) fn get_session(
        &mut self,
        reply_to: &ReplyTo,
        params: Option<&RawValue>,
    ) -> Result<(), FrameError> {
        let id = Params::required("session.get", params)?.text("session_id")?;
        let state = self.chats.get(&id).ok_or_else(|| code::unknown_session(&id))?.to_json(&self.state);
        self.out.send_result(reply_to, state);
        Ok(())
    }

    pub(super) fn send(&mut self, reply_to: &ReplyTo, params: Option<&RawValue>) -> Result<(), FrameError> {
        let params = Params::required("session.send", params)?;
        let id = params.text("session_id")?;
        let text = params.optional_text("text")?.unwrap_or_default();
        let may_enqueue = params.optional_flag("enqueue")?;
        let images = image::parse_images(params.raw("images"));
        let active_turns = self.active_turns();
        let (turn, at) = (self.out.new_id(), self.out.now());
        let chat = self.chat(&id)?;
        if text.is_empty() && images.is_empty() {
            return Err(code::nothing_to_send());
        }
        let prompt = Prompt { turn, text, images, at };
        if chat.is_pending() {
            return if may_enqueue { self.enqueue(reply_to, &id, prompt) } else { Err(code::busy()) };
        }
        if active_turns >= MAX_TURNS {
            return Err(code::too_many_turns());
        }
        self.start_turn(&id, prompt, Some(reply_to.clone()));
        Ok(())
    }

    /// The number of running turns.
    pub(super) fn active_turns(&self) -> usize {
        // Orphaned turns still run in the engine.
        self.chats.values().filter(|chat| chat.is_pending()).count() + self.orphans.len()
    }

    fn enqueue(&mut self, reply_to: &ReplyTo, id: &str, prompt: Prompt) -> Result<(), FrameError> {
        let Some(chat) = self.chats.get_mut(id) else { return Err(code::unknown_session(id)) };
        let is_full =
            chat.queue.len() >= MAX_QUEUED || chat.queued_bytes() + prompt.size() > MAX_QUEUED_BYTES;
        if is_full {
            return Err(code::queue_full());
        }
        let result = json!({"session_id": id, "turn_id": prompt.turn, "accepted": true, "queued": true});
        chat.queue.push_back(prompt);
        chat.set_updated(self.out.now());
        chat.send_status(&mut self.out, &format!("queued ({})", chat.queue.len()), true, None);
        self.out.send_result(reply_to, result);
        Ok(())
    }

    pub(super) fn steer(&mut self, reply_to: &ReplyTo, params: Option<&RawValue>) -> Result<(), FrameError> {
        let params = Params::required("session.steer", params)?;
        let (id, text) = (params.text("session_id")?, params.text("text")?);
        let chat = self.chat(&id)?;
        let Some(turn) = chat.turn() else {
            self.out.send_result(reply_to, json!({"session_id": id, "accepted": false}));
            return Ok(());
        };
        if turn.waiting_steers() >= MAX_STEERS {
            return Err(code::too_many_steers());
        }
        match (&turn.run, &turn.session) {
            (Some(_), Some((session, _))) => {
                let session = session.clone();
                turn.submitted_steers += 1;
                let turn = turn.id.clone();
                let pending = Pending::Steer(reply_to.clone(), TurnKey { chat: id, turn });
                self.submit_steer(&session, &text, pending);
            }
            _ => {
                turn.early_steers.push(text);
                self.out.send_result(reply_to, json!({"session_id": id, "accepted": true}));
            }
        }
        Ok(())
    }

    pub(super) fn on_steered(
        &mut self,
        reply_to: &ReplyTo,
        turn_key: &TurnKey,
        answer: Result<FrontendReply, SessionRefusal>,
    ) {
        let steered =
            matches!(answer, Ok(FrontendReply::Registry(RegistryReply::Session(SessionReply::Steered(_)))));
        let chat = self.chats.get_mut(&turn_key.chat);
        if let Some(turn) = chat.and_then(|chat| chat.turn_with_id(&turn_key.turn)).filter(|_| !steered) {
            turn.submitted_steers = turn.submitted_steers.saturating_sub(1);
        }
        // A turn that has just ended did not get the text, which is not an error. Any other refusal is one.
        match answer {
            Err(refusal) if refusal != SessionRefusal::NoActiveRun => {
                self.out.send_error(&reply_to.id, &code::refused(&refusal))
            }
            _ => self.out.send_result(reply_to, json!({"session_id": turn_key.chat, "accepted": steered})),
        }
    }

    pub(super) fn interrupt(
        &mut self,
        reply_to: &ReplyTo,
        params: Option<&RawValue>,
    ) -> Result<(), FrameError> {
        let id = Params::required("session.interrupt", params)?.text("session_id")?;
        let interrupted = self.chat(&id)?.turn().is_some_and(|turn| turn.stop_reason.is_none());
        if interrupted {
            self.stop_turn(&id, StopReason::User);
        }
        self.out.send_result(reply_to, json!({"session_id": id, "interrupted": interrupted}));
        Ok(())
    }

    /// Begins to stop the turn of a session. A turn whose run has not started is stopped when it starts.
    pub(super) fn stop_turn(&mut self, id: &str, reason: StopReason) {
        let Some(chat) = self.chats.get_mut(id) else { return };
        let Work::Turn(turn) = &mut chat.work else { return };
        turn.stop_reason = Some(reason);
        let (session, run, queued) = (turn.session.clone(), turn.run.clone(), turn.queued.clone());
        chat.set_status(&mut self.out, "interrupting...", None);
        match (session, run, queued) {
            (Some((session, _)), Some(run), _) => self.submit_stop(&session, run),
            (Some((session, _)), None, Some(queued)) => self.submit_unqueue(&session, queued),
            (Some(_), None, None) | (None, ..) => {}
        }
    }

    pub(super) fn list_queue(
        &mut self,
        reply_to: &ReplyTo,
        params: Option<&RawValue>,
    ) -> Result<(), FrameError> {
        let id = Params::required("session.queue.list", params)?.text("session_id")?;
        let queue = self.chat(&id)?.queue_to_json();
        self.out.send_result(reply_to, json!({"session_id": id, "queue": queue}));
        Ok(())
    }

    pub(super) fn clear_queue(
        &mut self,
        reply_to: &ReplyTo,
        params: Option<&RawValue>,
    ) -> Result<(), FrameError> {
        let id = Params::required("session.queue.clear", params)?.text("session_id")?;
        let count = self.chat(&id)?.queue.drain(..).count();
        self.out.send_result(reply_to, json!({"session_id": id, "cleared_count": count}));
        Ok(())
    }
}
