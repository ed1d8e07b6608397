//! The events of a server.

use serde::Deserialize;
use serde_json::Value;
use tokio::sync::{mpsc, watch};

use super::LoafError;

/// How many events may wait for their reader.
pub const EVENT_BACKLOG: usize = 1024;

/// An event.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct LoafEvent {
    /// The event type, such as `session.stream.chunk`. Newer servers may have further types.
    #[serde(rename = "type")]
    pub kind: String,
    /// The server's time, as it sent it.
    pub timestamp: String,
    /// The content, which depends on the type.
    pub payload: Value,
}

impl LoafEvent {
    /// The session that the event belongs to, if any.
    pub fn session_id(&self) -> Option<&str> {
        self.payload.get("session_id")?.as_str()
    }

    /// The turn that the event belongs to, if any.
    pub fn turn_id(&self) -> Option<&str> {
        self.payload.get("turn_id")?.as_str()
    }

    /// The piece of an answer's text that the event contains, if any.
    pub fn answer(&self) -> Option<&str> {
        let text = self.payload.get("chunk")?.get("answerText")?.as_str()?;
        Some(text).filter(|text| !text.is_empty())
    }

    /// Whether the event says that its session is idle.
    pub fn is_ready(&self) -> bool {
        self.kind == "session.status" && self.payload.get("pending") == Some(&Value::Bool(false))
    }
}

/// The events of all sessions of a server, in order.
#[derive(Debug)]
pub struct LoafEvents {
    pub(super) events: mpsc::Receiver<LoafEvent>,
    /// Why the connection ended.
    pub(super) end_reason: watch::Receiver<Option<LoafError>>,
}

impl LoafEvents {
    /// Waits for the next event. Fails when the connection has ended and all events that arrived were returned. Cancel
    /// safe.
    pub async fn next(&mut self) -> Result<LoafEvent, LoafError> {
        match self.events.recv().await {
            Some(event) => Ok(event),
            None => Err(self.end_reason.borrow().clone().unwrap_or(LoafError::Closed)),
        }
    }

    /// Returns the events of a session up to the one that says that the session is idle. Drops the events of other
    /// sessions.
    pub async fn until_ready(&mut self, session: &str) -> Result<Vec<LoafEvent>, LoafError> {
        let mut events = Vec::new();
        loop {
            let event = self.next().await?;
            if event.session_id() == Some(session) {
                let is_last = event.is_ready();
                events.push(event);
                if is_last {
                    return Ok(events);
                }
            }
        }
    }
}
