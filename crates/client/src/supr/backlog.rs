//! What was sent and has not been seen to arrive.

use std::collections::VecDeque;

use serde_json::Value;

use super::{Activity, SuprError, MAX_UNSETTLED, MAX_UNSETTLED_BYTES, Typed};

/// Messages on their way, in the order in which they were sent.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    unsettled: VecDeque<(String, String)>,
    /// Counts messages, to make their keys.
    sent: u64,
}

impl Backlog {
    /// The key of the next message; `of` keeps it apart from those of others.
    pub(super) fn key(&mut self, of: &str) -> Result<String, SuprError> {
        if self.unsettled.len() >= MAX_UNSETTLED {
            return Err(SuprError::Backlog { limit: MAX_UNSETTLED });
        }
        self.sent += 1;
        Ok(format!("{of}-{}", self.sent))
    }

    /// A message under `key` goes on its way.
    pub(super) fn push(&mut self, key: String, frame: String) -> Result<(), SuprError> {
        let bytes = self.unsettled.iter().map(|(_, frame)| frame.len()).sum::<usize>() + frame.len();
        if bytes > MAX_UNSETTLED_BYTES && !self.unsettled.is_empty() {
            return Err(SuprError::Backlog { limit: self.unsettled.len() });
        }
        self.unsettled.push_back((key, frame));
        Ok(())
    }

    /// What happened shows that a message has arrived: its run began, or was refused.
    pub(super) fn on_activity(&mut self, event: &Activity) {
        self.settle(event.data.get("input").and_then(|input| input.get("key")));
    }

    /// The server says what is wrong with a message.
    pub(super) fn on_typed(&mut self, frame: &Typed) {
        self.settle(frame.payload.get("key"));
    }

    /// It is settled, and so are those that were sent before it: the server takes them in their order.
    fn settle(&mut self, key: Option<&Value>) {
        let key = key.and_then(Value::as_str);
        if let Some(place) = self.unsettled.iter().position(|(sent, _)| Some(sent.as_str()) == key) {
            self.unsettled.drain(..=place);
        }
    }

    /// What has to be sent again on a new connection.
    pub(super) fn frames(&self) -> Vec<String> {
        self.unsettled.iter().map(|(_, frame)| frame.clone()).collect()
    }
}
