//! The task of a connection: writes what is queued, reads what arrives and hands it on.
//!
//! Both halves run side by side, so a child that stops reading can still be heard.

use std::sync::Arc;

use parlor_doors::lines::{Line, Lines};
use parlor_doors::synaps::{RpcEvent, TurnUsage};
use serde::Deserialize;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{mpsc, oneshot};

use super::launch::closed;
use super::link::{Body, Link};
use super::{SynapsError, TurnEvent};
use crate::child::{Output, Vitals, write_frames};

/// The longest frame that a child may send: room for a history with its files.
pub const MAX_EVENT_BYTES: usize = 128 << 20;

/// What a child begins with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ready {
    pub(super) session_id: String,
    pub(super) model: String,
    pub(super) protocol_version: u32,
}

pub(super) struct Wires<R, W> {
    pub(super) reader: R,
    pub(super) writer: W,
    pub(super) queue: mpsc::Receiver<Vec<u8>>,
}

pub(super) async fn drive<R, W>(
    wires: Wires<R, W>,
    link: Arc<Link>,
    vitals: Vitals,
    greet: oneshot::Sender<Ready>,
) where
    R: AsyncRead,
    W: AsyncWrite,
{
    // Whatever ends this task, those who wait are told.
    let _last_words = FinalOutput(Arc::clone(&link));
    let Wires { reader, writer, queue } = wires;
    let write = async {
        let error = write_frames(std::pin::pin!(writer), queue).await;
        // What the child said before it closed its input can still be read, so only calls fail.
        link.fail_calls(closed(&mut vitals.clone(), Some(error)).await);
        std::future::pending::<()>().await;
    };
    let read = async {
        let reader = std::pin::pin!(reader);
        let mut incoming = Incoming {
            output: Output::new(reader, vitals.clone()),
            link: &link,
            vitals: vitals.clone(),
            greet: Some(greet),
        };
        let verdict = incoming.run().await;
        link.end(verdict);
    };
    tokio::select! {
        // The writer first: it seldom has work, and a flood of events must not hold up an abort.
        biased;
        () = write => {}
        () = read => {}
    }
}

struct Incoming<'a, R> {
    output: Output<'a, R>,
    link: &'a Link,
    vitals: Vitals,
    /// Until the child has said `ready`.
    greet: Option<oneshot::Sender<Ready>>,
}

impl<R: AsyncRead> Incoming<'_, R> {
    /// Handles what arrives until the connection is over, and says why it is.
    async fn run(&mut self) -> SynapsError {
        let mut lines = Lines::new(MAX_EVENT_BYTES);
        loop {
            match self.output.read().await {
                Ok([]) => break,
                Ok(arrived) => lines.push(arrived),
                Err(error) => return closed(&mut self.vitals, Some(Arc::new(error))).await,
            }
            while let Some(line) = lines.next_line() {
                if let Err(error) = self.on_line(line).await {
                    return error;
                }
            }
        }
        if let Some(line) = lines.finish() {
            // What a child said half when it died is no breach of the protocol.
            let _ = self.on_line(line).await;
        }
        closed(&mut self.vitals, None).await
    }

    async fn on_line(&mut self, line: Line<'_>) -> Result<(), SynapsError> {
        let frame = match line {
            Line::Whole(frame) => frame.trim_ascii(),
            Line::Oversize => {
                return Err(SynapsError::protocol(&format!("a frame of more than {MAX_EVENT_BYTES} bytes")));
            }
        };
        if frame.is_empty() {
            return Ok(());
        }
        match decode(frame)? {
            Some(event) => self.on_event(event, frame.len()).await,
            None => Ok(()),
        }
    }

    async fn on_event(&mut self, event: RpcEvent, bytes: usize) -> Result<(), SynapsError> {
        if let Some(greet) = self.greet.take() {
            let RpcEvent::Ready { session_id, model, protocol_version } = event else {
                return Err(SynapsError::protocol("its first frame is not `ready`"));
            };
            // Whoever started the child may have given up on it.
            let _ = greet.send(Ready { session_id, model, protocol_version });
            return Ok(());
        }
        let event = match event {
            // A second one tells nothing new.
            RpcEvent::Ready { .. } => return Ok(()),
            RpcEvent::AgentEnd { usage } => return self.on_usage(usage),
            RpcEvent::Response { id, command, body } => return self.on_response(&id, &command, body),
            RpcEvent::Error { id, message } => {
                // Without an id it answers a line that is no command, and this client sends none.
                if let Some(id) = id {
                    self.link.refuse(&id, message);
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

    fn on_usage(&self, usage: TurnUsage) -> Result<(), SynapsError> {
        self.link.consumed(usage);
        Ok(())
    }

    fn on_response(&self, id: &str, command: &str, body: Body) -> Result<(), SynapsError> {
        // Some children tell what they are going to disclose before they answer, under the same id.
        if command.ends_with(".disclosure") {
            return Ok(());
        }
        self.link.answer(id, body)
    }

    /// Puts an event into the running turn, if need be when there is room again.
    async fn deliver(&mut self, event: TurnEvent, bytes: usize) {
        // A turn that nobody began is of no interest.
        let Some(turn) = self.link.running() else { return };
        let Err(event) = turn.offer(event, bytes) else { return };
        let mut push = std::pin::pin!(turn.push(event, bytes));
        tokio::select! {
            biased;
            () = &mut push => return,
            status = self.vitals.death() => {
                // Nobody reads, so the end of the connection will not be seen. Calls need not wait.
                self.link.fail_calls(SynapsError::Closed { status, source: None });
            }
        }
        push.await;
    }
}

/// The frame, or nothing if it is of a type that this client does not know.
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
    let flaw = match serde_json::from_slice(frame) {
        Ok(event) => return Ok(Some(event)),
        Err(flaw) => flaw,
    };
    let is_known = match serde_json::from_slice::<Typed>(frame) {
        Ok(Typed { kind, event: Some(inner) }) if kind == "message_update" => {
            ASSISTANT_EVENTS.contains(&inner.kind.as_str())
        }
        Ok(Typed { kind, .. }) => EVENTS.contains(&kind.as_str()),
        Err(_) => true,
    };
    if is_known { Err(SynapsError::protocol(&format!("no frame: {flaw}"))) } else { Ok(None) }
}

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

const ASSISTANT_EVENTS: [&str; 6] = [
    "text_delta",
    "thinking_delta",
    "toolcall_start",
    "toolcall_input_delta",
    "toolcall_input",
    "toolcall_result",
];

struct FinalOutput(Arc<Link>);

impl Drop for FinalOutput {
    fn drop(&mut self) {
        self.0.end(self.0.verdict());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_unknown_is_passed_over_and_what_is_broken_is_not() {
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
    fn every_type_that_counts_as_known_is_known() {
        // Each misses members, so none can be read; an unknown one would name itself.
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
