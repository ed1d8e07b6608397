//! A summary without a model: a list of the last messages.

use parlor_vocab::{HistoryItem, Message, Role, truncate_chars};

use crate::{DIGEST_MESSAGE_CHARS, DIGEST_MESSAGES};

/// Lists the last messages, each truncated, and counts all messages and tool calls. Deterministic.
pub(crate) fn digest(history: &[HistoryItem]) -> String {
    let messages: Vec<&Message> = history
        .iter()
        .filter_map(|item| match item {
            HistoryItem::Message(message) => Some(message),
            HistoryItem::ToolUse(_) | HistoryItem::UnfinishedRun { .. } => None,
        })
        .collect();
    let calls = history.iter().filter(|item| matches!(item, HistoryItem::ToolUse(_))).count();
    let skipped = messages.len().saturating_sub(DIGEST_MESSAGES);
    let mut text = format!("Summary of {} messages and {calls} tool calls so far.", messages.len());
    if skipped > 0 {
        text.push_str(&format!(" The first {skipped} are left out."));
    }
    for message in messages.iter().skip(skipped) {
        let speaker = match message.role {
            Role::User => "User",
            Role::Assistant => "Assistant",
            Role::System => "Note",
        };
        let words: Vec<&str> = message.text.split_whitespace().collect();
        text.push_str(&format!("\n- {speaker}: {}", truncate_chars(&words.join(" "), DIGEST_MESSAGE_CHARS)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use parlor_vocab::MessageId;

    fn message(role: Role, text: &str) -> HistoryItem {
        let id = MessageId::parse("m").unwrap();
        HistoryItem::Message(Message { id, role, text: text.to_owned(), media: Vec::new() })
    }

    #[test]
    fn each_message_is_one_line() {
        let text = digest(&[message(Role::User, "one\ntwo"), message(Role::Assistant, "three")]);
        assert_eq!(
            text,
            "Summary of 2 messages and 0 tool calls so far.\n- User: one two\n- Assistant: three"
        );
    }

    #[test]
    fn the_summary_of_a_long_history_is_short() {
        let history = vec![message(Role::User, &"x".repeat(10_000)); DIGEST_MESSAGES + 7];
        let text = digest(&history);
        assert!(text.contains("The first 7 are left out."));
        assert_eq!(text.lines().count(), 1 + DIGEST_MESSAGES);
        assert!(text.chars().count() < DIGEST_MESSAGES * (DIGEST_MESSAGE_CHARS + 20) + 100);
    }
}
