//! Finds the parts of a history that no provider has accepted.
//!
//! A provider that refuses a message once refuses every request that contains it. So what was refused is never sent
//! again, and what got no answer for another reason can be left out if a request fails once more.

use parlor_vocab::{Failure, FailureCode, HistoryItem, Message, MessageId, Role, RunEnding};

use crate::provider::is_about_account;

/// Whether a provider accepted an item of the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Acceptance {
    /// It was answered, or nothing speaks against it.
    Accepted,
    /// A user message of a run that failed before any answer; the message may or may not be the reason.
    Unanswered,
    /// A provider refused a request that ended with this item.
    Refused,
}

/// The acceptance of each item of `history`.
pub(super) fn acceptance(history: &[HistoryItem]) -> Vec<Acceptance> {
    let mut found = vec![Acceptance::Accepted; history.len()];
    for (end, item) in history.iter().enumerate() {
        let HistoryItem::UnfinishedRun { input, ending: RunEnding::Failed(failure) } = item else { continue };
        let start = first_item(history, end, input.as_ref());
        match cause(failure) {
            FailureCause::Request => {
                for index in refused_items(history, start, end) {
                    found[index] = Acceptance::Refused;
                }
                found[end] = Acceptance::Refused;
            }
            FailureCause::Unknown if !history[start..end].iter().any(is_answer) => {
                found[start..=end].fill(Acceptance::Unanswered);
            }
            FailureCause::Unknown | FailureCause::Other => {}
        }
    }
    found
}

/// Whether a run of `history` failed before any answer, for a reason that may be its messages.
pub(super) fn has_unanswered(history: &[HistoryItem]) -> bool {
    acceptance(history).contains(&Acceptance::Unanswered)
}

/// The messages of users in `history` that a provider refused.
pub fn refused_messages(history: &[HistoryItem]) -> impl Iterator<Item = &MessageId> {
    history.iter().zip(acceptance(history)).filter_map(|(item, acceptance)| match item {
        HistoryItem::Message(message) if acceptance == Acceptance::Refused => Some(&message.id),
        HistoryItem::Message(_) | HistoryItem::ToolUse(_) | HistoryItem::UnfinishedRun { .. } => None,
    })
}

/// What a failure says about the request.
enum FailureCause {
    /// The provider refuses the content of the request.
    Request,
    /// The content may be the reason.
    Unknown,
    /// The content is not the reason.
    Other,
}

fn cause(failure: &Failure) -> FailureCause {
    use FailureCode::{
        AnswerTooLong, ContextOverflow, EmptyAnswer, ModelAuth, ModelRefused, ModelUnavailable,
    };
    if matches!(failure.code, ModelRefused | ContextOverflow) && !is_about_account(&failure.message) {
        FailureCause::Request
    } else if matches!(
        failure.code,
        ModelRefused | ContextOverflow | ModelUnavailable | ModelAuth | EmptyAnswer | AnswerTooLong
    ) {
        FailureCause::Unknown
    } else {
        FailureCause::Other
    }
}

/// The index of the first item of the run that ends at `end`.
fn first_item(history: &[HistoryItem], end: usize, input: Option<&MessageId>) -> usize {
    let before = &history[..end];
    let found = before.iter().rposition(|item| match item {
        HistoryItem::Message(message) => Some(&message.id) == input,
        HistoryItem::ToolUse(_) | HistoryItem::UnfinishedRun { .. } => false,
    });
    // A summary replaced the beginning of the run. The summary is the last user message, or comes before it.
    found.unwrap_or_else(|| before.iter().rposition(is_user_message).map_or(0, |index| index + 1))
}

/// The items after the last one that the provider accepted: those that the model had not answered, and the beginning
/// of an answer that the provider broke off.
fn refused_items(history: &[HistoryItem], start: usize, end: usize) -> Vec<usize> {
    let mut refused = Vec::new();
    let mut indexes = (start..end).rev().peekable();
    let mut take_while = |fits: fn(&HistoryItem) -> bool| {
        while let Some(index) = indexes.next_if(|index| fits(&history[*index])) {
            refused.push(index);
        }
    };
    take_while(is_answer_text);
    take_while(|item| !is_answer(item));
    // Calls are answers, so only their results are refused, and what comes before them was accepted.
    take_while(|item| matches!(item, HistoryItem::ToolUse(_)));
    refused
}

fn is_user_message(item: &HistoryItem) -> bool {
    matches!(item, HistoryItem::Message(Message { role: Role::User, .. }))
}

fn is_answer(item: &HistoryItem) -> bool {
    matches!(item, HistoryItem::ToolUse(_)) || is_answer_text(item)
}

fn is_answer_text(item: &HistoryItem) -> bool {
    matches!(item, HistoryItem::Message(Message { role: Role::Assistant, .. }))
}

#[cfg(test)]
mod tests {
    use parlor_vocab::{ToolCallId, ToolUse};

    use super::*;

    /// A history from words: `u:ID` a user message, `a` an answer, `t` a tool use, `ID!CODE` the failure of the run
    /// that answers the message ID.
    fn history(words: &str) -> Vec<HistoryItem> {
        let message = |id: &str, role| {
            let (id, text) = (MessageId::parse(id).unwrap(), String::new());
            HistoryItem::Message(Message { id, role, text, media: Vec::new() })
        };
        let item = |word: &str| match word.split_once([':', '!']) {
            None if word == "t" => HistoryItem::ToolUse(ToolUse {
                call: ToolCallId::parse("t").unwrap(),
                tool: "shell".to_owned(),
                input: String::new(),
                result: None,
            }),
            None => message(word, Role::Assistant),
            Some(("u", id)) => message(id, Role::User),
            Some((id, code)) => {
                let (code, no_credit) = (code.trim_end_matches('$'), code.ends_with('$'));
                let text = if no_credit { "429: insufficient_quota" } else { "400: no" };
                let failure = Failure { code: code.into(), message: text.to_owned(), retryable: false };
                let input = Some(MessageId::parse(id).unwrap());
                HistoryItem::UnfinishedRun { input, ending: RunEnding::Failed(failure) }
            }
        };
        words.split_whitespace().map(item).collect()
    }

    /// One letter for each item: accepted, unanswered, refused.
    fn letters(words: &str) -> String {
        let letter = |acceptance: &Acceptance| match acceptance {
            Acceptance::Accepted => 'a',
            Acceptance::Unanswered => 'u',
            Acceptance::Refused => 'r',
        };
        acceptance(&history(words)).iter().map(letter).collect()
    }

    #[test]
    fn what_the_provider_had_not_answered_is_refused() {
        assert_eq!(letters("u:1 a u:2 2!MODEL_REFUSED u:3 a"), "aarraa");
        assert_eq!(letters("u:1 u:steered 1!CONTEXT_OVERFLOW"), "rrr");
        assert_eq!(
            letters("u:1 a t t 1!MODEL_REFUSED"),
            "aarrr",
            "the prompt was accepted, the results were not"
        );
        assert_eq!(letters("u:1 t u:steered 1!MODEL_REFUSED"), "arrr");
        assert_eq!(letters("u:1 a 1!MODEL_REFUSED"), "rrr", "a refusal in the middle of an answer");
        assert_eq!(letters("u:summary u:1 1!MODEL_REFUSED"), "arr", "a summary is not part of the run");
        assert_eq!(
            letters("u:summary t 1!MODEL_REFUSED"),
            "arr",
            "a summary replaced the beginning of the run"
        );
    }

    #[test]
    fn a_prompt_that_failed_otherwise_is_unanswered_or_accepted() {
        assert_eq!(letters("u:1 1!MODEL_UNAVAILABLE u:2 a"), "uuaa");
        assert_eq!(letters("u:1 a 1!MODEL_UNAVAILABLE"), "aaa");
        assert_eq!(letters("u:1 1!MODEL_REFUSED$"), "uu", "an empty account is not the prompt's fault");
        assert_eq!(letters("u:1 1!RUN_INTERRUPTED u:2 2!MODEL_BUSY"), "aaaa");
    }

    #[test]
    fn refused_messages_are_named() {
        let history = history("u:1 a u:2 2!MODEL_REFUSED u:3 3!MODEL_BUSY");
        assert_eq!(refused_messages(&history).map(MessageId::as_str).collect::<Vec<_>>(), ["2"]);
    }
}
