//! `session.*`: prompts, and what is done to a turn that is at work.

use parlor_vocab::{FrontendReply, RegistryReply, SessionRefusal, SessionReply};
use serde_json::json;
use serde_json::value::RawValue;

use super::chat::{Chat, Prompt, Work};
use super::code::{self, FrameError};
use super::machine::LoafMachine;
use super::params::Params;
use super::pending::{Pending, Place, To};
use super::turn::Stopping;
use super::{MAX_QUEUED, MAX_QUEUED_BYTES, MAX_SESSIONS, MAX_STEERS, MAX_TURNS, image};

impl LoafMachine {
    pub(super) fn create_session(&mut self, to: &To, params: Option<&RawValue>) -> Result<(), FrameError> {
        // The title is checked and not used, as clients expect: all of them send the same one.
        Params::optional("session.create", params)?.maybe_text("title")?;
        if self.chats.len() >= MAX_SESSIONS {
            return Err(code::too_many_sessions());
        }
        let id = self.out.id();
        let chat = Chat::new(id.clone(), self.out.now());
        let state = chat.to_json(&self.state);
        self.chats.insert(id.clone(), chat);
        self.order.push(id.clone());
        self.changed("session_created", Some(&id));
        self.out.answer(to, json!({"session_id": id, "state": state}));
        Ok(())
    }

    pub(super) fn get_session(&mut self, to: &To, params: Option<&RawValue>) -> Result<(), FrameError> {
        let id = Params::needed("session.get", params)?.text("session_id")?;
        let state = self.chats.get(&id).ok_or_else(|| code::unknown_session(&id))?.to_json(&self.state);
        self.out.answer(to, state);
        Ok(())
    }

    pub(super) fn send(&mut self, to: &To, params: Option<&RawValue>) -> Result<(), FrameError> {
        let params = Params::needed("session.send", params)?;
        let id = params.text("session_id")?;
        let text = params.maybe_text("text")?.unwrap_or_default();
        let may_wait = params.maybe_flag("enqueue")?;
        let images = image::wanted(params.raw("images"));
        let at_work = self.at_work();
        let (turn, at) = (self.out.id(), self.out.now());
        let chat = self.chat(&id)?;
        if text.is_empty() && images.is_empty() {
            return Err(code::nothing_to_send());
        }
        let prompt = Prompt { turn, text, images, at };
        if chat.is_pending() {
            return if may_wait { self.enqueue(to, &id, prompt) } else { Err(code::busy()) };
        }
        if at_work >= MAX_TURNS {
            return Err(code::too_many_turns());
        }
        self.start(&id, prompt, Some(to.clone()));
        Ok(())
    }

    /// How many sessions are at work.
    pub(super) fn at_work(&self) -> usize {
        // Each turn of which nobody hears any more is still at work in the engine.
        self.chats.values().filter(|chat| chat.is_pending()).count() + self.dropped.len()
    }

    fn enqueue(&mut self, to: &To, id: &str, prompt: Prompt) -> Result<(), FrameError> {
        let Some(chat) = self.chats.get_mut(id) else { return Err(code::unknown_session(id)) };
        let is_full =
            chat.queue.len() >= MAX_QUEUED || chat.queued_bytes() + prompt.weight() > MAX_QUEUED_BYTES;
        if is_full {
            return Err(code::queue_full());
        }
        let result = json!({"session_id": id, "turn_id": prompt.turn, "accepted": true, "queued": true});
        chat.queue.push_back(prompt);
        chat.touch(self.out.now());
        chat.tell_status(&mut self.out, &format!("queued ({})", chat.queue.len()), true, None);
        self.out.answer(to, result);
        Ok(())
    }

    pub(super) fn steer(&mut self, to: &To, params: Option<&RawValue>) -> Result<(), FrameError> {
        let params = Params::needed("session.steer", params)?;
        let (id, text) = (params.text("session_id")?, params.text("text")?);
        let chat = self.chat(&id)?;
        let Some(turn) = chat.turn() else {
            self.out.answer(to, json!({"session_id": id, "accepted": false}));
            return Ok(());
        };
        if turn.steers() >= MAX_STEERS {
            return Err(code::too_many_steers());
        }
        match (&turn.run, &turn.session) {
            (Some(_), Some((session, _))) => {
                let session = session.clone();
                turn.handed_on += 1;
                let turn = turn.id.clone();
                let pending = Pending::Steer(to.clone(), Place { chat: id, turn });
                self.pass_on(&session, &text, pending);
            }
            _ => {
                turn.early.push(text);
                self.out.answer(to, json!({"session_id": id, "accepted": true}));
            }
        }
        Ok(())
    }

    pub(super) fn on_steered(
        &mut self,
        to: &To,
        place: &Place,
        answer: Result<FrontendReply, SessionRefusal>,
    ) {
        let steered =
            matches!(answer, Ok(FrontendReply::Registry(RegistryReply::Session(SessionReply::Steered(_)))));
        let chat = self.chats.get_mut(&place.chat);
        if let Some(turn) = chat.and_then(|chat| chat.turn_of(&place.turn)).filter(|_| !steered) {
            turn.handed_on = turn.handed_on.saturating_sub(1);
        }
        // A turn that has ended at this moment has heard nothing; anything else is an error to tell.
        match answer {
            Err(refusal) if refusal != SessionRefusal::NoActiveRun => {
                self.out.refuse(&to.id, &code::refused(&refusal))
            }
            _ => self.out.answer(to, json!({"session_id": place.chat, "accepted": steered})),
        }
    }

    pub(super) fn interrupt(&mut self, to: &To, params: Option<&RawValue>) -> Result<(), FrameError> {
        let id = Params::needed("session.interrupt", params)?.text("session_id")?;
        let interrupted = self.chat(&id)?.turn().is_some_and(|turn| turn.stopping.is_none());
        if interrupted {
            self.stop_turn(&id, Stopping::ByUser);
        }
        self.out.answer(to, json!({"session_id": id, "interrupted": interrupted}));
        Ok(())
    }

    /// Begins to stop the turn of a session. One that has not started is stopped when it does.
    pub(super) fn stop_turn(&mut self, id: &str, why: Stopping) {
        let Some(chat) = self.chats.get_mut(id) else { return };
        let Work::Turn(turn) = &mut chat.work else { return };
        turn.stopping = Some(why);
        let running = turn.session.clone().zip(turn.run.clone());
        chat.status(&mut self.out, "interrupting...", None);
        if let Some(((session, _), run)) = running {
            self.stop_run(&session, run);
        }
    }

    pub(super) fn list_queue(&mut self, to: &To, params: Option<&RawValue>) -> Result<(), FrameError> {
        let id = Params::needed("session.queue.list", params)?.text("session_id")?;
        let queue = self.chat(&id)?.queue_to_json();
        self.out.answer(to, json!({"session_id": id, "queue": queue}));
        Ok(())
    }

    pub(super) fn clear_queue(&mut self, to: &To, params: Option<&RawValue>) -> Result<(), FrameError> {
        let id = Params::needed("session.queue.clear", params)?.text("session_id")?;
        let count = self.chat(&id)?.queue.drain(..).count();
        self.out.answer(to, json!({"session_id": id, "cleared_count": count}));
        Ok(())
    }
}
