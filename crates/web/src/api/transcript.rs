//! The messages of one session.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
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
    for message in session.history().iter().rev().filter_map(message_text) {
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
fn message_text(item: &HistoryItem) -> Option<MessageText> {
    let (role, content) = match item {
        HistoryItem::Message(Message { role: Role::User, text, .. }) => ("user", text.as_str()),
        HistoryItem::Message(Message { role: Role::Assistant, text, .. }) => ("assistant", text.as_str()),
        HistoryItem::UnfinishedRun(RunEnding::Stopped { cause, .. }) => ("assistant", cause.reason()),
        HistoryItem::Message(Message { role: Role::System, .. })
        | HistoryItem::ToolUse(_)
        | HistoryItem::UnfinishedRun(RunEnding::Completed { .. } | RunEnding::Failed(_)) => return None,
    };
    Some(MessageText { role, content: content.to_owned() })
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
    use super::*;

    #[test]
    fn the_estimated_size_of_a_message_is_never_too_small() {
        for text in ["", "plain", "quotes \" and \\ and \n\t\u{1}\u{1f}", "\u{e4}\u{1f600}\u{7f}"] {
            let message = MessageText { role: "assistant", content: text.to_owned() };
            let real = serde_json::to_string(&message).unwrap().len();
            assert!((real..=real + 12).contains(&json_bytes(&message)), "{text:?}");
        }
    }
}
