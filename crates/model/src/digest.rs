//! A summary that no model wrote: who said what, in short.

use parlor_vocab::{HistoryItem, Message, Role};

use crate::quote::cut;
use crate::{DIGEST_MESSAGE_CHARS, DIGEST_MESSAGES};

/// Lists the last messages, each cut short, and says how many there were. Deterministic.
pub(crate) fn digest(history: &[HistoryItem]) -> String {
    let messages: Vec<&Message> = history
        .iter()
        .filter_map(|passage| match passage {
            HistoryItem::Message(message) => Some(message),
            HistoryItem::ToolUse(_) | HistoryItem::UnfinishedRun(_) => None,
        })
        .collect();
    let calls = history.iter().filter(|passage| matches!(passage, HistoryItem::ToolUse(_))).count();
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
        text.push_str(&format!("\n- {speaker}: {}", cut(&words.join(" "), DIGEST_MESSAGE_CHARS)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use parlor_vocab::MessageId;

    fn says(role: Role, text: &str) -> HistoryItem {
        let id = MessageId::parse("m").unwrap();
        HistoryItem::Message(Message { id, role, text: text.to_owned(), media: Vec::new() })
    }

    #[test]
    fn each_message_is_one_line() {
        let text = digest(&[says(Role::User, "one\ntwo"), says(Role::Assistant, "three")]);
        assert_eq!(
            text,
            "Summary of 2 messages and 0 tool calls so far.\n- User: one two\n- Assistant: three"
        );
    }

    #[test]
    fn it_stays_small_however_long_the_history_is() {
        let history = vec![says(Role::User, &"x".repeat(10_000)); DIGEST_MESSAGES + 7];
        let text = digest(&history);
        assert!(text.contains("The first 7 are left out."));
        assert_eq!(text.lines().count(), 1 + DIGEST_MESSAGES);
        assert!(text.chars().count() < DIGEST_MESSAGES * (DIGEST_MESSAGE_CHARS + 20) + 100);
    }
}
