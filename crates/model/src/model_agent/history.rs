//! Converts the history of a session to messages for a model.
//!
//! The result is valid for every provider: it begins with a user message, each call is followed by its result, and no
//! message is empty. A call without a result, because the process died, gets a result that says so.

use parlor_vocab::{Failure, HistoryItem, Message, MessageId, Role, RunEnding, ToolUse};

use super::attachments::{AttachedFile, FileForm, is_shown_as_file};
use super::unanswered::{Acceptance, acceptance};
use crate::provider::{CallResult, ModelCall, ModelMessage, ProviderState};

/// A message for the model, with its origin in the session.
#[derive(Clone, Debug)]
pub(super) struct HistoryMessage {
    pub(super) message: ModelMessage,
    /// The id of the session's message with which it begins, if there is one.
    pub(super) id: Option<MessageId>,
    /// The attachments.
    pub(super) files: Vec<AttachedFile>,
}

/// The text of a user message without text.
const NO_TEXT: &str = "(no words)";

/// In place of one or more user messages that a provider refused. It does not quote the provider's reason, which may
/// contain the very words that the provider refuses.
const REFUSED_MESSAGE: &str = "(A message of the user is left out here, with its files: the provider refused it, and it got no answer.)";

/// In place of user messages without an answer, after another request with them failed.
const UNANSWERED_MESSAGE: &str = "(A message of the user is left out here, with its files: it got no answer, because requests with it failed.)";

/// In place of the result of a call, or the beginning of an answer.
const REFUSED_RESULT: &str = "(This is left out: the provider refused the request that contained it.)";

/// After a run whose last request was refused.
const REFUSED_RUN: &str =
    "(Your work on this broke off before it was done: the provider refused the request.)";

/// How much of a history is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HistoryForm {
    /// All that no provider has refused.
    Full,
    /// Without what a provider may have a reason to refuse: messages that got no answer, images and documents.
    Plain,
}

/// The messages for a history, oldest first.
pub(super) fn model_messages(history: &[HistoryItem], form: HistoryForm) -> Vec<HistoryMessage> {
    let mut messages: Vec<HistoryMessage> = Vec::with_capacity(history.len());
    let mut remarks: Vec<String> = Vec::new();
    let mut left_out = false;
    for (item, acceptance) in history.iter().zip(acceptance(history)) {
        let is_left_out = match acceptance {
            Acceptance::Accepted => false,
            Acceptance::Unanswered => form == HistoryForm::Plain,
            Acceptance::Refused => true,
        };
        match item {
            HistoryItem::Message(message) => match message.role {
                Role::System => {}
                Role::User if is_left_out => left_out = true,
                Role::User => push_user(&mut messages, message, file_form(acceptance, form), &mut remarks),
                Role::Assistant if is_left_out => {}
                Role::Assistant => push_assistant(&mut messages, message),
            },
            HistoryItem::ToolUse(used) if is_left_out => {
                let result = Some(Ok(REFUSED_RESULT.to_owned()));
                push_tool_use(&mut messages, &ToolUse { result, ..used.clone() });
            }
            HistoryItem::ToolUse(used) => push_tool_use(&mut messages, used),
            HistoryItem::UnfinishedRun { ending, .. } => {
                let remark = match (is_left_out, std::mem::take(&mut left_out), acceptance) {
                    (false, ..) => remark(ending),
                    (true, false, _) => Some(REFUSED_RUN.to_owned()),
                    (true, true, Acceptance::Refused) => Some(REFUSED_MESSAGE.to_owned()),
                    (true, true, _) => Some(UNANSWERED_MESSAGE.to_owned()),
                };
                // One remark is enough for several messages in a row.
                remarks.extend(remark.filter(|remark| remarks.last() != Some(remark)));
            }
        }
    }
    if !remarks.is_empty() {
        messages.push(user_message(remarks.join("\n"), None, Vec::new()));
    }
    messages
}

/// The messages for a summary of a history. They name files, whose content they do not have.
pub(super) fn summary_messages(history: &[HistoryItem], form: HistoryForm) -> Vec<ModelMessage> {
    let with_names = |item: HistoryMessage| {
        let mut message = item.message;
        if let ModelMessage::User { text, .. } = &mut message {
            for AttachedFile { media, .. } in &item.files {
                text.push_str(&format!("\n(attached: {}, {}, {} bytes)", media.name, media.mime, media.size));
            }
        }
        message
    };
    model_messages(history, form).into_iter().map(with_names).collect()
}

/// Whether the plain form of a history differs from the full one.
pub(super) fn has_plain_form(history: &[HistoryItem]) -> bool {
    let has_files = |item: &HistoryItem| match item {
        HistoryItem::Message(message) => message.media.iter().any(is_shown_as_file),
        HistoryItem::ToolUse(_) | HistoryItem::UnfinishedRun { .. } => false,
    };
    history.iter().zip(acceptance(history)).any(|(item, acceptance)| match acceptance {
        Acceptance::Accepted => has_files(item),
        Acceptance::Unanswered => true,
        // It is in neither form.
        Acceptance::Refused => false,
    })
}

/// How the files of a message of the history are sent.
fn file_form(acceptance: Acceptance, form: HistoryForm) -> FileForm {
    match (acceptance, form) {
        (Acceptance::Accepted, HistoryForm::Full) => FileForm::Full,
        (Acceptance::Accepted, HistoryForm::Plain) => FileForm::Text,
        // The files may be the reason why there is no answer.
        (Acceptance::Unanswered | Acceptance::Refused, _) => FileForm::Name,
    }
}

/// A user message.
pub(super) fn user_message(text: String, id: Option<MessageId>, files: Vec<AttachedFile>) -> HistoryMessage {
    let text = if text.trim().is_empty() { NO_TEXT.to_owned() } else { text };
    HistoryMessage { message: ModelMessage::user(text), id, files }
}

fn push_user(
    messages: &mut Vec<HistoryMessage>,
    message: &Message,
    form: FileForm,
    remarks: &mut Vec<String>,
) {
    let attached = message.media.iter().cloned().map(|media| AttachedFile { media, form });
    let mut text = remarks.join("\n");
    remarks.clear();
    if !text.is_empty() {
        text.push_str("\n\n");
    }
    text.push_str(&message.text);
    // Consecutive user messages become one, because not every provider accepts two.
    if let Some(HistoryMessage { message: ModelMessage::User { text: last_text, .. }, files, .. }) =
        messages.last_mut()
    {
        last_text.push_str("\n\n");
        last_text.push_str(&text);
        files.extend(attached);
        return;
    }
    messages.push(user_message(text, Some(message.id.clone()), attached.collect()));
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
    messages.push(HistoryMessage { message: answer, id: Some(message.id.clone()), files: Vec::new() });
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
            messages.push(HistoryMessage { message: answer, id: None, files: Vec::new() });
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
        files: Vec::new(),
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
    use parlor_vocab::{FailureCode, Media, MediaId, StopCause, ToolCallId};

    fn message(role: Role, text: &str) -> HistoryItem {
        let id = MessageId::parse(text).unwrap_or_else(|_| MessageId::parse("m").unwrap());
        HistoryItem::Message(Message { id, role, text: text.to_owned(), media: Vec::new() })
    }

    fn tool_use(call: &str, result: Option<Result<String, Failure>>) -> HistoryItem {
        let (call, tool, input) = (ToolCallId::parse(call).unwrap(), "shell".to_owned(), "{}".to_owned());
        HistoryItem::ToolUse(ToolUse { call, tool, input, result })
    }

    fn unfinished(input: Option<&str>, ending: RunEnding) -> HistoryItem {
        let input = input.map(|id| MessageId::parse(id).unwrap());
        HistoryItem::UnfinishedRun { input, ending }
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
        model_messages(history, HistoryForm::Full).into_iter().map(one).collect()
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
        let broken = unfinished(None, RunEnding::Failed(failed("the disk is full.")));
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

    fn refused(input: &str) -> HistoryItem {
        let failure = Failure { code: FailureCode::ModelRefused, ..failed("400: the word two is refused") };
        unfinished(Some(input), RunEnding::Failed(failure))
    }

    #[test]
    fn refused_messages_and_results_are_replaced_by_remarks_that_do_not_quote_them() {
        let history = [
            message(Role::User, "one"),
            message(Role::Assistant, "a"),
            message(Role::User, "two"),
            refused("two"),
            message(Role::User, "twotwo"),
            refused("twotwo"),
            message(Role::User, "three"),
            tool_use("c1", Some(Ok("two".to_owned()))),
            refused("three"),
            message(Role::User, "four"),
        ];
        assert_eq!(
            short_forms(&history),
            [
                "u:one",
                "m:a+",
                &format!("u:{REFUSED_MESSAGE}\n\nthree"),
                "m:+c1",
                &format!("r:c1={REFUSED_RESULT}"),
                &format!("u:{REFUSED_RUN}\n\nfour"),
            ]
        );
    }

    #[test]
    fn a_message_without_an_answer_is_only_in_the_full_form_and_its_files_are_named() {
        let media = |name: &str, mime: &str| Media {
            id: MediaId::parse(name).unwrap(),
            name: name.to_owned(),
            mime: mime.to_owned(),
            size: 1,
        };
        let with_file = |text: &str| {
            let (id, text) = (MessageId::parse(text).unwrap(), text.to_owned());
            let media = vec![media("a.png", "image/png")];
            HistoryItem::Message(Message { id, role: Role::User, text, media })
        };
        let unavailable = Failure { code: FailureCode::ModelUnavailable, ..failed("500") };
        let history = [
            with_file("one"),
            message(Role::Assistant, "a"),
            with_file("two"),
            unfinished(Some("two"), RunEnding::Failed(unavailable)),
            message(Role::User, "three"),
        ];
        let forms = |form| -> Vec<(String, Vec<FileForm>)> {
            let messages = model_messages(&history, form).into_iter();
            messages
                .filter_map(|item| match item.message {
                    ModelMessage::User { text, .. } => {
                        Some((text, item.files.iter().map(|file| file.form).collect()))
                    }
                    ModelMessage::Model { .. } | ModelMessage::Results(_) => None,
                })
                .collect()
        };
        let remark = "(Your work on this broke off before it was done: 500.)";
        assert_eq!(
            forms(HistoryForm::Full),
            [
                ("one".to_owned(), vec![FileForm::Full]),
                (format!("two\n\n{remark}\n\nthree"), vec![FileForm::Name])
            ]
        );
        assert_eq!(
            forms(HistoryForm::Plain),
            [
                ("one".to_owned(), vec![FileForm::Text]),
                (format!("{UNANSWERED_MESSAGE}\n\nthree"), Vec::new())
            ]
        );
        assert!(has_plain_form(&history) && !has_plain_form(&[message(Role::User, "x")]));
        let summary = summary_messages(&history, HistoryForm::Full);
        let is_named = |message: &ModelMessage| matches!(message, ModelMessage::User { text, .. } if text.contains("(attached: a.png,"));
        assert!(is_named(&summary[0]), "{summary:?}");
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
            unfinished(None, stopped),
        ];
        let forms = short_forms(&history);
        assert_eq!(forms[..2], ["u:a\n\nb", "m:c\n\nd+"]);
        assert!(forms[2].starts_with("u:(The user stopped"), "{forms:?}");
    }

    proptest::proptest! {
        #[test]
        fn any_history_gives_valid_messages(kinds in proptest::collection::vec(0..8u8, 0..40)) {
            let history: Vec<HistoryItem> = kinds.iter().enumerate().map(|(number, kind)| match kind {
                0 => message(Role::User, &format!("u{number}")),
                1 => message(Role::Assistant, &format!("a{number}")),
                2 => tool_use(&format!("c{number}"), None),
                3 => tool_use(&format!("c{number}"), Some(Ok(String::new()))),
                4 => unfinished(None, RunEnding::Failed(failed("x"))),
                5 | 6 => {
                    let last_user = kinds[..number].iter().rposition(|kind| *kind == 0);
                    refused(&format!("u{}", last_user.unwrap_or(0)))
                }
                _ => message(Role::Assistant, ""),
            }).collect();
            let messages = model_messages(&history, HistoryForm::Full);
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
