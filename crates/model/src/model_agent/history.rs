//! From what a session looks back on to what a model is told.
//!
//! What comes out is valid for every provider: it begins with the user, every call has its result
//! beside it, and nothing is empty. A call that has no result, because the process died, gets one
//! that says so.

use parlor_vocab::{Failure, HistoryItem, Media, Message, MessageId, Role, RunEnding, ToolUse};

use crate::provider::{CallResult, ModelCall, ModelMessage, ProviderState};

/// A part of the conversation, with what a session knows of it.
#[derive(Clone, Debug)]
pub(super) struct Told {
    pub(super) said: ModelMessage,
    /// The message that it begins with, if it is one of the session's.
    pub(super) message: Option<MessageId>,
    /// Files that came along and may be shown to the model.
    pub(super) media: Vec<Media>,
}

/// What stands where nothing was said.
const NO_WORDS: &str = "(no words)";

/// All of it, oldest first.
pub(super) fn told(history: &[HistoryItem]) -> Vec<Told> {
    let mut told: Vec<Told> = Vec::with_capacity(history.len());
    let mut remarks: Vec<String> = Vec::new();
    for passage in history {
        match passage {
            HistoryItem::Message(message) => match message.role {
                Role::System => {}
                Role::User => user(&mut told, message, &mut remarks),
                Role::Assistant => model(&mut told, message),
            },
            HistoryItem::ToolUse(used) => tool(&mut told, used),
            HistoryItem::UnfinishedRun(ending) => remarks.extend(remark(ending)),
        }
    }
    if !remarks.is_empty() {
        told.push(user_says(remarks.join("\n"), None, Vec::new()));
    }
    told
}

/// Something that the user says.
pub(super) fn user_says(text: String, message: Option<MessageId>, media: Vec<Media>) -> Told {
    let text = if text.trim().is_empty() { NO_WORDS.to_owned() } else { text };
    Told { said: ModelMessage::User { text, pictures: Vec::new() }, message, media }
}

fn user(told: &mut Vec<Told>, message: &Message, remarks: &mut Vec<String>) {
    let mut text = remarks.join("\n");
    remarks.clear();
    if !text.is_empty() {
        text.push_str("\n\n");
    }
    text.push_str(&message.text);
    // Two in a row are one: not every provider takes two.
    if let Some(Told { said: ModelMessage::User { text: before, .. }, media, .. }) = told.last_mut() {
        before.push_str("\n\n");
        before.push_str(&text);
        media.extend(message.media.iter().cloned());
        return;
    }
    told.push(user_says(text, Some(message.id.clone()), message.media.clone()));
}

fn model(told: &mut Vec<Told>, message: &Message) {
    if message.text.trim().is_empty() {
        return;
    }
    if let Some(Told { said: ModelMessage::Model { text, calls, .. }, .. }) = told.last_mut()
        && calls.is_empty()
    {
        text.push_str("\n\n");
        text.push_str(&message.text);
        return;
    }
    begin_with_user(told);
    let said = ModelMessage::Model {
        text: message.text.clone(),
        calls: Vec::new(),
        thread: ProviderState::default(),
    };
    told.push(Told { said, message: Some(message.id.clone()), media: Vec::new() });
}

/// Each call is told as a step of its own: which of them were made together is not remembered.
fn tool(told: &mut Vec<Told>, used: &ToolUse) {
    let id = used.call.to_string();
    let call = ModelCall { id: id.clone(), tool: used.tool.clone(), input: used.input.clone() };
    match told.last_mut() {
        Some(Told { said: ModelMessage::Model { calls, .. }, .. }) if calls.is_empty() => calls.push(call),
        _ => {
            begin_with_user(told);
            let said = ModelMessage::Model {
                text: String::new(),
                calls: vec![call],
                thread: ProviderState::default(),
            };
            told.push(Told { said, message: None, media: Vec::new() });
        }
    }
    let (text, failed) = match &used.result {
        Some(Ok(text)) => (text.clone(), false),
        Some(Err(failure)) => (in_words(failure), true),
        None => ("It is not known what came of this call: it was cut off.".to_owned(), true),
    };
    let result = CallResult { id, tool: used.tool.clone(), text: output(text), failed, pictures: Vec::new() };
    told.push(Told { said: ModelMessage::Results(vec![result]), message: None, media: Vec::new() });
}

/// What a model gets to read where a tool put out nothing.
pub(super) fn output(text: String) -> String {
    if text.trim().is_empty() { "(no output)".to_owned() } else { text }
}

/// A failure as a model gets to read it.
pub(super) fn in_words(failure: &Failure) -> String {
    format!("Error {}: {}", failure.code, failure.message)
}

fn begin_with_user(told: &mut Vec<Told>) {
    if told.is_empty() {
        told.push(user_says("(The conversation goes on from here.)".to_owned(), None, Vec::new()));
    }
}

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

    fn says(role: Role, text: &str) -> HistoryItem {
        let id = MessageId::parse(text).unwrap_or_else(|_| MessageId::parse("m").unwrap());
        HistoryItem::Message(Message { id, role, text: text.to_owned(), media: Vec::new() })
    }

    fn uses(call: &str, result: Option<Result<String, Failure>>) -> HistoryItem {
        let (call, tool, input) = (ToolCallId::parse(call).unwrap(), "shell".to_owned(), "{}".to_owned());
        HistoryItem::ToolUse(ToolUse { call, tool, input, result })
    }

    fn failed(message: &str) -> Failure {
        Failure { code: "X".into(), message: message.to_owned(), retryable: false }
    }

    /// Each part in few words: u:text, m:text+calls, r:text!
    fn short(history: &[HistoryItem]) -> Vec<String> {
        let one = |told: Told| match told.said {
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
        told(history).into_iter().map(one).collect()
    }

    #[test]
    fn words_and_tools_are_told_in_their_order() {
        let history = [
            says(Role::User, "do"),
            says(Role::Assistant, "I look"),
            uses("c1", Some(Ok("a".to_owned()))),
            uses("c2", Some(Err(failed("no")))),
            says(Role::System, "for people"),
            says(Role::Assistant, "done"),
        ];
        assert_eq!(
            short(&history),
            ["u:do", "m:I look+c1", "r:c1=a", "m:+c2", "r:c2=Error X: no!", "m:done+"]
        );
    }

    #[test]
    fn a_call_without_a_result_gets_one_and_the_user_is_told_of_the_end() {
        let broken = HistoryItem::UnfinishedRun(RunEnding::Failed(failed("the disk is full.")));
        let history = [says(Role::User, "do"), uses("c1", None), broken, says(Role::User, "again")];
        assert_eq!(
            short(&history),
            [
                "u:do",
                "m:+c1",
                "r:c1=It is not known what came of this call: it was cut off.!",
                "u:(Your work on this broke off before it was done: the disk is full.)\n\nagain",
            ]
        );
    }

    #[test]
    fn it_begins_with_the_user_and_nothing_is_empty() {
        let history =
            [says(Role::Assistant, "hello"), says(Role::Assistant, " "), uses("c", Some(Ok("".to_owned())))];
        assert_eq!(
            short(&history),
            ["u:(The conversation goes on from here.)", "m:hello+c", "r:c=(no output)"]
        );
        assert_eq!(short(&[says(Role::User, "  ")]), ["u:(no words)"]);
    }

    #[test]
    fn neighbours_of_one_side_are_one() {
        let stopped = RunEnding::Stopped {
            cause: StopCause::Client { reason: "Stopped by user.".to_owned() },
            message: MessageId::parse("s").unwrap(),
        };
        let history = [
            says(Role::User, "a"),
            says(Role::User, "b"),
            says(Role::Assistant, "c"),
            says(Role::Assistant, "d"),
            HistoryItem::UnfinishedRun(stopped),
        ];
        let said = short(&history);
        assert_eq!(said[..2], ["u:a\n\nb", "m:c\n\nd+"]);
        assert!(said[2].starts_with("u:(The user stopped"), "{said:?}");
    }

    proptest::proptest! {
        #[test]
        fn whatever_happened_is_valid(kinds in proptest::collection::vec(0..6u8, 0..40)) {
            let history: Vec<HistoryItem> = kinds.iter().enumerate().map(|(number, kind)| match kind {
                0 => says(Role::User, &format!("u{number}")),
                1 => says(Role::Assistant, &format!("a{number}")),
                2 => uses(&format!("c{number}"), None),
                3 => uses(&format!("c{number}"), Some(Ok(String::new()))),
                4 => HistoryItem::UnfinishedRun(RunEnding::Failed(failed("x"))),
                _ => says(Role::Assistant, ""),
            }).collect();
            let told = told(&history);
            let begins_well = told.first().is_none_or(|first| matches!(first.said, ModelMessage::User { .. }));
            proptest::prop_assert!(begins_well);
            for pair in told.windows(2) {
                match (&pair[0].said, &pair[1].said) {
                    (ModelMessage::Model { calls, .. }, ModelMessage::Results(results)) => {
                        proptest::prop_assert_eq!(calls.len(), results.len());
                        proptest::prop_assert!(calls.iter().zip(results).all(|(call, result)| call.id == result.id));
                    }
                    (ModelMessage::Model { calls, .. }, _) => proptest::prop_assert!(calls.is_empty(), "an orphan"),
                    (_, ModelMessage::Results(_)) => proptest::prop_assert!(false, "a result of nothing"),
                    (ModelMessage::User { .. } | ModelMessage::Results(_), _) => {}
                }
            }
            if let Some(Told { said: ModelMessage::Model { calls, .. }, .. }) = told.last() {
                proptest::prop_assert!(calls.is_empty(), "an orphan at the end");
            }
        }
    }
}
