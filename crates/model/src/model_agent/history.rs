//! Converts the history of a session to messages for a model.
//!
//! The result is valid for every provider: it begins with a user message, each call is followed by its result, and no
//! message is empty. A call without a result, because the process died, gets a result that says so.

use parlor_vocab::{Failure, HistoryItem, Media, Message, MessageId, Role, RunEnding, ToolUse};

use crate::provider::{CallResult, ModelCall, ModelMessage, ProviderState};

/// A message for the model, with its origin in the session.
#[derive(Clone, Debug)]
pub(super) struct HistoryMessage {
    pub(super) message: ModelMessage,
    /// The id of the session's message with which it begins, if there is one.
    pub(super) id: Option<MessageId>,
    /// The attachments.
    pub(super) media: Vec<Media>,
}

/// The text of a user message without text.
const NO_TEXT: &str = "(no words)";

/// The messages for a history, oldest first.
pub(super) fn model_messages(history: &[HistoryItem]) -> Vec<HistoryMessage> {
    let mut messages: Vec<HistoryMessage> = Vec::with_capacity(history.len());
    let mut remarks: Vec<String> = Vec::new();
    for item in history {
        match item {
            HistoryItem::Message(message) => match message.role {
                Role::System => {}
                Role::User => push_user(&mut messages, message, &mut remarks),
                Role::Assistant => push_assistant(&mut messages, message),
            },
            HistoryItem::ToolUse(used) => push_tool_use(&mut messages, used),
            HistoryItem::UnfinishedRun(ending) => remarks.extend(remark(ending)),
        }
    }
    if !remarks.is_empty() {
        messages.push(user_message(remarks.join("\n"), None, Vec::new()));
    }
    messages
}

/// A user message.
pub(super) fn user_message(text: String, id: Option<MessageId>, media: Vec<Media>) -> HistoryMessage {
    let text = if text.trim().is_empty() { NO_TEXT.to_owned() } else { text };
    HistoryMessage { message: ModelMessage::User { text, pictures: Vec::new() }, id, media }
}

fn push_user(messages: &mut Vec<HistoryMessage>, message: &Message, remarks: &mut Vec<String>) {
    let mut text = remarks.join("\n");
    remarks.clear();
    if !text.is_empty() {
        text.push_str("\n\n");
    }
    text.push_str(&message.text);
    // Consecutive user messages become one, because not every provider accepts two.
    if let Some(HistoryMessage { message: ModelMessage::User { text: last_text, .. }, media, .. }) =
        messages.last_mut()
    {
        last_text.push_str("\n\n");
        last_text.push_str(&text);
        media.extend(message.media.iter().cloned());
        return;
    }
    messages.push(user_message(text, Some(message.id.clone()), message.media.clone()));
}

fn push_assistant(messages: &mut Vec<HistoryMessage>, message: &Message) {
    if message.text.trim().is_empty() {
        return;
    }
    if let Some(HistoryMessage { message: ModelMessage::Model { text, calls, .. }, .. }) = messages.last_mut()
        && calls.is_empty()
    {
        text.push_str("\n\n");
        text.push_str(&message.text);
        return;
    }
    begin_with_user(messages);
    let answer = ModelMessage::Model {
        text: message.text.clone(),
        calls: Vec::new(),
        provider_state: ProviderState::default(),
    };
    messages.push(HistoryMessage { message: answer, id: Some(message.id.clone()), media: Vec::new() });
}

/// Adds a call and its result. Each call becomes a step of its own, because the history does not say which calls the
/// model made together.
fn push_tool_use(messages: &mut Vec<HistoryMessage>, used: &ToolUse) {
    let id = used.call.to_string();
    let call = ModelCall { id: id.clone(), tool: used.tool.clone(), input: used.input.clone() };
    match messages.last_mut() {
        Some(HistoryMessage { message: ModelMessage::Model { calls, .. }, .. }) if calls.is_empty() => {
            calls.push(call)
        }
        _ => {
            begin_with_user(messages);
            let answer = ModelMessage::Model {
                text: String::new(),
                calls: vec![call],
                provider_state: ProviderState::default(),
            };
            messages.push(HistoryMessage { message: answer, id: None, media: Vec::new() });
        }
    }
    let (text, failed) = match &used.result {
        Some(Ok(text)) => (text.clone(), false),
        Some(Err(failure)) => (failure_text(failure), true),
        None => ("It is not known what came of this call: it was cut off.".to_owned(), true),
    };
    let result = CallResult {
        id,
        tool: used.tool.clone(),
        text: non_empty_output(text),
        failed,
        pictures: Vec::new(),
    };
    messages.push(HistoryMessage {
        message: ModelMessage::Results(vec![result]),
        id: None,
        media: Vec::new(),
    });
}

/// The output of a tool, or a placeholder if it is empty.
pub(super) fn non_empty_output(text: String) -> String {
    if text.trim().is_empty() { "(no output)".to_owned() } else { text }
}

/// A failure as text for the model.
pub(super) fn failure_text(failure: &Failure) -> String {
    format!("Error {}: {}", failure.code, failure.message)
}

fn begin_with_user(messages: &mut Vec<HistoryMessage>) {
    if messages.is_empty() {
        messages.push(user_message("(The conversation goes on from here.)".to_owned(), None, Vec::new()));
    }
}

/// A note for the model about a run that ended early.
fn remark(ending: &RunEnding) -> Option<String> {
    match ending {
        RunEnding::Completed { .. } => None,
        RunEnding::Failed(failure) => Some(format!(
            "(Your work on this broke off before it was done: {}.)",
            failure.message.trim_end_matches('.')
        )),
        RunEnding::Stopped { cause, .. } => {
            Some(format!("(The user stopped your work on this before it was done: {})", cause.reason()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parlor_vocab::{StopCause, ToolCallId};

    fn message(role: Role, text: &str) -> HistoryItem {
        let id = MessageId::parse(text).unwrap_or_else(|_| MessageId::parse("m").unwrap());
        HistoryItem::Message(Message { id, role, text: text.to_owned(), media: Vec::new() })
    }

    fn tool_use(call: &str, result: Option<Result<String, Failure>>) -> HistoryItem {
        let (call, tool, input) = (ToolCallId::parse(call).unwrap(), "shell".to_owned(), "{}".to_owned());
        HistoryItem::ToolUse(ToolUse { call, tool, input, result })
    }

    fn failed(message: &str) -> Failure {
        Failure { code: "X".into(), message: message.to_owned(), retryable: false }
    }

    /// A short form of each message: u:text, m:text+calls, r:call=text, with ! for a failure.
    fn short_forms(history: &[HistoryItem]) -> Vec<String> {
        let one = |item: HistoryMessage| match item.message {
            ModelMessage::User { text, .. } => format!("u:{text}"),
            ModelMessage::Model { text, calls, .. } => {
                let calls: Vec<String> = calls.into_iter().map(|call| call.id).collect();
                format!("m:{text}+{}", calls.join(","))
            }
            ModelMessage::Results(results) => {
                let all: Vec<String> = results
                    .into_iter()
                    .map(|result| {
                        format!("{}={}{}", result.id, result.text, if result.failed { "!" } else { "" })
                    })
                    .collect();
                format!("r:{}", all.join(","))
            }
        };
        model_messages(history).into_iter().map(one).collect()
    }

    #[test]
    fn messages_and_tool_uses_keep_their_order() {
        let history = [
            message(Role::User, "do"),
            message(Role::Assistant, "I look"),
            tool_use("c1", Some(Ok("a".to_owned()))),
            tool_use("c2", Some(Err(failed("no")))),
            message(Role::System, "for people"),
            message(Role::Assistant, "done"),
        ];
        assert_eq!(
            short_forms(&history),
            ["u:do", "m:I look+c1", "r:c1=a", "m:+c2", "r:c2=Error X: no!", "m:done+"]
        );
    }

    #[test]
    fn a_call_without_a_result_gets_one_and_the_next_message_explains_the_end() {
        let broken = HistoryItem::UnfinishedRun(RunEnding::Failed(failed("the disk is full.")));
        let history = [message(Role::User, "do"), tool_use("c1", None), broken, message(Role::User, "again")];
        assert_eq!(
            short_forms(&history),
            [
                "u:do",
                "m:+c1",
                "r:c1=It is not known what came of this call: it was cut off.!",
                "u:(Your work on this broke off before it was done: the disk is full.)\n\nagain",
            ]
        );
    }

    #[test]
    fn the_first_message_is_the_users_and_none_is_empty() {
        let history = [
            message(Role::Assistant, "hello"),
            message(Role::Assistant, " "),
            tool_use("c", Some(Ok("".to_owned()))),
        ];
        assert_eq!(
            short_forms(&history),
            ["u:(The conversation goes on from here.)", "m:hello+c", "r:c=(no output)"]
        );
        assert_eq!(short_forms(&[message(Role::User, "  ")]), ["u:(no words)"]);
    }

    #[test]
    fn consecutive_messages_of_one_role_are_joined() {
        let stopped = RunEnding::Stopped {
            cause: StopCause::Client { reason: "Stopped by user.".to_owned() },
            message: MessageId::parse("s").unwrap(),
        };
        let history = [
            message(Role::User, "a"),
            message(Role::User, "b"),
            message(Role::Assistant, "c"),
            message(Role::Assistant, "d"),
            HistoryItem::UnfinishedRun(stopped),
        ];
        let forms = short_forms(&history);
        assert_eq!(forms[..2], ["u:a\n\nb", "m:c\n\nd+"]);
        assert!(forms[2].starts_with("u:(The user stopped"), "{forms:?}");
    }

    proptest::proptest! {
        #[test]
        fn any_history_gives_valid_messages(kinds in proptest::collection::vec(0..6u8, 0..40)) {
            let history: Vec<HistoryItem> = kinds.iter().enumerate().map(|(number, kind)| match kind {
                0 => message(Role::User, &format!("u{number}")),
                1 => message(Role::Assistant, &format!("a{number}")),
                2 => tool_use(&format!("c{number}"), None),
                3 => tool_use(&format!("c{number}"), Some(Ok(String::new()))),
                4 => HistoryItem::UnfinishedRun(RunEnding::Failed(failed("x"))),
                _ => message(Role::Assistant, ""),
            }).collect();
            let messages = model_messages(&history);
            let starts_with_user = messages.first().is_none_or(|first| matches!(first.message, ModelMessage::User { .. }));
            proptest::prop_assert!(starts_with_user);
            for pair in messages.windows(2) {
                match (&pair[0].message, &pair[1].message) {
                    (ModelMessage::Model { calls, .. }, ModelMessage::Results(results)) => {
                        proptest::prop_assert_eq!(calls.len(), results.len());
                        proptest::prop_assert!(calls.iter().zip(results).all(|(call, result)| call.id == result.id));
                    }
                    (ModelMessage::Model { calls, .. }, _) => proptest::prop_assert!(calls.is_empty(), "a call without a result"),
                    (_, ModelMessage::Results(_)) => proptest::prop_assert!(false, "a result without a call"),
                    (ModelMessage::User { .. } | ModelMessage::Results(_), _) => {}
                }
            }
            if let Some(HistoryMessage { message: ModelMessage::Model { calls, .. }, .. }) = messages.last() {
                proptest::prop_assert!(calls.is_empty(), "a call without a result at the end");
            }
        }
    }
}
