//! The methods that other servers of this protocol do not have: answering questions, listing, closing and renaming
//! sessions, and replaying events.

use std::collections::VecDeque;

use parlor_vocab::{
    FrontendReply, FrontendRequest, QuestionAnswer, QuestionId, RegistryRequest, SessionCommand,
    SessionRefusal,
};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::code::{self, FrameError};
use super::machine::{LoafMachine, answer_error};
use super::params::Params;
use super::pending::{Pending, ReplyTo};
use super::{REPLAY_BYTES, REPLAY_EVENTS};

/// The last events, for `events.replay`.
#[derive(Debug, Default)]
pub(super) struct ReplayBuffer {
    /// The number of the last event.
    last: u64,
    events: VecDeque<StoredEvent>,
    bytes: usize,
}

#[derive(Debug)]
struct StoredEvent {
    sequence: u64,
    session: Option<Box<str>>,
    event: Box<RawValue>,
}

impl StoredEvent {
    fn to_replayed(&self) -> ReplayedEvent<'_> {
        ReplayedEvent { sequence: self.sequence, event: &self.event }
    }
}

/// An event with its number in the result of `events.replay`.
#[derive(Serialize)]
struct ReplayedEvent<'a> {
    sequence: u64,
    event: &'a RawValue,
}

#[derive(Serialize)]
struct ReplayResult<'a> {
    events: Vec<ReplayedEvent<'a>>,
    last: u64,
    oldest: u64,
    complete: bool,
}

impl ReplayBuffer {
    /// Stores an event, drops the oldest ones above the limits, and returns the number of the event.
    pub(super) fn push(&mut self, event: &RawValue, session: Option<&str>) -> u64 {
        self.last += 1;
        self.bytes += event.get().len();
        let (sequence, session, event) = (self.last, session.map(Box::from), event.to_owned());
        self.events.push_back(StoredEvent { sequence, session, event });
        while self.events.len() > REPLAY_EVENTS || self.bytes > REPLAY_BYTES {
            let Some(oldest) = self.events.pop_front() else { break };
            self.bytes -= oldest.event.get().len();
        }
        self.last
    }

    /// The stored events after the number `after`, of one session or of all.
    fn after(&self, after: u64, session: Option<&str>) -> ReplayResult<'_> {
        let is_wanted = |stored: &&StoredEvent| {
            stored.sequence > after && session.is_none_or(|id| stored.session.as_deref() == Some(id))
        };
        let oldest = self.events.front().map_or(self.last + 1, |stored| stored.sequence);
        ReplayResult {
            events: self.events.iter().filter(is_wanted).map(StoredEvent::to_replayed).collect(),
            last: self.last,
            oldest,
            complete: after.saturating_add(1) >= oldest,
        }
    }
}

impl LoafMachine {
    pub(super) fn replay_events(
        &mut self,
        reply_to: &ReplyTo,
        params: Option<&RawValue>,
    ) -> Result<(), FrameError> {
        let params = Params::optional("events.replay", params)?;
        let after = params.optional_number("after")?.map_or(0.0, f64::floor).max(0.0);
        let session = params.optional_text("session_id")?;
        let replay = std::mem::take(&mut self.out.replay);
        self.out.send_serialized(reply_to, &replay.after(after as u64, session.as_deref()));
        self.out.replay = replay;
        Ok(())
    }

    pub(super) fn list_sessions(&mut self, reply_to: &ReplyTo) {
        let lines: Value =
            self.order.iter().filter_map(|id| self.chats.get(id)).map(|chat| chat.summary_json()).collect();
        self.out.send_result(reply_to, json!({"sessions": lines}));
    }

    /// Answers the question that the run of a session asks.
    pub(super) fn answer_question(
        &mut self,
        reply_to: &ReplyTo,
        params: Option<&RawValue>,
    ) -> Result<(), FrameError> {
        let params = Params::required("session.answer", params)?;
        let (id, question) = (params.text("session_id")?, params.text("question_id")?);
        let (answer, message) = (params.text("answer")?, params.optional_text("message")?);
        let answer = QuestionAnswer::parse(&answer, message).ok_or_else(code::unknown_answer)?;
        let by = Some(self.out.sender());
        let chat = self.chat(&id)?;
        let of_turn = chat.turn().and_then(|turn| turn.session.clone()).map(|(session, _)| session);
        let session = of_turn.or_else(|| chat.saved_session.clone());
        let question = QuestionId::parse(&question).ok();
        let (Some(session), Some(question)) = (session, question) else { return Err(code::no_question()) };
        let command = SessionCommand::AnswerQuestion { question, answer, by };
        let request = FrontendRequest::Registry(RegistryRequest::Session(session, command));
        self.out.submit(request, Pending::Answer(reply_to.clone(), id));
        Ok(())
    }

    pub(super) fn on_question_answered(
        &mut self,
        reply_to: &ReplyTo,
        id: &str,
        answer: Result<FrontendReply, SessionRefusal>,
    ) {
        match answer {
            Ok(FrontendReply::Registry(_)) => {
                self.out.send_result(reply_to, json!({"session_id": id, "accepted": true}));
            }
            other => self.out.send_error(&reply_to.id, &answer_error(other)),
        }
    }

    pub(super) fn close_session(
        &mut self,
        reply_to: &ReplyTo,
        params: Option<&RawValue>,
    ) -> Result<(), FrameError> {
        let id = Params::required("session.close", params)?.text("session_id")?;
        self.chat(&id)?;
        self.cancel_work(&id);
        let saved = self.chats.remove(&id).and_then(|chat| chat.saved_session);
        self.order.retain(|known| *known != id);
        let is_used_by_others = |saved: &parlor_vocab::SessionId| {
            self.chats.values().any(|chat| chat.saved_session.as_ref() == Some(saved))
        };
        if let Some(saved) =
            saved.filter(|saved| !self.orphans.contains_key(saved) && !is_used_by_others(saved))
        {
            self.take_idle_watch(&saved);
            // Other clients may open it now.
            self.out.submit(FrontendRequest::Registry(RegistryRequest::Release(saved)), Pending::Ignored);
        }
        self.send_state_changed("session_closed", Some(&id));
        self.out.send_result(reply_to, json!({"session_id": id, "closed": true}));
        Ok(())
    }

    pub(super) fn rename_session(
        &mut self,
        reply_to: &ReplyTo,
        params: Option<&RawValue>,
    ) -> Result<(), FrameError> {
        let params = Params::required("session.rename", params)?;
        let (id, title) = (params.text("session_id")?, params.text("title")?);
        let chat = self.chat(&id)?;
        chat.title = Some(title.clone());
        match chat.saved_session.clone() {
            // The engine's session gets the title when the first turn creates it.
            None => self.out.send_result(reply_to, json!({"session_id": id, "title": title})),
            Some(saved) => {
                let rename = SessionCommand::Rename { title };
                let request = FrontendRequest::Registry(RegistryRequest::Session(saved, rename));
                self.out.submit(request, Pending::Rename(reply_to.clone(), id));
            }
        }
        Ok(())
    }

    pub(super) fn on_renamed(
        &mut self,
        reply_to: &ReplyTo,
        id: &str,
        answer: Result<FrontendReply, SessionRefusal>,
    ) {
        let title = self.chats.get(id).and_then(|chat| chat.title.clone());
        match answer {
            Ok(FrontendReply::Registry(_)) => {
                self.out.send_result(reply_to, json!({"session_id": id, "title": title}))
            }
            other => self.out.send_error(&reply_to.id, &answer_error(other)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(text: &str) -> Box<RawValue> {
        RawValue::from_string(format!("{text:?}")).unwrap()
    }

    #[test]
    fn only_the_last_events_can_be_replayed() {
        let mut replay = ReplayBuffer::default();
        for number in 1..=REPLAY_EVENTS as u64 + 2 {
            assert_eq!(replay.push(&event("x"), (number % 2 == 0).then_some("even")), number);
        }
        let all = replay.after(0, None);
        assert_eq!((all.events.len(), all.oldest, all.complete), (REPLAY_EVENTS, 3, false));
        assert!(replay.after(2, None).complete);
        let some = replay.after(REPLAY_EVENTS as u64 - 2, Some("even"));
        assert_eq!((some.events.len(), some.last), (2, REPLAY_EVENTS as u64 + 2));
    }

    #[test]
    fn the_bytes_of_stored_events_are_limited() {
        let mut replay = ReplayBuffer::default();
        replay.push(&event(&"x".repeat(REPLAY_BYTES / 2)), None);
        replay.push(&event(&"x".repeat(REPLAY_BYTES / 2)), None);
        assert_eq!(replay.events.len(), 1);
        replay.push(&event(&"x".repeat(2 * REPLAY_BYTES)), None);
        assert_eq!((replay.events.len(), replay.bytes), (0, 0));
        let result = replay.after(0, None);
        assert_eq!((result.last, result.oldest, result.complete), (3, 4, false));
    }
}
