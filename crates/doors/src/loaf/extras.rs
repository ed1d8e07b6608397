//! What other servers of this dialect do not have: a list of sessions, their end and their names, and events
//! that can be had again.

use std::collections::VecDeque;

use parlor_vocab::{FrontendReply, FrontendRequest, RegistryRequest, SessionCommand, SessionRefusal};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::code::FrameError;
use super::machine::{LoafMachine, flaw_of};
use super::params::Params;
use super::pending::{Pending, To};
use super::{REPLAY_BYTES, REPLAY_EVENTS};

/// The last events.
#[derive(Debug, Default)]
pub(super) struct Replay {
    /// The number of the last event.
    last: u64,
    events: VecDeque<Kept>,
    bytes: usize,
}

#[derive(Debug)]
struct Kept {
    sequence: u64,
    session: Option<Box<str>>,
    event: Box<RawValue>,
}

impl Kept {
    fn again(&self) -> Again<'_> {
        Again { sequence: self.sequence, event: &self.event }
    }
}

/// An event with its number, as it is told again.
#[derive(Serialize)]
struct Again<'a> {
    sequence: u64,
    event: &'a RawValue,
}

#[derive(Serialize)]
struct Replayed<'a> {
    events: Vec<Again<'a>>,
    last: u64,
    oldest: u64,
    complete: bool,
}

impl Replay {
    /// Keeps an event for some time, and gives its number.
    pub(super) fn keep(&mut self, event: &RawValue, session: Option<&str>) -> u64 {
        self.last += 1;
        self.bytes += event.get().len();
        let (sequence, session, event) = (self.last, session.map(Box::from), event.to_owned());
        self.events.push_back(Kept { sequence, session, event });
        while self.events.len() > REPLAY_EVENTS || self.bytes > REPLAY_BYTES {
            let Some(oldest) = self.events.pop_front() else { break };
            self.bytes -= oldest.event.get().len();
        }
        self.last
    }

    /// Those after a number, of one session or of all.
    fn after(&self, after: u64, session: Option<&str>) -> Replayed<'_> {
        let is_wanted = |kept: &&Kept| {
            kept.sequence > after && session.is_none_or(|id| kept.session.as_deref() == Some(id))
        };
        let oldest = self.events.front().map_or(self.last + 1, |kept| kept.sequence);
        Replayed {
            events: self.events.iter().filter(is_wanted).map(Kept::again).collect(),
            last: self.last,
            oldest,
            complete: after.saturating_add(1) >= oldest,
        }
    }
}

impl LoafMachine {
    pub(super) fn replay_events(&mut self, to: &To, params: Option<&RawValue>) -> Result<(), FrameError> {
        let params = Params::optional("events.replay", params)?;
        let after = params.maybe_number("after")?.map_or(0.0, f64::floor).max(0.0);
        let session = params.maybe_text("session_id")?;
        let replay = std::mem::take(&mut self.out.replay);
        self.out.answer_raw(to, &replay.after(after as u64, session.as_deref()));
        self.out.replay = replay;
        Ok(())
    }

    pub(super) fn list_sessions(&mut self, to: &To) {
        let lines: Value =
            self.order.iter().filter_map(|id| self.chats.get(id)).map(|chat| chat.line()).collect();
        self.out.answer(to, json!({"sessions": lines}));
    }

    pub(super) fn close_session(&mut self, to: &To, params: Option<&RawValue>) -> Result<(), FrameError> {
        let id = Params::needed("session.close", params)?.text("session_id")?;
        self.chat(&id)?;
        self.detach(&id);
        let saved = self.chats.remove(&id).and_then(|chat| chat.saved);
        self.order.retain(|known| *known != id);
        let others = |saved: &parlor_vocab::SessionId| {
            self.chats.values().any(|chat| chat.saved.as_ref() == Some(saved))
        };
        if let Some(saved) = saved.filter(|saved| !self.dropped.contains_key(saved) && !others(saved)) {
            // Others may go on with it.
            self.out.ask(FrontendRequest::Registry(RegistryRequest::Leave(saved)), Pending::Nothing);
        }
        self.changed("session_closed", Some(&id));
        self.out.answer(to, json!({"session_id": id, "closed": true}));
        Ok(())
    }

    pub(super) fn rename_session(&mut self, to: &To, params: Option<&RawValue>) -> Result<(), FrameError> {
        let params = Params::needed("session.rename", params)?;
        let (id, title) = (params.text("session_id")?, params.text("title")?);
        let chat = self.chat(&id)?;
        chat.title = Some(title.clone());
        match chat.saved.clone() {
            // It gets its name with its first turn.
            None => self.out.answer(to, json!({"session_id": id, "title": title})),
            Some(saved) => {
                let rename = SessionCommand::Rename { title };
                let command = FrontendRequest::Registry(RegistryRequest::Session(saved, rename));
                self.out.ask(command, Pending::Rename(to.clone(), id));
            }
        }
        Ok(())
    }

    pub(super) fn on_renamed(&mut self, to: &To, id: &str, answer: Result<FrontendReply, SessionRefusal>) {
        let title = self.chats.get(id).and_then(|chat| chat.title.clone());
        match answer {
            Ok(FrontendReply::Registry(_)) => self.out.answer(to, json!({"session_id": id, "title": title})),
            other => self.out.refuse(&to.id, &flaw_of(other)),
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
    fn the_last_events_can_be_had_again_and_no_more_of_them() {
        let mut replay = Replay::default();
        for number in 1..=REPLAY_EVENTS as u64 + 2 {
            assert_eq!(replay.keep(&event("x"), (number % 2 == 0).then_some("even")), number);
        }
        let all = replay.after(0, None);
        assert_eq!((all.events.len(), all.oldest, all.complete), (REPLAY_EVENTS, 3, false));
        assert!(replay.after(2, None).complete);
        let some = replay.after(REPLAY_EVENTS as u64 - 2, Some("even"));
        assert_eq!((some.events.len(), some.last), (2, REPLAY_EVENTS as u64 + 2));
    }

    #[test]
    fn what_is_kept_is_bounded_in_bytes() {
        let mut replay = Replay::default();
        replay.keep(&event(&"x".repeat(REPLAY_BYTES / 2)), None);
        replay.keep(&event(&"x".repeat(REPLAY_BYTES / 2)), None);
        assert_eq!(replay.events.len(), 1);
        replay.keep(&event(&"x".repeat(2 * REPLAY_BYTES)), None);
        assert_eq!((replay.events.len(), replay.bytes), (0, 0));
        let nothing = replay.after(0, None);
        assert_eq!((nothing.last, nothing.oldest, nothing.complete), (3, 4, false));
    }
}
