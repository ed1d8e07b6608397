//! What other clients of a session say and are answered, for a chat that waits: at its prompt, or for its turn.

use std::sync::Arc;

use parlor_engine::{Sessions, Watcher};
use parlor_vocab::{MessageEvent, RunEvent, RunId, Seq, SessionEvent, SessionId, SessionUpdate, UserInput};

use crate::text::TerminalSanitizer;

/// The messages of other clients in a session.
pub(super) struct OtherRuns {
    watcher: Watcher,
    position: Seq,
    messages: OtherMessages,
}

impl OtherRuns {
    /// Those after `position`.
    pub(super) async fn after(sessions: &Arc<Sessions>, session: &SessionId, position: Seq) -> Self {
        Self { watcher: sessions.join(session, position).await, position, messages: OtherMessages::default() }
    }

    /// Waits for the next message. Cancel safe.
    pub(super) async fn next(&mut self) -> String {
        loop {
            let Ok(update) = self.watcher.next().await else {
                // The session was deleted, or its log cannot be read: the next message that the user sends reports it.
                return std::future::pending().await;
            };
            if let SessionUpdate::Entry(entry) = &update {
                self.position = entry.seq;
            }
            if let Some(message) = self.messages.message_in(&update) {
                return message;
            }
        }
    }

    /// The last event that was seen.
    pub(super) fn position(&self) -> Seq {
        self.position
    }
}

/// Finds the messages of other clients, and the answers to them, in the updates of a session.
#[derive(Default)]
pub(super) struct OtherMessages {
    /// The last run that was started, except for subagents: their texts go to the agent of the run.
    run: Option<RunId>,
}

impl OtherMessages {
    /// The message of another client, or the answer to it, if this update completes one.
    pub(super) fn message_in(&mut self, update: &SessionUpdate) -> Option<String> {
        let SessionUpdate::Entry(entry) = update else { return None };
        let SessionEvent::Run { run, event, .. } = &entry.event else { return None };
        match event {
            RunEvent::Started { parent: None, input, .. } => {
                self.run = Some(run.clone());
                Some(with_sender(input))
            }
            RunEvent::Steered { input, .. } => Some(with_sender(input)),
            RunEvent::Message(MessageEvent::Completed { text, .. }) if self.run.as_ref() == Some(run) => {
                Some(visible(text))
            }
            RunEvent::Started { .. }
            | RunEvent::Message(_)
            | RunEvent::Step(_)
            | RunEvent::Tool(_)
            | RunEvent::Subagent(_)
            | RunEvent::ErrorRaised { .. }
            | RunEvent::UsageAdded { .. }
            | RunEvent::Ended { .. } => None,
        }
    }
}

/// The text with which another client steers a run, if this update adds one.
pub(super) fn steer_in(update: &SessionUpdate) -> Option<String> {
    let SessionUpdate::Entry(entry) = update else { return None };
    match &entry.event {
        SessionEvent::Run { event: RunEvent::Steered { input, .. }, .. } => Some(with_sender(input)),
        SessionEvent::Run { .. }
        | SessionEvent::Created(_)
        | SessionEvent::Renamed { .. }
        | SessionEvent::AgentChosen(_)
        | SessionEvent::Queued(_)
        | SessionEvent::Unqueued { .. }
        | SessionEvent::Cleared
        | SessionEvent::Compacted { .. }
        | SessionEvent::MessageAdded(_) => None,
    }
}

fn with_sender(input: &UserInput) -> String {
    let sender = input.by.as_ref().map_or("another client", |by| by.client.as_ref().unwrap_or(&by.door));
    visible(&format!("{sender}: {}", input.text))
}

fn visible(text: &str) -> String {
    TerminalSanitizer::default().sanitize(text)
}
