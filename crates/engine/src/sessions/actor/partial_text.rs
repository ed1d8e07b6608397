//! Keeps the text so far of the message that an agent is writing, so that it survives the death of this process.
//!
//! The log holds a message once it is complete. Until then the actor adds what was written to the log's partial text, at
//! most once each [`PARTIAL_TEXT_INTERVAL`]: the agent does not wait for that, and no word has an append of its own.

use std::time::Duration;

use parlor_log::{LogError, PartialText};
use parlor_tools::clean;
use parlor_vocab::MessageId;
use tokio::time::{Instant, timeout_at};

use super::Actor;
use crate::sessions::handle::ActorMessage;

/// How often the text of an unfinished message is written to the log. After `kill -9`, at most the text of this time is
/// missing.
pub const PARTIAL_TEXT_INTERVAL: Duration = Duration::from_secs(1);

/// How many bytes of an unfinished message are written at a time. The rest of a faster answer follows at the next times.
pub const PARTIAL_TEXT_BYTES: usize = 1 << 20;

/// What was kept of the unfinished message, and when the actor keeps more.
#[derive(Default)]
pub(super) struct KeptText {
    /// The message, and how many bytes of it the log has.
    message: Option<(MessageId, usize)>,
    /// When the next part is due. `None` while no message is being written.
    due: Option<Instant>,
}

impl Actor {
    /// Waits for the next message to the actor. Meanwhile keeps the text of an unfinished message. `None` when the lease is
    /// lost.
    pub(super) async fn next_message(&mut self) -> Option<ActorMessage> {
        loop {
            if self.session.open_message().is_none() {
                self.kept_text = KeptText::default();
                return self.receive().await;
            }
            let due = *self.kept_text.due.get_or_insert_with(|| Instant::now() + PARTIAL_TEXT_INTERVAL);
            // Checked here too, because a mailbox that is never empty would put it off for ever.
            if Instant::now() >= due {
                self.keep_new_text().await;
                self.kept_text.due = None;
                continue;
            }
            // Boxed, because each of a thousand idle actors would keep the timer in memory.
            if let Ok(message) = Box::pin(timeout_at(due, self.receive())).await {
                return message;
            }
        }
    }

    /// Keeps what was added to the unfinished message since the last time.
    async fn keep_new_text(&mut self) {
        let Some(message) = self.session.open_message() else { return };
        let start = match &self.kept_text.message {
            Some((kept, bytes)) if kept == message => *bytes,
            Some(_) | None => 0,
        };
        let Some(text) = self.live.message_text(message, start, PARTIAL_TEXT_BYTES) else { return };
        let kept = self.deps.log.keep_partial_text(&self.lease, PartialText { message, start, text: &text });
        match kept.await {
            Ok(_) => self.kept_text.message = Some((message.clone(), start + text.len())),
            Err(LogError::NotHeld { .. }) => self.is_lease_lost = true,
            // The next time writes it again.
            Err(_) => {}
        }
    }

    /// The message that was being written when the process of the active run ended, with the text that was kept.
    pub(super) async fn interrupted_message(&self) -> Result<Option<(MessageId, String)>, LogError> {
        let Some(open) = self.session.open_message() else { return Ok(None) };
        let partial = self.deps.log.partial_message(&self.id).await?;
        let partial = partial.filter(|partial| partial.message == *open && !partial.text.is_empty());
        Ok(partial.map(|partial| (partial.message, clean(&*self.redact, partial.text))))
    }
}
