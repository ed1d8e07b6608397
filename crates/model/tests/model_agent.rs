//! Turns of a model agent, with a provider that answers from a list.

#[path = "model_agent/attached_files.rs"]
mod attached_files;
mod common;
#[path = "common/provider.rs"]
mod provider;

use std::time::Duration;

use common::{Action, RecordingContext, turn};
use parlor_model::provider::{
    Completion, ModelCall, ModelMessage, Piece, ProviderError, StopReason, ToolSpec,
};
use parlor_model::{
    Agent, COMPACT_AT_PERCENT, LIMIT_BYTES_PER_TOKEN, Limits, MAX_CALLS, MAX_TRIES, Model, ModelAgent,
    SpentSoFar, Turn, TurnError,
};
use parlor_vocab::{AgentChoice, Failure, HistoryItem, Message, MessageId, Role, ToolCallId, ToolUse, Usage};
use provider::{
    ScriptedProvider, agent, broken, busy, calls, completion, done, model, overflow, reasoning, stopped, text,
};

fn tool(name: &str) -> ToolSpec {
    ToolSpec { name: name.to_owned(), description: "d".to_owned(), schema: r#"{"type":"object"}"#.to_owned() }
}

fn context() -> RecordingContext {
    RecordingContext { tools: vec![tool("read_file"), tool("shell")], ..RecordingContext::default() }
}

fn turn_with_default_model(text: &str) -> Turn {
    Turn { model: None, ..turn(text) }
}

async fn run(agent: &ModelAgent, context: &mut RecordingContext) -> Result<(), TurnError> {
    agent.answer(&turn_with_default_model("do it"), context).await
}

fn code(end: Result<(), TurnError>) -> String {
    match end {
        Err(TurnError::Failed(failure)) => failure.code.to_string(),
        other => panic!("the turn did not fail: {other:?}"),
    }
}

fn progress(context: &RecordingContext) -> Vec<&str> {
    let is_progress = |action: &'_ Action| matches!(action, Action::Progress(_));
    context
        .actions
        .iter()
        .filter(|action| is_progress(action))
        .map(|action| if let Action::Progress(text) = action { text.as_str() } else { "" })
        .collect()
}

fn last_user_text(messages: &[ModelMessage]) -> &str {
    match messages.iter().rev().find(|message| matches!(message, ModelMessage::User { .. })) {
        Some(ModelMessage::User { text, .. }) => text,
        other => panic!("no user message: {other:?}"),
    }
}

#[tokio::test]
async fn text_and_reasoning_are_streamed() {
    let provider =
        ScriptedProvider::new([vec![reasoning("hm "), reasoning("so"), text("Hel"), text("lo"), done()]]);
    let mut context = context();
    assert_eq!(run(&agent(&provider), &mut context).await, Ok(()));
    assert_eq!(context.actions[0], Action::Reasoning("hm ".to_owned()));
    assert_eq!(context.text(), "Hello");
    let usage = Usage { cost_micros: 12_000, ..completion().usage };
    assert_eq!(context.actions.last(), Some(&Action::Usage(usage, Some("fast-id".to_owned()))));
    let requests = provider.requests();
    assert_eq!((requests[0].model.as_str(), requests[0].tools.len()), ("fast-id", 2));
}

#[tokio::test]
async fn tools_are_called_and_the_model_gets_the_results() {
    let provider = ScriptedProvider::new([
        vec![text("I look. "), calls(&[("read_file", r#"{"path":"a"}"#), ("shell", "{}")])],
        vec![text("Done."), done()],
    ]);
    let failure = Failure { code: "EXIT".into(), message: "no".to_owned(), retryable: false };
    let mut context =
        RecordingContext { results: [Ok("content".to_owned()), Err(failure)].into(), ..context() };
    assert_eq!(run(&agent(&provider), &mut context).await, Ok(()));
    let requests = provider.requests();
    let ModelMessage::Results(results) = requests[1].messages.last().unwrap() else { panic!() };
    assert_eq!(
        (results[0].id.as_str(), results[0].text.as_str(), results[0].failed),
        ("c0", "content", false)
    );
    assert_eq!((results[1].text.as_str(), results[1].failed), ("Error EXIT: no", true));
    let prefix = |index: usize| format!("{:?}", &requests[index].messages[..1]);
    assert_eq!(prefix(0), prefix(1), "the beginning does not change");
    assert_eq!(requests[0].system, requests[1].system);
}

#[tokio::test]
async fn unknown_tools_and_invalid_inputs_are_reported_to_the_model() {
    let provider = ScriptedProvider::new([
        vec![calls(&[("reboot", "{}"), ("shell", "{\"command\":")])],
        vec![text("Sorry."), done()],
    ]);
    let mut context = context();
    assert_eq!(run(&agent(&provider), &mut context).await, Ok(()));
    let ModelMessage::Results(results) = provider.requests()[1].messages.last().unwrap().clone() else {
        panic!()
    };
    assert_eq!(results[0].text, "Error UNKNOWN_TOOL: there is no tool `reboot`; there are: read_file, shell");
    assert_eq!(
        context.actions[2],
        Action::ToolCall("shell".to_owned(), "{\"command\":".into()),
        "the toolbox reports the error"
    );
}

#[tokio::test]
async fn calls_with_the_same_id_get_unique_ids() {
    let provider = ScriptedProvider::new([
        vec![calls(&[("shell", "{}")])],
        vec![calls(&[("shell", "{}")])],
        vec![text("Done."), done()],
    ]);
    assert_eq!(run(&agent(&provider), &mut context()).await, Ok(()));
    let requests = provider.requests();
    let ids: Vec<&str> = requests[2]
        .messages
        .iter()
        .filter_map(|message| match message {
            ModelMessage::Results(results) => Some(results[0].id.as_str()),
            ModelMessage::User { .. } | ModelMessage::Model { .. } => None,
        })
        .collect();
    assert_eq!(ids, ["c0", "call_2"]);
}

#[tokio::test]
async fn a_generated_call_id_is_unique() {
    let named = |ids: &[&str]| {
        let call =
            |id: &&str| ModelCall { id: (*id).to_owned(), tool: "shell".to_owned(), input: "{}".to_owned() };
        Ok(Piece::Done(Completion { calls: ids.iter().map(call).collect(), ..completion() }))
    };
    let before = "call_0123456789abcdef0123456789abcdef";
    let provider = ScriptedProvider::new([
        vec![named(&["call_3", "call_3", ""])],
        vec![named(&["call_3", "call_5", "", before])],
        vec![text("Done."), done()],
    ]);
    let call = ToolCallId::parse(before).unwrap();
    let used = ToolUse { call, tool: "shell".to_owned(), input: "{}".to_owned(), result: None };
    let turn = Turn { history: vec![HistoryItem::ToolUse(used)], ..turn_with_default_model("do it") };
    assert_eq!(agent(&provider).answer(&turn, &mut context()).await, Ok(()));
    // The provider checks each request.
    assert_eq!(provider.answers_left(), 0);
}

#[tokio::test]
async fn an_agent_can_use_only_its_own_tools() {
    let provider = ScriptedProvider::new([vec![calls(&[("shell", "{}")])], vec![text("x"), done()]]);
    let agent =
        ModelAgent { tools: Some(vec!["read_file".to_owned(), "gone".to_owned()]), ..agent(&provider) };
    let mut context = context();
    assert_eq!(run(&agent, &mut context).await, Ok(()));
    let requests = provider.requests();
    assert_eq!(requests[0].tools.len(), 1);
    let ModelMessage::Results(results) = requests[1].messages.last().unwrap() else { panic!() };
    assert!(results[0].text.contains("UNKNOWN_TOOL"), "{}", results[0].text);
}

#[tokio::test]
async fn calls_beyond_the_limit_are_refused() {
    let many = vec![("shell", "{}"); MAX_CALLS + 1];
    let provider = ScriptedProvider::new([vec![calls(&many)], vec![text("x"), done()]]);
    assert_eq!(run(&agent(&provider), &mut context()).await, Ok(()));
    let ModelMessage::Results(results) = provider.requests()[1].messages.last().unwrap().clone() else {
        panic!()
    };
    assert_eq!(results.iter().filter(|result| result.failed).count(), 1);
    assert!(results[MAX_CALLS].text.contains("TOO_MANY_CALLS"));
}

#[tokio::test]
async fn a_busy_provider_is_retried_after_a_wait() {
    let after = ProviderError::Busy { message: String::new(), retry_after: Some(Duration::from_secs(7)) };
    let provider = ScriptedProvider::new([vec![Err(after)], vec![Err(busy())], vec![text("Hi"), done()]]);
    let mut context = context();
    assert_eq!(run(&agent(&provider), &mut context).await, Ok(()));
    let pauses: Vec<&Action> =
        context.actions.iter().filter(|action| matches!(action, Action::Sleep(_))).collect();
    assert_eq!(pauses[0], &Action::Sleep(Duration::from_secs(7)));
    assert_eq!(pauses.len(), 2);
    assert!(progress(&context)[0].contains("trying again in 7.0 s (2 of 5)"), "{:?}", progress(&context));
    assert_eq!(context.text(), "Hi");
}

#[tokio::test]
async fn a_provider_that_stays_busy_fails_the_run_as_retryable() {
    let provider = ScriptedProvider::new((0..MAX_TRIES).map(|_| vec![Err(busy())]));
    let end = run(&agent(&provider), &mut context()).await;
    let Err(TurnError::Failed(failure)) = end else { panic!() };
    assert_eq!((failure.code.as_str(), failure.retryable), ("MODEL_BUSY", true));
    assert!(failure.message.starts_with("fast: "), "{}", failure.message);
    assert_eq!(provider.answers_left(), 0);
}

#[tokio::test]
async fn an_interrupted_answer_continues_in_a_new_message() {
    let provider =
        ScriptedProvider::new([vec![text("The answer"), Err(broken())], vec![text(" is 4."), done()]]);
    let mut context = context();
    assert_eq!(run(&agent(&provider), &mut context).await, Ok(()));
    assert_eq!(context.text(), "The answer is 4.");
    assert!(context.actions.contains(&Action::EndInterruptedStep));
    let again = &provider.requests()[1].messages;
    assert!(matches!(&again[1], ModelMessage::Model { text, .. } if text == "The answer"));
    assert!(last_user_text(again).contains("cut off"));
}

#[tokio::test]
async fn text_that_was_dropped_from_an_interrupted_answer_is_requested_again() {
    let provider =
        ScriptedProvider::new([vec![text("The key is sk-"), Err(broken())], vec![text("sk-1"), done()]]);
    let mut context = RecordingContext { dropped: 3, ..context() };
    assert_eq!(run(&agent(&provider), &mut context).await, Ok(()));
    let again = &provider.requests()[1].messages;
    assert!(matches!(&again[1], ModelMessage::Model { text, .. } if text == "The key is "), "{again:?}");
}

#[tokio::test]
async fn inputs_are_streamed_and_withdrawn_after_an_interruption() {
    let input = |text: &str| {
        let (id, tool) = ("c0".to_owned(), "shell".to_owned());
        Ok(Piece::CallInput { id, tool, text: text.to_owned() })
    };
    let provider = ScriptedProvider::new([
        vec![input("{\"c"), Err(broken())],
        vec![input("{"), input("}"), calls(&[("shell", "{}")])],
        vec![text("ok"), done()],
    ]);
    let mut context = context();
    assert_eq!(run(&agent(&provider), &mut context).await, Ok(()));
    let is_relevant = |action: &&Action| {
        matches!(action, Action::CallInput(..) | Action::EndInterruptedStep | Action::ToolCall(..))
    };
    let actions: Vec<&Action> = context.actions.iter().filter(is_relevant).collect();
    let write = |text: &str| Action::CallInput("c0 shell".to_owned(), text.to_owned());
    let call = Action::ToolCall("shell".to_owned(), serde_json::json!({}));
    assert_eq!(actions, [&write("{\"c"), &Action::EndInterruptedStep, &write("{"), &write("}"), &call]);
}

#[tokio::test]
async fn interrupted_reasoning_is_not_sent_back() {
    let provider = ScriptedProvider::new([vec![reasoning("hm"), Err(broken())], vec![text("4"), done()]]);
    let mut context = context();
    assert_eq!(run(&agent(&provider), &mut context).await, Ok(()));
    assert_eq!(provider.requests()[1].messages.len(), 1, "the conversation has no answer");
}

#[tokio::test]
async fn a_fallback_model_replaces_a_failing_one() {
    let refused = ProviderError::Auth { message: "no key".to_owned() };
    let (first, second) =
        (ScriptedProvider::new([vec![Err(refused)]]), ScriptedProvider::new([vec![text("Hi"), done()]]));
    let models = vec![model("fast", &first), model("slow", &second)];
    let agent = ModelAgent { models, ..agent(&first) };
    let mut context = context();
    assert_eq!(run(&agent, &mut context).await, Ok(()));
    assert_eq!(progress(&context), ["fast cannot answer (no key); going on with slow"]);
    assert_eq!(second.requests()[0].model, "slow-id");
}

#[tokio::test]
async fn a_token_count_is_dropped_with_its_provider() {
    let counted = Completion { usage: Usage { input_tokens: 1_000_000, ..Usage::default() }, ..completion() };
    let call = ModelCall { id: "c".to_owned(), tool: "shell".to_owned(), input: "{}".to_owned() };
    let first = ScriptedProvider::new([
        vec![Ok(Piece::Done(Completion { calls: vec![call], ..counted }))],
        vec![Err(ProviderError::Auth { message: "gone".to_owned() })],
    ]);
    let second = ScriptedProvider::new([vec![text("Hi"), done()]]);
    let large = Model { context_window: 10_000_000, price: None, ..model("large", &first) };
    let agent = ModelAgent { models: vec![large, model("small", &second)], ..agent(&first) };
    assert_eq!(run(&agent, &mut context()).await, Ok(()), "no summary is needed");
}

#[tokio::test]
async fn a_long_result_loses_its_middle() {
    let provider = ScriptedProvider::new([vec![calls(&[("shell", "{}")])], vec![text("x"), done()]]);
    let small = Model { context_window: 10_000, ..model("fast", &provider) };
    let agent = ModelAgent { models: vec![small], ..agent(&provider) };
    let mut context = RecordingContext { results: [Ok("y".repeat(100_000))].into(), ..context() };
    assert_eq!(run(&agent, &mut context).await, Ok(()));
    let ModelMessage::Results(results) = provider.requests()[1].messages.last().unwrap().clone() else {
        panic!()
    };
    assert!(results[0].text.len() < 4_100, "{}", results[0].text.len());
    assert!(results[0].text.contains("[… 96000 bytes are left out …]"));
}

fn long_history(count: usize, bytes: usize) -> Vec<HistoryItem> {
    let message = |number: usize| {
        let role = if number.is_multiple_of(2) { Role::User } else { Role::Assistant };
        let (id, text) = (MessageId::parse(&format!("m{number}")).expect("a short id"), "x".repeat(bytes));
        HistoryItem::Message(Message { id, role, text, media: Vec::new() })
    };
    (0..count).map(message).collect()
}

#[tokio::test]
async fn a_conversation_that_fills_the_window_is_summarized() {
    let provider = ScriptedProvider::new([vec![text("They spoke of x."), done()], vec![text("Hi"), done()]]);
    let small = Model { context_window: 10_000, ..model("fast", &provider) };
    let agent = ModelAgent { models: vec![small], ..agent(&provider) };
    let history = long_history(20, 10_000 * 4 * COMPACT_AT_PERCENT as usize / 100 / 20);
    let mut context = context();
    let turn =
        Turn { history, message: Some(MessageId::parse("now").unwrap()), ..turn_with_default_model("do it") };
    assert_eq!(agent.answer(&turn, &mut context).await, Ok(()));
    let requests = provider.requests();
    assert!(requests[0].system.contains("few words") && requests[0].tools.is_empty());
    let ModelMessage::User { text, .. } = &requests[1].messages[0] else { panic!() };
    assert!(text.contains("They spoke of x.") && !text.contains("word for word"), "{text}");
    assert_eq!(progress(&context), ["Summarizing the older part of the conversation"]);
    assert!(requests[1].messages.len() < 10, "{}", requests[1].messages.len());
    assert!(
        context
            .actions
            .iter()
            .any(|action| matches!(action, Action::ReplaceHistory(from) if from.starts_with('m')))
    );
}

#[tokio::test]
async fn an_overflow_is_summarized_once_and_then_fails() {
    let provider = ScriptedProvider::new([
        vec![Err(overflow())],
        vec![text("Short."), done()],
        vec![text("Hi"), done()],
    ]);
    let mut context = context();
    let turn = Turn { history: long_history(10, 1000), ..turn_with_default_model("do it") };
    assert_eq!(agent(&provider).answer(&turn, &mut context).await, Ok(()));
    assert_eq!((context.text().as_str(), provider.answers_left()), ("Hi", 0));

    let provider =
        ScriptedProvider::new([vec![Err(overflow())], vec![text("Short."), done()], vec![Err(overflow())]]);
    assert_eq!(code(agent(&provider).answer(&turn, &mut self::context()).await), "CONTEXT_OVERFLOW");
    let provider = ScriptedProvider::new([vec![Err(overflow())]]);
    assert_eq!(
        code(run(&agent(&provider), &mut self::context()).await),
        "CONTEXT_OVERFLOW",
        "nothing can be removed"
    );
}

#[tokio::test]
async fn without_a_summary_the_oldest_messages_are_dropped() {
    let provider =
        ScriptedProvider::new([vec![Err(overflow())], vec![Err(broken())], vec![text("Hi"), done()]]);
    let mut context = context();
    let turn = Turn { history: long_history(10, 1000), ..turn_with_default_model("do it") };
    assert_eq!(agent(&provider).answer(&turn, &mut context).await, Ok(()));
    assert!(progress(&context)[1].contains("No summary could be written"), "{:?}", progress(&context));
}

#[tokio::test]
async fn two_hundred_calls_with_five_megabytes_of_output_stay_within_the_window() {
    const CALLS: usize = 200;
    let output = "y".repeat(25_000);
    let window = 40_000_u64;
    struct EndlessProvider(std::sync::Arc<std::sync::atomic::AtomicBool>);
    #[async_trait::async_trait]
    impl parlor_model::provider::Provider for EndlessProvider {
        async fn stream(
            &self,
            request: &parlor_model::provider::Request,
        ) -> Result<parlor_model::provider::Pieces, ProviderError> {
            use futures_util::{StreamExt, stream};
            provider::assert_valid(request);
            let bytes = format!("{:?}", request.messages).len();
            // Like a real model: about four bytes per token.
            if bytes / 4 > 40_000 {
                return Err(overflow());
            }
            if last_user_text(&request.messages).contains("word for word:\n\ndo it") {
                self.0.store(true, std::sync::atomic::Ordering::Relaxed);
            }
            let answer = if request.tools.is_empty() {
                vec![text("They read many files."), done()]
            } else {
                vec![calls(&[("read_file", r#"{"path":"a"}"#)])]
            };
            Ok(stream::iter(answer).boxed())
        }
    }
    let task_repeated = std::sync::Arc::default();
    let endless = std::sync::Arc::new(EndlessProvider(std::sync::Arc::clone(&task_repeated)));
    let model = Model { context_window: window, ..Model::new("m", "m", endless) };
    let limits = Limits { steps: Some(CALLS as u64), ..Limits::default() };
    let agent = ModelAgent { limits, ..ModelAgent::new("Model", model) };
    let mut context = RecordingContext { results: vec![Ok(output); CALLS].into(), ..context() };
    assert_eq!(code(run(&agent, &mut context).await), "STEP_LIMIT");
    assert!(context.results.is_empty(), "all calls were made");
    assert!(task_repeated.load(std::sync::atomic::Ordering::Relaxed), "a summary repeats the task");
    let summaries = progress(&context).len();
    assert!((10..CALLS).contains(&summaries), "{summaries}");
}

#[tokio::test]
async fn messages_to_the_running_turn_join_at_the_next_step() {
    let provider = ScriptedProvider::new([
        vec![calls(&[("shell", "{}")])],
        vec![text("ok"), done()],
        vec![text("blue it is"), done()],
    ]);
    let mut context = RecordingContext {
        steering: [(1, "faster".to_owned()), (3, "and blue".to_owned())].into(),
        ..context()
    };
    assert_eq!(run(&agent(&provider), &mut context).await, Ok(()));
    let requests = provider.requests();
    assert_eq!(last_user_text(&requests[1].messages), "faster");
    assert_eq!(last_user_text(&requests[2].messages), "and blue", "also while the last message is written");
    assert!(matches!(context.actions.last(), Some(Action::Usage(..))));
}

#[tokio::test]
async fn a_truncated_answer_names_the_limit_and_the_fix() {
    let cut = |calls| Ok(Piece::Done(Completion { stop: StopReason::Length, calls, ..completion() }));
    let call = ModelCall { id: "c".to_owned(), tool: "shell".to_owned(), input: "{\"c".to_owned() };
    let provider = ScriptedProvider::new([vec![cut(vec![call])], vec![text("half"), cut(Vec::new())]]);
    let model = Model { max_output: Some(7), ..model("fast", &provider) };
    let mut context = context();
    assert_eq!(run(&ModelAgent { models: vec![model], ..agent(&provider) }, &mut context).await, Ok(()));
    let notice = "The answer was cut after 7 tokens, which is max_output of fast; ask it to go on, or allow more with max_output";
    assert_eq!(progress(&context), [notice, notice]);
    let position = |matches: fn(&Action) -> bool| context.actions.iter().position(matches);
    assert!(
        position(|action| matches!(action, Action::Progress(_)))
            < position(|action| matches!(action, Action::ToolCall(..)))
    );
}

#[tokio::test]
async fn a_truncated_call_is_refused_with_the_reason() {
    let call = |id: &str, input: &str| ModelCall {
        id: id.to_owned(),
        tool: "shell".to_owned(),
        input: input.to_owned(),
    };
    let cut = vec![call("a", "{}"), call("b", ""), call("c", "{\"command\":\"rm")];
    let cut = Ok(Piece::Done(Completion { stop: StopReason::Length, calls: cut, ..completion() }));
    let provider = ScriptedProvider::new([vec![cut], vec![calls(&[("shell", "")])], vec![text("x"), done()]]);
    assert_eq!(run(&agent(&provider), &mut context()).await, Ok(()));
    let requests = provider.requests();
    let results = |index: usize| match requests[index].messages.last() {
        Some(ModelMessage::Results(results)) => results.clone(),
        other => panic!("no results: {other:?}"),
    };
    let failed: Vec<bool> = results(1).iter().map(|result| result.failed).collect();
    assert_eq!(failed, [false, true, true]);
    assert!(results(1)[1].text.contains("your answer was cut"), "{}", results(1)[1].text);
    assert!(!results(2)[0].failed, "an empty input is valid after a complete answer");
}

#[tokio::test]
async fn a_limit_ends_the_run_with_its_code() {
    let limited = |limits: Limits| {
        let provider = ScriptedProvider::new(vec![vec![calls(&[("shell", "{}")])]; 3]);
        let agent = ModelAgent { limits, ..agent(&provider) };
        async move { code(run(&agent, &mut context()).await) }
    };
    let base = Limits::default();
    assert_eq!(limited(Limits { steps: Some(2), ..base }).await, "STEP_LIMIT");
    assert_eq!(limited(Limits { tokens: Some(13), ..base }).await, "TOKEN_LIMIT");
    assert_eq!(limited(Limits { cost_micros: Some(13_000), ..base }).await, "COST_LIMIT");
    let provider = ScriptedProvider::new([]);
    let agent = ModelAgent { limits: Limits { day_micros: Some(5), ..base }, ..agent(&provider) };
    let mut context =
        RecordingContext { spent: SpentSoFar { session_micros: 0, today_micros: 5 }, ..self::context() };
    assert_eq!(code(agent.answer(&turn_with_default_model("x"), &mut context).await), "DAY_SPEND_LIMIT");
}

/// If the provider reports only one token, text, reasoning, inputs and the request count by their bytes.
#[tokio::test]
async fn bytes_count_for_the_token_limit_if_the_provider_reports_too_few() {
    let long = |tokens: usize| "x".repeat(tokens * LIMIT_BYTES_PER_TOKEN);
    let usage = Usage { input_tokens: 1, output_tokens: 1, ..Usage::default() };
    let call = |input: String| ModelCall { id: String::new(), tool: "shell".to_owned(), input };
    let done =
        |input: String| Ok(Piece::Done(Completion { usage, calls: vec![call(input)], ..completion() }));
    let input = |text: String| {
        let (id, tool) = ("c".to_owned(), "shell".to_owned());
        Ok(Piece::CallInput { id, tool, text })
    };
    let limits = Limits { tokens: Some(5_000), ..Limits::default() };
    let steps = |answer: Vec<Result<Piece, ProviderError>>| async move {
        let provider = ScriptedProvider::new(vec![answer; 100]);
        let ended = run(&ModelAgent { limits, ..agent(&provider) }, &mut context()).await;
        assert_eq!(code(ended), "TOKEN_LIMIT");
        provider.requests().len()
    };
    let few = steps(vec![text(&long(2_000)), done("{}".to_owned())]).await;
    assert!(few <= 3, "{few} answers with long texts");
    let few = steps(vec![Ok(Piece::Reasoning(long(2_000))), done("{}".to_owned())]).await;
    assert!(few <= 3, "{few} answers with long reasoning");
    let few = steps(vec![input(long(2_000)), done("{}".to_owned())]).await;
    assert!(few <= 3, "{few} answers with long inputs");
    let few = steps(vec![done(format!("\"{}\"", long(2_000)))]).await;
    assert!(few <= 3, "{few} answers with inputs that come at the end");

    let provider = ScriptedProvider::new(vec![vec![text("."), done("{}".to_owned())]; 100]);
    let limited = ModelAgent { limits, ..agent(&provider) };
    let ended = limited.answer(&turn_with_default_model(&long(2_000)), &mut context()).await;
    assert_eq!((code(ended).as_str(), provider.requests().len()), ("TOKEN_LIMIT", 3), "the request counts");
}

#[tokio::test(start_paused = true)]
async fn a_model_that_hangs_fails_at_the_time_limit() {
    let provider = ScriptedProvider::new([vec![text("I am")]]);
    let limits = Limits { time: Some(Duration::from_secs(5)), ..Limits::default() };
    let agent = ModelAgent { limits, ..agent(&provider) };
    let mut context = context();
    assert_eq!(code(run(&agent, &mut context).await), "TIME_LIMIT");
    assert_eq!(context.text(), "I am");
}

#[tokio::test]
async fn a_stop_interrupts_an_answer() {
    let provider = ScriptedProvider::new([vec![text("one "), text("two ")]]);
    let mut context = RecordingContext { notify_stop_after: Some(2), ..context() };
    assert_eq!(run(&agent(&provider), &mut context).await, Err(TurnError::Stopped));
    assert_eq!(context.text(), "one two ");
}

#[tokio::test]
async fn empty_and_filtered_answers_fail() {
    let ends = |answer| {
        let provider = ScriptedProvider::new([answer]);
        async move { run(&agent(&provider), &mut context()).await }
    };
    assert_eq!(code(ends(vec![done()]).await), "EMPTY_ANSWER");
    assert_eq!(code(ends(vec![text("x"), stopped(StopReason::Filtered)]).await), "MODEL_REFUSED");
    assert_eq!(code(ends(vec![reasoning("x"), stopped(StopReason::Length)]).await), "ANSWER_TOO_LONG");
    assert_eq!(ends(vec![text("x"), stopped(StopReason::Length)]).await, Ok(()));
}

#[tokio::test]
async fn a_model_is_chosen_by_its_name_or_id() {
    let (own, other) = (
        ScriptedProvider::new(vec![vec![text("x"), done()]; 3]),
        ScriptedProvider::new(vec![vec![text("x"), done()]; 2]),
    );
    let agent = ModelAgent { known: vec![model("big", &other)], ..agent(&own) };
    for name in ["big", "fast-id", "unheard-of", "unheard-of@big", "unheard-of@elsewhere"] {
        let turn = Turn { model: Some(name.to_owned()), ..turn_with_default_model("x") };
        assert_eq!(agent.answer(&turn, &mut context()).await, Ok(()));
    }
    assert_eq!(agent.model_id(Some("unheard-of@big")).as_deref(), Some("unheard-of"));
    assert_eq!([&other.requests()[0].model, &other.requests()[1].model], ["big-id", "unheard-of"]);
    let models: Vec<String> = own.requests().into_iter().map(|request| request.model).collect();
    assert_eq!(models, ["fast-id", "unheard-of", "unheard-of@elsewhere"]);
}

#[tokio::test]
async fn a_requested_summary_is_written_by_the_model() {
    let provider = ScriptedProvider::new([vec![text("All about x."), done()]]);
    let summary = agent(&provider).summarize(&long_history(4, 10), &AgentChoice::default()).await.unwrap();
    assert!(summary.ends_with("All about x."), "{summary}");
    let provider = ScriptedProvider::new([vec![Err(broken())]]);
    let failure =
        agent(&provider).summarize(&long_history(4, 10), &AgentChoice::default()).await.unwrap_err();
    assert_eq!(failure.code.as_str(), "MODEL_UNAVAILABLE");
}
