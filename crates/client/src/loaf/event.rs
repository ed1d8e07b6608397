//! What happens on a server, as it comes.

use serde::Deserialize;
use serde_json::Value;
use tokio::sync::{mpsc, watch};

use super::LoafError;

/// How many events may wait for their reader.
pub const EVENT_BACKLOG: usize = 1024;

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct LoafEvent {
    /// What kind of thing, such as `session.stream.chunk`. Newer servers have kinds that nobody knows of.
    #[serde(rename = "type")]
    pub kind: String,
    /// When, as the server says.
    pub timestamp: String,
    /// What exactly.
    pub payload: Value,
}

impl LoafEvent {
    /// The session that it is about, if it is about one.
    pub fn session_id(&self) -> Option<&str> {
        self.payload.get("session_id")?.as_str()
    }

    /// The turn that it is about, if it is about one.
    pub fn turn_id(&self) -> Option<&str> {
        self.payload.get("turn_id")?.as_str()
    }

    /// The piece of an answer that it brings, if it does.
    pub fn answer(&self) -> Option<&str> {
        let text = self.payload.get("chunk")?.get("answerText")?.as_str()?;
        Some(text).filter(|text| !text.is_empty())
    }

    /// Whether it says that its session has nothing to do any more.
    pub fn is_ready(&self) -> bool {
        self.kind == "session.status" && self.payload.get("pending") == Some(&Value::Bool(false))
    }
}

/// What happens on a server, in order.
#[derive(Debug)]
pub struct LoafEvents {
    pub(super) events: mpsc::Receiver<LoafEvent>,
    pub(super) verdict: watch::Receiver<Option<LoafError>>,
}

impl LoafEvents {
    /// Waits for the next event. Fails when the connection is over and all that came before was handed out. Cancel
    /// safe.
    pub async fn next(&mut self) -> Result<LoafEvent, LoafError> {
        match self.events.recv().await {
            Some(event) => Ok(event),
            None => Err(self.verdict.borrow().clone().unwrap_or(LoafError::Closed)),
        }
    }

    /// The events of a session up to the one that says that it is ready. Others are dropped.
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
