//! The messages of one session.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use parlor_doors::supr::fenced;
use parlor_engine::Sessions;
use parlor_vocab::{HistoryItem, Message, Role, RunEnding, SessionId};
use serde::Serialize;

use super::path_id::PathId;
use super::session_error::SessionApiError;
use crate::response_memory::{NoMemory, ResponseMemory};
use crate::site::Site;

/// How many bytes of JSON the messages of one answer have at most. Older messages are left out.
pub const MAX_SESSION_TEXT_BYTES: usize = 8 << 20;

/// A message, as the API shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct MessageText {
    /// `user` or `assistant`.
    role: &'static str,
    content: String,
}

/// The messages of a session, the oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct SessionTranscript {
    id: String,
    messages: Vec<MessageText>,
    /// Whether older messages are left out, since all of them have more than [`MAX_SESSION_TEXT_BYTES`].
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    truncated: bool,
    /// Always empty. Clients of this protocol expect the member.
    summary: String,
    /// When the session was created, as RFC 3339 writes it.
    created: String,
    /// When the session was used last, as RFC 3339 writes it.
    updated: String,
}

pub(crate) async fn read(
    State(site): State<Arc<Site>>,
    Extension(memory): Extension<Arc<ResponseMemory>>,
    PathId(id): PathId,
) -> Response {
    let Ok(_permit) = site.session_reader().await else { return NoMemory::response() };
    match read_transcript(&site.deps.sessions, &id).await {
        Ok(transcript) => memory.json(&transcript, site.deps.settings.limits.answer_wait).await,
        Err(error) => error.response(),
    }
}

/// Reads the newest messages of a session, up to [`MAX_SESSION_TEXT_BYTES`].
pub(super) async fn read_transcript(
    sessions: &Sessions,
    id: &str,
) -> Result<SessionTranscript, SessionApiError> {
    let id = SessionId::parse(id).map_err(|_| SessionApiError::Unknown)?;
    let record = sessions.record(&id).await?;
    let session = sessions.read_newest(&id, MAX_SESSION_TEXT_BYTES).await?;
    let (mut messages, mut bytes, mut truncated) = (Vec::new(), 0, session.history_is_cut());
    let mut items = session.history().iter().rev().peekable();
    while let Some(item) = items.next() {
        let Some(message) = message_text(item, items.peek().copied()) else { continue };
        bytes += json_bytes(&message);
        if bytes > MAX_SESSION_TEXT_BYTES {
            truncated = true;
            break;
        }
        messages.push(message);
    }
    messages.reverse();
    Ok(SessionTranscript {
        id: id.as_str().to_owned(),
        messages,
        truncated,
        summary: String::new(),
        created: record.created.rfc3339(),
        updated: record.updated.rfc3339(),
    })
}

/// The messages of users and agents, and the reason that ended a stopped run. Messages of parlor itself are left out.
/// The answer to a shell command is in a fenced block, as on a socket: clients show all messages as markdown.
fn message_text(item: &HistoryItem, before: Option<&HistoryItem>) -> Option<MessageText> {
    let (role, content) = match item {
        HistoryItem::Message(Message { role: Role::Assistant, text, .. })
            if is_command_output(text, before) =>
        {
            return Some(MessageText { role: "assistant", content: fenced(text) });
        }
        HistoryItem::Message(Message { role: Role::User, text, .. }) => ("user", text.as_str()),
        HistoryItem::Message(Message { role: Role::Assistant, text, .. }) => ("assistant", text.as_str()),
        HistoryItem::UnfinishedRun { ending: RunEnding::Stopped { cause, .. }, .. } => {
            ("assistant", cause.reason())
        }
        HistoryItem::Message(Message { role: Role::System, .. })
        | HistoryItem::ToolUse(_)
        | HistoryItem::UnfinishedRun { ending: RunEnding::Completed { .. } | RunEnding::Failed(_), .. } => {
            return None;
        }
    };
    Some(MessageText { role, content: content.to_owned() })
}

/// Whether `text` is the output of the shell command that the user wrote before. This history has no tool calls, so it is
/// recognised by its last line.
fn is_command_output(text: &str, before: Option<&HistoryItem>) -> bool {
    let is_command = matches!(before, Some(HistoryItem::Message(Message { role: Role::User, text, .. })) if text.trim_start().starts_with('!'));
    is_command
        && text.lines().last().is_some_and(|line| line.starts_with("[exit code ") && line.ends_with(']'))
}

/// How many bytes a message takes in the JSON of an answer, or a few more.
fn json_bytes(MessageText { role, content }: &MessageText) -> usize {
    const AROUND: usize = r#"{"role":"","content":""},"#.len();
    let escaped = |byte: u8| match byte {
        b'"' | b'\\' => 2,
        ..0x20 => r"\u0000".len(),
        _ => 1,
    };
    AROUND + role.len() + content.bytes().map(escaped).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use parlor_vocab::MessageId;

    use super::*;

    #[test]
    fn the_output_of_a_command_is_in_a_fenced_block() {
        let message = |role, text: &str| {
            let (id, text, media) = (MessageId::parse("m").unwrap(), text.to_owned(), Vec::new());
            HistoryItem::Message(Message { id, role, text, media })
        };
        let shown = |question: &str, answer: &str| {
            let question = message(Role::User, question);
            message_text(&message(Role::Assistant, answer), Some(&question)).unwrap().content
        };
        assert_eq!(shown("!ls", "# a\n[exit code 0]"), "```\n# a\n[exit code 0]\n```");
        // A model's answer, and an answer to no command, are markdown already.
        assert_eq!(shown("!important", "**Yes**"), "**Yes**");
        assert_eq!(shown("why", "[exit code 0]"), "[exit code 0]");
    }

    #[test]
    fn the_estimated_size_of_a_message_is_never_too_small() {
        for text in ["", "plain", "quotes \" and \\ and \n\t\u{1}\u{1f}", "\u{e4}\u{1f600}\u{7f}"] {
            let message = MessageText { role: "assistant", content: text.to_owned() };
            let real = serde_json::to_string(&message).unwrap().len();
            assert!((real..=real + 12).contains(&json_bytes(&message)), "{text:?}");
        }
    }
}
