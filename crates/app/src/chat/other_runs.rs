//! What other clients of a session say and are answered, for a chat that waits: at its prompt, or for its turn. An answer
//! comes line by line while it is written.

use std::sync::Arc;

use parlor_engine::{Sessions, Watcher};
use parlor_vocab::{
    MessageEvent, RunEvent, RunId, Seq, SessionEvent, SessionId, SessionUpdate, StreamKind, UserInput,
};

use crate::text::TerminalSanitizer;

/// A line of an answer that is longer than this is shown before its end, up to a space.
const LIVE_LINE_BYTES: usize = 120;

/// The messages of other clients in a session.
pub(super) struct OtherRuns {
    watcher: Watcher,
    position: Seq,
    messages: OtherMessages,
}

impl OtherRuns {
    /// Those after `position`, and the answer that is being written there.
    pub(super) async fn after(sessions: &Arc<Sessions>, session: &SessionId, position: Seq) -> Self {
        let watcher = sessions.join(session, position).await;
        // A session that cannot be read is reported when the user sends a message.
        let active = sessions.record(session).await.ok().and_then(|record| record.running);
        Self { watcher, position, messages: OtherMessages { run: active, ..OtherMessages::default() } }
    }

    /// The run of another client that is active.
    pub(super) fn active(&self) -> Option<&RunId> {
        self.messages.run.as_ref()
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

    /// The last event that was seen, and what is known of the runs up to there.
    pub(super) fn into_parts(self) -> (Seq, OtherMessages) {
        (self.position, self.messages)
    }
}

/// Finds the messages of other clients, and the answers to them, in the updates of a session.
#[derive(Default)]
pub(super) struct OtherMessages {
    /// The active run. Not one of a subagent: their texts go to the agent of the run.
    run: Option<RunId>,
    /// Whether text of the open message came while it was written.
    is_streamed: bool,
    /// Text of the open message that was not shown yet.
    unshown: String,
}

impl OtherMessages {
    /// The message of another client, or a part of the answer to it, if this update completes one.
    pub(super) fn message_in(&mut self, update: &SessionUpdate) -> Option<String> {
        let entry = match update {
            SessionUpdate::Entry(entry) => entry,
            SessionUpdate::Delta { run, stream: StreamKind::Message(_), text }
                if self.run.as_ref() == Some(run) =>
            {
                self.is_streamed = true;
                self.unshown.push_str(text);
                return self.take_lines().map(|lines| visible(&lines));
            }
            SessionUpdate::Delta { .. } => return None,
        };
        let SessionEvent::Run { run, event, .. } = &entry.event else { return None };
        match event {
            RunEvent::Started { parent: None, input, .. } => {
                self.run = Some(run.clone());
                Some(with_sender(input))
            }
            RunEvent::Steered { input, .. } => Some(with_sender(input)),
            RunEvent::Message(MessageEvent::Completed { text, .. }) if self.run.as_ref() == Some(run) => {
                let unshown = std::mem::take(&mut self.unshown);
                let rest = if std::mem::take(&mut self.is_streamed) { &unshown } else { text };
                (!rest.is_empty()).then(|| visible(rest))
            }
            RunEvent::Ended { .. } if self.run.as_ref() == Some(run) => {
                *self = Self::default();
                None
            }
            RunEvent::Started { .. }
            | RunEvent::Message(_)
            | RunEvent::Step(_)
            | RunEvent::Tool(_)
            | RunEvent::Question(_)
            | RunEvent::Subagent(_)
            | RunEvent::ErrorRaised { .. }
            | RunEvent::UsageAdded { .. }
            | RunEvent::Ended { .. } => None,
        }
    }

    /// Takes the whole lines that were not shown yet, without the last line end; of a long line, the part up to a space.
    fn take_lines(&mut self) -> Option<String> {
        let end = self.unshown.rfind('\n').or_else(|| {
            let is_long = self.unshown.len() > LIVE_LINE_BYTES;
            is_long.then(|| self.unshown.rfind(' ')).flatten()
        })?;
        let rest = self.unshown.split_off(end + 1);
        let mut lines = std::mem::replace(&mut self.unshown, rest);
        lines.pop();
        Some(lines)
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
        | SessionEvent::ModeChosen { .. }
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parlor_vocab::{Entry, EventId, MessageId, RunEnding, Timestamp};

    use super::*;

    fn run() -> RunId {
        RunId::parse("run").unwrap()
    }

    fn message() -> MessageId {
        MessageId::parse("message").unwrap()
    }

    fn delta(text: &str) -> SessionUpdate {
        SessionUpdate::Delta { run: run(), stream: StreamKind::Message(message()), text: text.to_owned() }
    }

    fn event(event: RunEvent) -> SessionUpdate {
        let (id, event) =
            (EventId::parse("e").unwrap(), SessionEvent::Run { run: run(), sequence: 1, event });
        SessionUpdate::Entry(Arc::new(Entry { seq: Seq(1), id, at: Timestamp(0), event }))
    }

    fn completed(text: &str) -> SessionUpdate {
        let (message, text, media) = (message(), text.to_owned(), Vec::new());
        event(RunEvent::Message(MessageEvent::Completed { message, text, media }))
    }

    fn messages_in(other: &mut OtherMessages, updates: &[SessionUpdate]) -> Vec<String> {
        updates.iter().filter_map(|update| other.message_in(update)).collect()
    }

    #[test]
    fn an_answer_is_shown_line_by_line_and_its_rest_at_the_end() {
        let mut other = OtherMessages { run: Some(run()), ..OtherMessages::default() };
        let updates =
            [delta("one\ntw"), delta("o\nthree\nfo"), delta("ur"), completed("one\ntwo\nthree\nfour")];
        assert_eq!(messages_in(&mut other, &updates), ["one", "two\nthree", "four"]);
        // The next message of the same run did not come while it was written.
        assert_eq!(messages_in(&mut other, &[completed("whole")]), ["whole"]);
        let ended = event(RunEvent::Ended { ending: RunEnding::Completed { message: None }, duration_ms: 1 });
        assert_eq!(messages_in(&mut other, &[ended, delta("late\n")]), [""; 0]);
    }

    #[test]
    fn a_long_line_is_shown_up_to_a_space() {
        let mut other = OtherMessages { run: Some(run()), ..OtherMessages::default() };
        let words = "word ".repeat(LIVE_LINE_BYTES / 5 + 1) + "rest";
        let shown = messages_in(&mut other, &[delta(&words), completed(&words)]);
        assert_eq!(shown, [words.trim_end_matches(" rest"), "rest"]);
    }
}
