//! Handles the frames of a child: answers go to their callers, events to the running turn.

use std::sync::Arc;

use parlor_doors::synaps::RpcEvent;
use serde::Deserialize;
use tokio::sync::oneshot;

use super::pending::{AnswerBody, PendingCommands};
use super::{SynapsError, TurnEvent};
use crate::child::driver::FrameHandler;
use crate::child::link::Link;
use crate::child::process::ChildStatus;

/// The longest frame that a child may send: enough for a history with its files.
pub const MAX_EVENT_BYTES: usize = 128 << 20;

/// The content of a child's first frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ready {
    pub(super) session_id: String,
    pub(super) model: String,
    pub(super) protocol_version: u32,
}

pub(super) struct SynapsHandler {
    pub(super) link: Arc<Link<PendingCommands>>,
    pub(super) status: ChildStatus,
    /// Some until the child has sent `ready`.
    pub(super) ready: Option<oneshot::Sender<Ready>>,
}

impl FrameHandler for SynapsHandler {
    type Error = SynapsError;

    const MAX_FRAME_BYTES: usize = MAX_EVENT_BYTES;

    fn oversize() -> SynapsError {
        SynapsError::protocol(&format!("a frame of more than {MAX_EVENT_BYTES} bytes"))
    }

    async fn on_frame(&mut self, frame: &[u8]) -> Result<(), SynapsError> {
        match decode(frame)? {
            Some(event) => self.on_event(event, frame.len()).await,
            None => Ok(()),
        }
    }
}

impl SynapsHandler {
    async fn on_event(&mut self, event: RpcEvent, bytes: usize) -> Result<(), SynapsError> {
        if let Some(ready) = self.ready.take() {
            let RpcEvent::Ready { session_id, model, protocol_version } = event else {
                return Err(SynapsError::protocol("its first frame is not `ready`"));
            };
            // The send fails only if the caller no longer waits for the child.
            let _ = ready.send(Ready { session_id, model, protocol_version });
            return Ok(());
        }
        let event = match event {
            // A second `ready` has nothing new.
            RpcEvent::Ready { .. } => return Ok(()),
            RpcEvent::AgentEnd { usage } => {
                self.link.with_pending(|pending| pending.set_usage(usage));
                return Ok(());
            }
            RpcEvent::Response { id, command, body } => return self.on_response(&id, &command, body),
            RpcEvent::Error { id, message } => {
                // Without an id, it answers a line that is no command, and this client sends none.
                if let Some(id) = id {
                    self.link.with_pending(|pending| pending.on_error(&id, message));
                }
                return Ok(());
            }
            RpcEvent::MessageUpdate { event } => TurnEvent::Assistant(event),
            RpcEvent::SubagentStart { subagent_id, agent_name, task_preview } => {
                TurnEvent::SubagentStarted { id: subagent_id, name: agent_name, task: task_preview }
            }
            RpcEvent::SubagentUpdate { subagent_id, agent_name, status } => {
                TurnEvent::SubagentUpdated { id: subagent_id, name: agent_name, status }
            }
            RpcEvent::SubagentDone { subagent_id, agent_name, result_preview, duration_secs } => {
                TurnEvent::SubagentDone {
                    id: subagent_id,
                    name: agent_name,
                    result: result_preview,
                    seconds: duration_secs,
                }
            }
        };
        self.deliver(event, bytes).await;
        Ok(())
    }

    fn on_response(&self, id: &str, command: &str, body: AnswerBody) -> Result<(), SynapsError> {
        // Some children send what they are going to disclose before the answer, with the same id.
        if command.ends_with(".disclosure") {
            return Ok(());
        }
        self.link.with_pending(|pending| pending.on_answer(id, body))
    }

    /// Puts an event into the backlog of the running turn, and waits if there is no room.
    async fn deliver(&mut self, event: TurnEvent, bytes: usize) {
        // Events of a turn that this client did not begin are dropped.
        let Some(turn) = self.link.with_pending(|pending| pending.running_turn()) else { return };
        if let Err(event) = turn.try_push(event, bytes) {
            self.link.deliver(&mut self.status, turn.push(event, bytes)).await;
        }
    }
}

/// Decodes a frame. None if its type, or the type of its assistant event, is unknown to this client.
fn decode(frame: &[u8]) -> Result<Option<RpcEvent>, SynapsError> {
    #[derive(Deserialize)]
    struct Typed {
        #[serde(rename = "type")]
        kind: String,
        #[serde(default)]
        event: Option<Inner>,
    }
    #[derive(Deserialize)]
    struct Inner {
        #[serde(rename = "type")]
        kind: String,
    }
    let error = match serde_json::from_slice(frame) {
        Ok(event) => return Ok(Some(event)),
        Err(error) => error,
    };
    let is_known = match serde_json::from_slice::<Typed>(frame) {
        Ok(Typed { kind, event: Some(inner) }) if kind == "message_update" => {
            ASSISTANT_EVENTS.contains(&inner.kind.as_str())
        }
        Ok(Typed { kind, .. }) => EVENTS.contains(&kind.as_str()),
        Err(_) => true,
    };
    if is_known { Err(SynapsError::protocol(&format!("no frame: {error}"))) } else { Ok(None) }
}

/// The frame types that this client knows.
const EVENTS: [&str; 8] = [
    "ready",
    "message_update",
    "subagent_start",
    "subagent_update",
    "subagent_done",
    "agent_end",
    "response",
    "error",
];

/// The types of assistant events that this client knows.
const ASSISTANT_EVENTS: [&str; 6] = [
    "text_delta",
    "thinking_delta",
    "toolcall_start",
    "toolcall_input_delta",
    "toolcall_input",
    "toolcall_result",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_unknown_types_are_skipped_and_malformed_frames_are_errors() {
        for unknown in [
            r#"{"type":"event","payload":{"id":"e"}}"#,
            r#"{"type":"message_update","event":{"type":"response_start"}}"#,
        ] {
            assert_eq!(decode(unknown.as_bytes()).unwrap(), None, "{unknown}");
        }
        for broken in [
            "not json",
            "{}",
            r#"{"type":"ready","session_id":"s","model":"m","protocol_version":"1"}"#,
            r#"{"type":"message_update","event":{"type":"text_delta"}}"#,
            r#"{"type":"message_update"}"#,
        ] {
            assert!(decode(broken.as_bytes()).is_err(), "{broken}");
        }
    }

    #[test]
    fn every_listed_type_can_be_decoded() {
        // Each lacks members. The error for an unknown type would be another one.
        for kind in EVENTS {
            let error = serde_json::from_str::<RpcEvent>(&format!(r#"{{"type":"{kind}"}}"#)).unwrap_err();
            assert!(error.to_string().contains("missing field"), "{error}");
        }
        for kind in ASSISTANT_EVENTS {
            let frame = format!(r#"{{"type":"message_update","event":{{"type":"{kind}"}}}}"#);
            let error = serde_json::from_str::<RpcEvent>(&frame).unwrap_err();
            assert!(error.to_string().contains("missing field"), "{error}");
        }
    }
}
