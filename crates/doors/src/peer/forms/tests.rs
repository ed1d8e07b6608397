//! Property tests of the written form.

use proptest::prelude::*;

use super::*;

fn round_trip<T: Serialize + for<'de> Deserialize<'de>>(value: &T) -> T {
    serde_json::from_str(&serde_json::to_string(value).unwrap()).unwrap()
}

fn any_id<T: std::str::FromStr<Err: std::fmt::Debug> + std::fmt::Debug>() -> impl Strategy<Value = T> {
    ".{0,20}".prop_map(|text| text.parse().unwrap())
}

fn any_reasoning() -> impl Strategy<Value = Reasoning> {
    use Reasoning::{Adaptive, High, Low, Medium, Off, Xhigh};
    prop::sample::select(vec![Off, Low, Medium, High, Xhigh, Adaptive])
}

fn any_choice() -> impl Strategy<Value = AgentChoice> {
    let parts = (prop::option::of(any_id()), any::<Option<String>>(), prop::option::of(any_reasoning()));
    parts.prop_map(|(agent, model, reasoning)| AgentChoice { agent, model, reasoning })
}

fn any_media() -> impl Strategy<Value = Vec<Media>> {
    let media = (any_id(), any::<String>(), any::<String>(), any::<u64>())
        .prop_map(|(id, name, mime, size)| Media { id, name, mime, size });
    prop::collection::vec(media, 0..3)
}

fn any_input() -> impl Strategy<Value = UserInput> {
    let by = (any::<String>(), any::<Option<String>>()).prop_map(|(door, client)| Sender { door, client });
    let (key, traceparent) = (any::<Option<String>>(), any::<Option<String>>());
    let ends = (prop::option::of(by), any::<bool>(), any::<bool>());
    let parts = (any::<String>(), any_media(), any_choice(), key, traceparent, ends);
    parts.prop_map(|(text, media, choice, key, traceparent, (by, can_answer, is_attended))| UserInput {
        text,
        media,
        choice,
        key,
        traceparent,
        by,
        can_answer,
        is_attended,
    })
}

fn any_answer() -> impl Strategy<Value = QuestionAnswer> {
    prop_oneof![
        Just(QuestionAnswer::AllowOnce),
        Just(QuestionAnswer::AllowAlways),
        any::<Option<String>>().prop_map(|message| QuestionAnswer::Deny { message }),
    ]
}

fn any_command() -> impl Strategy<Value = SessionCommand> {
    let when_busy = prop::sample::select(vec![WhenBusy::Refuse, WhenBusy::Enqueue, WhenBusy::Steer]);
    prop_oneof![
        (any_input(), when_busy).prop_map(|(input, when_busy)| SessionCommand::Send { input, when_busy }),
        (prop::option::of(any_id()), any::<Option<String>>())
            .prop_map(|(run, reason)| SessionCommand::Stop { run, reason }),
        Just(SessionCommand::ClearQueue),
        any_id().prop_map(SessionCommand::Unqueue),
        Just(SessionCommand::ClearHistory),
        any::<usize>().prop_map(|keep| SessionCommand::Compact { keep }),
        any::<String>().prop_map(|title| SessionCommand::Rename { title }),
        any_choice().prop_map(SessionCommand::ChooseAgent),
        prop::sample::select(vec![PolicyMode::ReadOnly, PolicyMode::Workspace, PolicyMode::Full])
            .prop_map(SessionCommand::ChooseMode),
        (any_id(), any_answer(), any::<Option<String>>()).prop_map(|(question, answer, door)| {
            let by = door.map(|door| Sender { door, client: None });
            SessionCommand::AnswerQuestion { question, answer, by }
        }),
    ]
}

fn any_reply() -> impl Strategy<Value = SessionReply> {
    let role = prop::sample::select(vec![Role::User, Role::Assistant, Role::System]);
    let message = (any_id(), role, any::<String>(), any_media())
        .prop_map(|(id, role, text, media)| Message { id, role, text, media });
    let queued = (any_id(), any_input()).prop_map(|(run, input)| QueuedInput { run, input });
    prop_oneof![
        any_id().prop_map(SessionReply::Started),
        (any_id(), any::<usize>()).prop_map(|(run, waiting)| SessionReply::Queued { run, waiting }),
        any_id().prop_map(SessionReply::Steered),
        any_id().prop_map(SessionReply::Stopping),
        prop::collection::vec(queued, 0..3).prop_map(SessionReply::Unqueued),
        message.prop_map(SessionReply::Compacted),
        Just(SessionReply::Done),
    ]
}

/// One refusal of each kind, with these values.
fn all_refusals(session: SessionId, run: RunId, reason: String, limit: usize) -> Vec<SessionRefusal> {
    use SessionRefusal as R;
    let message = MessageId::parse(run.as_str()).unwrap();
    let agent = AgentId::parse(run.as_str()).unwrap();
    let question = QuestionId::parse(run.as_str()).unwrap();
    let parts = [ClosingPart::Connection, ClosingPart::Session(session.clone()), ClosingPart::Program];
    let mut all = vec![
        R::UnknownSession(session.clone()),
        R::SessionExists(session.clone()),
        R::OutcomeUnknown(session.clone()),
        R::OwnerSilent { session: session.clone(), owner: reason.clone() },
        R::NoNode { session: session.clone(), workspace: reason.clone() },
        R::SessionHeld { session, holder: reason.clone() },
        R::TooManySessions { limit },
        R::TooManyQueuedBytes { limit },
        R::KeyTooLong { limit },
        R::TitleTooLong { limit },
        R::TitleBlank,
        R::Busy { active: run.clone() },
        R::QueueFull { limit },
        R::NoActiveRun,
        R::WrongRun { asked: run.clone(), active: run },
        R::TooManyRuns { limit },
        R::Compacting,
        R::BackgroundProcesses,
        R::NotCompacted { reason: reason.clone() },
        R::UnknownMessage(message),
        R::UnknownQuestion(question.clone()),
        R::QuestionSettled { question, outcome: reason.clone() },
        R::InvalidAnswer { reason: reason.clone() },
        R::UnknownAgent(agent),
        R::TooManyRequests { limit },
        R::TooManyWatched { limit },
        R::RequestTooLong { limit },
        R::MediaUnavailable { reason: reason.clone() },
        R::LogUnavailable { reason },
        R::Internal,
    ];
    all.extend(parts.map(|part| R::Closing { part }));
    all
}

fn any_stream() -> impl Strategy<Value = StreamKind> {
    prop_oneof![
        any_id().prop_map(StreamKind::Message),
        any_id().prop_map(StreamKind::Reasoning),
        any_id().prop_map(StreamKind::ToolOutput),
        (any_id(), any::<String>()).prop_map(|(call, tool)| StreamKind::ToolInput { call, tool }),
    ]
}

proptest! {
    #[test]
    fn commands_replies_and_streams_are_read_as_they_were_written(
        command in any_command(), reply in any_reply(), stream in any_stream(),
    ) {
        prop_assert_eq!(round_trip(&WireCommand(command.clone())).0, command);
        prop_assert_eq!(round_trip(&WireReply(reply.clone())).0, reply);
        prop_assert_eq!(round_trip(&WireStream(stream.clone())).0, stream);
    }

    #[test]
    fn refusals_are_read_as_they_were_written(
        session in any_id(), run in any_id(), reason in any::<String>(), limit in any::<usize>(),
    ) {
        for refusal in all_refusals(session, run, reason, limit) {
            prop_assert_eq!(round_trip(&WireRefusal(refusal.clone())).0, refusal);
        }
    }
}

#[test]
fn members_of_a_later_version_are_ignored_and_optional_ones_may_be_missing() {
    let command = r#"{"send":{"input":{"text":"hi","later":1},"when_busy":"refuse","later":2}}"#;
    let WireCommand(command) = serde_json::from_str(command).unwrap();
    let input = UserInput { text: "hi".to_owned(), ..UserInput::default() };
    assert_eq!(command, SessionCommand::Send { input, when_busy: WhenBusy::Refuse });
}
