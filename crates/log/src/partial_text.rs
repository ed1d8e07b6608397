//! The text so far of a message that an agent is writing.
//!
//! It is no event: it has no number and wakes no reader. It exists so that the text survives the death of the process;
//! the event that completes the message holds all of it and removes it here.

use parlor_vocab::{MessageId, RunEvent, SessionEvent};

use crate::LogError;

/// A part of the text of a message that is not complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartialText<'a> {
    /// The message.
    pub message: &'a MessageId,
    /// The number of bytes of the message before this part.
    pub start: usize,
    /// The part.
    pub text: &'a str,
}

/// A message that is not complete, with its text so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartialMessage {
    /// The message.
    pub message: MessageId,
    /// Its text so far.
    pub text: String,
}

/// Whether the unfinished message of a session is complete or given up with this event. A session writes one message at
/// a time.
pub(crate) fn ends_partial_text(event: &SessionEvent) -> bool {
    use parlor_vocab::MessageEvent::Completed;
    match event {
        SessionEvent::Run { event, .. } => {
            matches!(event, RunEvent::Message(Completed { .. }) | RunEvent::Ended { .. })
        }
        SessionEvent::Created(_)
        | SessionEvent::Renamed { .. }
        | SessionEvent::AgentChosen(_)
        | SessionEvent::ModeChosen { .. }
        | SessionEvent::Queued(_)
        | SessionEvent::Unqueued { .. }
        | SessionEvent::Cleared
        | SessionEvent::Compacted { .. }
        | SessionEvent::MessageAdded(_) => false,
    }
}

/// Puts the pieces of a message together, up to the first gap.
pub(crate) fn join_pieces(
    pieces: impl Iterator<Item = Result<(MessageId, usize, String), LogError>>,
) -> Result<Option<PartialMessage>, LogError> {
    let mut joined: Option<PartialMessage> = None;
    for piece in pieces {
        let (message, start, text) = piece?;
        match &mut joined {
            None if start == 0 => joined = Some(PartialMessage { message, text }),
            Some(partial) if partial.message == message && partial.text.len() == start => {
                partial.text.push_str(&text);
            }
            None | Some(_) => break,
        }
    }
    Ok(joined)
}
