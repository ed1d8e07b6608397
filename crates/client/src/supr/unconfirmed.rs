//! The messages that were sent and not confirmed yet, which a reconnect sends again.

use std::collections::VecDeque;

use serde_json::Value;

use super::{Activity, MAX_UNCONFIRMED, MAX_UNCONFIRMED_BYTES, SuprError, Typed};

/// Unconfirmed messages in the order in which they were sent.
#[derive(Debug)]
pub(super) struct UnconfirmedMessages {
    /// Random, so that no other client of the session makes the same keys: the server would take its messages for repeated
    /// ones.
    client: String,
    /// Each message's key and frame.
    messages: VecDeque<(String, String)>,
    /// How many keys were made.
    key_count: u64,
}

impl UnconfirmedMessages {
    /// No messages, of the client with this random name.
    pub(super) fn new(client: String) -> Self {
        Self { client, messages: VecDeque::new(), key_count: 0 }
    }

    /// Makes the key of the next message.
    pub(super) fn new_key(&mut self) -> Result<String, SuprError> {
        if self.messages.len() >= MAX_UNCONFIRMED {
            return Err(SuprError::Backlog { limit: MAX_UNCONFIRMED });
        }
        self.key_count += 1;
        Ok(format!("{}-{}", self.client, self.key_count))
    }

    /// Adds a message that is about to be sent.
    pub(super) fn push(&mut self, key: String, frame: String) -> Result<(), SuprError> {
        let bytes = self.messages.iter().map(|(_, frame)| frame.len()).sum::<usize>() + frame.len();
        if bytes > MAX_UNCONFIRMED_BYTES && !self.messages.is_empty() {
            return Err(SuprError::Backlog { limit: self.messages.len() });
        }
        self.messages.push_back((key, frame));
        Ok(())
    }

    /// Confirms the message that an event names as its input: its run has begun or was refused.
    pub(super) fn on_activity(&mut self, event: &Activity) {
        self.confirm(event.data.get("input").and_then(|input| input.get("key")));
    }

    /// Confirms the message that a typed `error` names: the server has read it.
    pub(super) fn on_typed(&mut self, frame: &Typed) {
        self.confirm(frame.payload.get("key"));
    }

    /// Confirms the message with this key, and all messages before it, because the server handles them in order.
    fn confirm(&mut self, key: Option<&Value>) {
        let key = key.and_then(Value::as_str);
        if let Some(index) = self.messages.iter().position(|(sent, _)| Some(sent.as_str()) == key) {
            self.messages.drain(..=index);
        }
    }

    /// The frames to send again on a new connection.
    pub(super) fn frames(&self) -> Vec<String> {
        self.messages.iter().map(|(_, frame)| frame.clone()).collect()
    }
}
