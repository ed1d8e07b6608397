//! What an agent with a model does on the stage, with a model that answers from a list.

mod common;
#[path = "common/provider.rs"]
mod provider;

use std::time::Duration;

use common::{Act, Recorder, turn};
use parlor_model::provider::{
    Completion, ModelCall, ModelMessage, Picture, Piece, ProviderError, StopReason, ToolSpec,
};
use parlor_model::{
    Agent, COMPACT_AT_PERCENT, LIMIT_BYTES_PER_TOKEN, Limits, MAX_CALLS, MAX_TRIES, Model, ModelAgent,
    SpentSoFar, Turn, TurnError,
};
use parlor_vocab::{
    AgentChoice, Failure, HistoryItem, Media, MediaId, Message, MessageId, Role, ToolCallId, ToolUse, Usage,
};
use provider::{
    Scripted, agent, broken, busy, calls, completion, done, model, overflow, stopped, text, thought,
};

fn tool(name: &str) -> ToolSpec {
    ToolSpec { name: name.to_owned(), description: "d".to_owned(), schema: r#"{"type":"object"}"#.to_owned() }
}

fn stage() -> Recorder {
    Recorder { tools: vec![tool("read_file"), tool("shell")], ..Recorder::default() }
}

fn plain(text: &str) -> Turn {
    Turn { model: None, ..turn(text) }
}

async fn perform(agent: &ModelAgent, stage: &mut Recorder) -> Result<(), TurnError> {
    agent.answer(&plain("do it"), stage).await
}

fn code(end: Result<(), TurnError>) -> String {
    match end {
        Err(TurnError::Failed(failure)) => failure.code.to_string(),
        other => panic!("it did not fail: {other:?}"),
    }
}

fn notes(stage: &Recorder) -> Vec<&str> {
    let note = |act: &'_ Act| matches!(act, Act::Note(_));
    stage
        .acts
        .iter()
        .filter(|act| note(act))
        .map(|act| if let Act::Note(text) = act { text.as_str() } else { "" })
        .collect()
}

fn last_user(said: &[ModelMessage]) -> &str {
    match said.iter().rev().find(|said| matches!(said, ModelMessage::User { .. })) {
        Some(ModelMessage::User { text, .. }) => text,
        other => panic!("nobody spoke: {other:?}"),
    }
}

#[tokio::test]
async fn text_and_thoughts_are_passed_on_as_they_come() {
    let provider = Scripted::new([vec![thought("hm "), thought("so"), text("Hel"), text("lo"), done()]]);
    let mut stage = stage();
    assert_eq!(perform(&agent(&provider), &mut stage).await, Ok(()));
    assert_eq!(stage.acts[0], Act::Think("hm ".to_owned()));
    assert_eq!(stage.said(), "Hello");
    let usage = Usage { cost_micros: 12_000, ..completion().usage };
    assert_eq!(stage.acts.last(), Some(&Act::Consume(usage, Some("fast".to_owned()))));
    let asked = provider.asked();
    assert_eq!((asked[0].model.as_str(), asked[0].tools.len()), ("fast-id", 2));
}

#[tokio::test]
async fn tools_are_called_and_the_model_reads_what_came_of_it() {
    let provider = Scripted::new([
        vec![text("I look. "), calls(&[("read_file", r#"{"path":"a"}"#), ("shell", "{}")])],
        vec![text("Done."), done()],
    ]);
    let failure = Failure { code: "EXIT".into(), message: "no".to_owned(), retryable: false };
    let mut stage = Recorder { results: [Ok("content".to_owned()), Err(failure)].into(), ..stage() };
    assert_eq!(perform(&agent(&provider), &mut stage).await, Ok(()));
    let asked = provider.asked();
    let ModelMessage::Results(results) = asked[1].messages.last().unwrap() else { panic!() };
    assert_eq!(
        (results[0].id.as_str(), results[0].text.as_str(), results[0].failed),
        ("c0", "content", false)
    );
    assert_eq!((results[1].text.as_str(), results[1].failed), ("Error EXIT: no", true));
    let prefix = |place: usize| format!("{:?}", &asked[place].messages[..1]);
    assert_eq!(prefix(0), prefix(1), "the beginning stays the same");
    assert_eq!(asked[0].system, asked[1].system);
}

#[tokio::test]
async fn a_tool_that_is_not_there_and_an_input_that_is_no_json_are_the_models_to_mend() {
    let provider = Scripted::new([
        vec![calls(&[("reboot", "{}"), ("shell", "{\"command\":")])],
        vec![text("Sorry."), done()],
    ]);
    let mut stage = stage();
    assert_eq!(perform(&agent(&provider), &mut stage).await, Ok(()));
    let ModelMessage::Results(results) = provider.asked()[1].messages.last().unwrap().clone() else {
        panic!()
    };
    assert_eq!(results[0].text, "Error UNKNOWN_TOOL: there is no tool `reboot`; there are: read_file, shell");
    assert_eq!(
        stage.acts[2],
        Act::Call("shell".to_owned(), "{\"command\":".into()),
        "the toolbox says what is wrong"
    );
}

#[tokio::test]
async fn calls_that_have_one_name_are_told_apart() {
    let provider = Scripted::new([
        vec![calls(&[("shell", "{}")])],
        vec![calls(&[("shell", "{}")])],
        vec![text("Done."), done()],
    ]);
    assert_eq!(perform(&agent(&provider), &mut stage()).await, Ok(()));
    let asked = provider.asked();
    let ids: Vec<&str> = asked[2]
        .messages
        .iter()
        .filter_map(|said| match said {
            ModelMessage::Results(results) => Some(results[0].id.as_str()),
            ModelMessage::User { .. } | ModelMessage::Model { .. } => None,
        })
        .collect();
    assert_eq!(ids, ["c0", "call_2"]);
}

#[tokio::test]
async fn a_name_that_is_made_up_for_a_call_is_that_of_no_other() {
    let named = |ids: &[&str]| {
        let call =
            |id: &&str| ModelCall { id: (*id).to_owned(), tool: "shell".to_owned(), input: "{}".to_owned() };
        Ok(Piece::Done(Completion { calls: ids.iter().map(call).collect(), ..completion() }))
    };
    let before = "call_0123456789abcdef0123456789abcdef";
    let provider = Scripted::new([
        vec![named(&["call_3", "call_3", ""])],
        vec![named(&["call_3", "call_5", "", before])],
        vec![text("Done."), done()],
    ]);
    let call = ToolCallId::parse(before).unwrap();
    let used = ToolUse { call, tool: "shell".to_owned(), input: "{}".to_owned(), result: None };
    let turn = Turn { history: vec![HistoryItem::ToolUse(used)], ..plain("do it") };
    assert_eq!(agent(&provider).answer(&turn, &mut stage()).await, Ok(()));
    // The provider looks at each request.
    assert_eq!(provider.left(), 0);
}

#[tokio::test]
async fn an_agent_has_only_its_own_tools() {
    let provider = Scripted::new([vec![calls(&[("shell", "{}")])], vec![text("x"), done()]]);
    let agent =
        ModelAgent { tools: Some(vec!["read_file".to_owned(), "gone".to_owned()]), ..agent(&provider) };
    let mut stage = stage();
    assert_eq!(perform(&agent, &mut stage).await, Ok(()));
    let asked = provider.asked();
    assert_eq!(asked[0].tools.len(), 1);
    let ModelMessage::Results(results) = asked[1].messages.last().unwrap() else { panic!() };
    assert!(results[0].text.contains("UNKNOWN_TOOL"), "{}", results[0].text);
}

#[tokio::test]
async fn more_calls_than_are_carried_out_are_refused_one_by_one() {
    let many = vec![("shell", "{}"); MAX_CALLS + 1];
    let provider = Scripted::new([vec![calls(&many)], vec![text("x"), done()]]);
    assert_eq!(perform(&agent(&provider), &mut stage()).await, Ok(()));
    let ModelMessage::Results(results) = provider.asked()[1].messages.last().unwrap().clone() else {
        panic!()
    };
    assert_eq!(results.iter().filter(|result| result.failed).count(), 1);
    assert!(results[MAX_CALLS].text.contains("TOO_MANY_CALLS"));
}

#[tokio::test]
async fn a_provider_that_is_busy_is_asked_again_after_a_while() {
    let after = ProviderError::Busy { said: String::new(), retry_after: Some(Duration::from_secs(7)) };
    let provider = Scripted::new([vec![Err(after)], vec![Err(busy())], vec![text("Hi"), done()]]);
    let mut stage = stage();
    assert_eq!(perform(&agent(&provider), &mut stage).await, Ok(()));
    let pauses: Vec<&Act> = stage.acts.iter().filter(|act| matches!(act, Act::Pause(_))).collect();
    assert_eq!(pauses[0], &Act::Pause(Duration::from_secs(7)));
    assert_eq!(pauses.len(), 2);
    assert!(notes(&stage)[0].contains("trying again in 7.0 s (2 of 5)"), "{:?}", notes(&stage));
    assert_eq!(stage.said(), "Hi");
}

#[tokio::test]
async fn a_provider_that_stays_busy_fails_the_run_as_retryable() {
    let provider = Scripted::new((0..MAX_TRIES).map(|_| vec![Err(busy())]));
    let end = perform(&agent(&provider), &mut stage()).await;
    let Err(TurnError::Failed(failure)) = end else { panic!() };
    assert_eq!((failure.code.as_str(), failure.retryable), ("MODEL_BUSY", true));
    assert!(failure.message.starts_with("fast: "), "{}", failure.message);
    assert_eq!(provider.left(), 0);
}

#[tokio::test]
async fn a_stream_that_is_cut_goes_on_in_a_new_message() {
    let provider = Scripted::new([vec![text("The answer"), Err(broken())], vec![text(" is 4."), done()]]);
    let mut stage = stage();
    assert_eq!(perform(&agent(&provider), &mut stage).await, Ok(()));
    assert_eq!(stage.said(), "The answer is 4.");
    assert!(stage.acts.contains(&Act::BreakOff));
    let again = &provider.asked()[1].messages;
    assert!(matches!(&again[1], ModelMessage::Model { text, .. } if text == "The answer"));
    assert!(last_user(again).contains("cut off"));
}

#[tokio::test]
async fn what_was_not_said_of_a_stream_that_is_cut_is_asked_for_again() {
    let provider = Scripted::new([vec![text("The key is sk-"), Err(broken())], vec![text("sk-1"), done()]]);
    let mut stage = Recorder { unsaid: 3, ..stage() };
    assert_eq!(perform(&agent(&provider), &mut stage).await, Ok(()));
    let again = &provider.asked()[1].messages;
    assert!(matches!(&again[1], ModelMessage::Model { text, .. } if text == "The key is "), "{again:?}");
}

#[tokio::test]
async fn inputs_are_shown_while_they_are_written_and_given_up_when_a_stream_is_cut() {
    let input = |text: &str| {
        let (id, tool) = ("c0".to_owned(), "shell".to_owned());
        Ok(Piece::CallInput { id, tool, text: text.to_owned() })
    };
    let provider = Scripted::new([
        vec![input("{\"c"), Err(broken())],
        vec![input("{"), input("}"), calls(&[("shell", "{}")])],
        vec![text("ok"), done()],
    ]);
    let mut stage = stage();
    assert_eq!(perform(&agent(&provider), &mut stage).await, Ok(()));
    let is_told = |act: &&Act| matches!(act, Act::Write(..) | Act::BreakOff | Act::Call(..));
    let acts: Vec<&Act> = stage.acts.iter().filter(is_told).collect();
    let write = |text: &str| Act::Write("c0 shell".to_owned(), text.to_owned());
    let call = Act::Call("shell".to_owned(), serde_json::json!({}));
    assert_eq!(acts, [&write("{\"c"), &Act::BreakOff, &write("{"), &write("}"), &call]);
}

#[tokio::test]
async fn a_thought_that_is_cut_is_thought_anew() {
    let provider = Scripted::new([vec![thought("hm"), Err(broken())], vec![text("4"), done()]]);
    let mut stage = stage();
    assert_eq!(perform(&agent(&provider), &mut stage).await, Ok(()));
    assert_eq!(provider.asked()[1].messages.len(), 1, "nothing was said");
}

#[tokio::test]
async fn another_model_takes_the_place_of_one_that_cannot_answer() {
    let refused = ProviderError::Auth { said: "no key".to_owned() };
    let (first, second) = (Scripted::new([vec![Err(refused)]]), Scripted::new([vec![text("Hi"), done()]]));
    let models = vec![model("fast", &first), model("slow", &second)];
    let agent = ModelAgent { models, ..agent(&first) };
    let mut stage = stage();
    assert_eq!(perform(&agent, &mut stage).await, Ok(()));
    assert_eq!(notes(&stage), ["fast cannot answer (no key); going on with slow"]);
    assert_eq!(second.asked()[0].model, "slow-id");
}

#[tokio::test]
async fn what_one_provider_counted_means_nothing_to_another() {
    let counted = Completion { usage: Usage { input_tokens: 1_000_000, ..Usage::default() }, ..completion() };
    let call = ModelCall { id: "c".to_owned(), tool: "shell".to_owned(), input: "{}".to_owned() };
    let first = Scripted::new([
        vec![Ok(Piece::Done(Completion { calls: vec![call], ..counted }))],
        vec![Err(ProviderError::Auth { said: "gone".to_owned() })],
    ]);
    let second = Scripted::new([vec![text("Hi"), done()]]);
    let large = Model { context_window: 10_000_000, price: None, ..model("large", &first) };
    let agent = ModelAgent { models: vec![large, model("small", &second)], ..agent(&first) };
    assert_eq!(perform(&agent, &mut stage()).await, Ok(()), "nothing needs a summary");
}

#[tokio::test]
async fn a_result_that_is_too_long_is_cut_in_its_middle() {
    let provider = Scripted::new([vec![calls(&[("shell", "{}")])], vec![text("x"), done()]]);
    let small = Model { context_window: 10_000, ..model("fast", &provider) };
    let agent = ModelAgent { models: vec![small], ..agent(&provider) };
    let mut stage = Recorder { results: [Ok("y".repeat(100_000))].into(), ..stage() };
    assert_eq!(perform(&agent, &mut stage).await, Ok(()));
    let ModelMessage::Results(results) = provider.asked()[1].messages.last().unwrap().clone() else {
        panic!()
    };
    assert!(results[0].text.len() < 4_100, "{}", results[0].text.len());
    assert!(results[0].text.contains("[… 96000 bytes are left out …]"));
}

fn long_history(parts: usize, bytes: usize) -> Vec<HistoryItem> {
    let said = |number: usize| {
        let role = if number.is_multiple_of(2) { Role::User } else { Role::Assistant };
        let (id, text) = (MessageId::parse(&format!("m{number}")).expect("a short id"), "x".repeat(bytes));
        HistoryItem::Message(Message { id, role, text, media: Vec::new() })
    };
    (0..parts).map(said).collect()
}

#[tokio::test]
async fn a_conversation_that_fills_the_window_is_summarized_first() {
    let provider = Scripted::new([vec![text("They spoke of x."), done()], vec![text("Hi"), done()]]);
    let small = Model { context_window: 10_000, ..model("fast", &provider) };
    let agent = ModelAgent { models: vec![small], ..agent(&provider) };
    let history = long_history(20, 10_000 * 4 * COMPACT_AT_PERCENT as usize / 100 / 20);
    let mut stage = stage();
    let turn = Turn { history, message: Some(MessageId::parse("now").unwrap()), ..plain("do it") };
    assert_eq!(agent.answer(&turn, &mut stage).await, Ok(()));
    let asked = provider.asked();
    assert!(asked[0].system.contains("few words") && asked[0].tools.is_empty());
    let ModelMessage::User { text, .. } = &asked[1].messages[0] else { panic!() };
    assert!(text.contains("They spoke of x.") && !text.contains("word for word"), "{text}");
    assert_eq!(notes(&stage), ["Summarizing the older part of the conversation"]);
    assert!(asked[1].messages.len() < 10, "{}", asked[1].messages.len());
    assert!(stage.acts.iter().any(|act| matches!(act, Act::Forget(from) if from.starts_with('m'))));
}

#[tokio::test]
async fn an_overflow_is_summarized_once_and_then_fails() {
    let provider =
        Scripted::new([vec![Err(overflow())], vec![text("Short."), done()], vec![text("Hi"), done()]]);
    let mut stage = stage();
    let turn = Turn { history: long_history(10, 1000), ..plain("do it") };
    assert_eq!(agent(&provider).answer(&turn, &mut stage).await, Ok(()));
    assert_eq!((stage.said().as_str(), provider.left()), ("Hi", 0));

    let provider =
        Scripted::new([vec![Err(overflow())], vec![text("Short."), done()], vec![Err(overflow())]]);
    assert_eq!(code(agent(&provider).answer(&turn, &mut self::stage()).await), "CONTEXT_OVERFLOW");
    let provider = Scripted::new([vec![Err(overflow())]]);
    assert_eq!(
        code(perform(&agent(&provider), &mut self::stage()).await),
        "CONTEXT_OVERFLOW",
        "nothing can go"
    );
}

#[tokio::test]
async fn without_a_summary_the_oldest_is_left_out() {
    let provider = Scripted::new([vec![Err(overflow())], vec![Err(broken())], vec![text("Hi"), done()]]);
    let mut stage = stage();
    let turn = Turn { history: long_history(10, 1000), ..plain("do it") };
    assert_eq!(agent(&provider).answer(&turn, &mut stage).await, Ok(()));
    assert!(notes(&stage)[1].contains("No summary could be written"), "{:?}", notes(&stage));
}

#[tokio::test]
async fn two_hundred_calls_with_five_megabytes_of_output_stay_within_the_window() {
    const CALLS: usize = 200;
    let output = "y".repeat(25_000);
    let window = 40_000_u64;
    struct Endless(std::sync::Arc<std::sync::atomic::AtomicBool>);
    #[async_trait::async_trait]
    impl parlor_model::provider::Provider for Endless {
        async fn stream(
            &self,
            request: &parlor_model::provider::Request,
        ) -> Result<parlor_model::provider::Pieces, ProviderError> {
            use futures_util::{StreamExt, stream};
            provider::assert_valid(request);
            let bytes = format!("{:?}", request.messages).len();
            // As a real one would: about four bytes a token.
            if bytes / 4 > 40_000 {
                return Err(overflow());
            }
            if last_user(&request.messages).contains("word for word:\n\ndo it") {
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
    let swallowed = std::sync::Arc::default();
    let endless = std::sync::Arc::new(Endless(std::sync::Arc::clone(&swallowed)));
    let model = Model { context_window: window, ..Model::new("m", "m", endless) };
    let limits = Limits { steps: Some(CALLS as u64), ..Limits::default() };
    let agent = ModelAgent { limits, ..ModelAgent::new("Mind", model) };
    let mut stage = Recorder { results: vec![Ok(output); CALLS].into(), ..stage() };
    assert_eq!(code(perform(&agent, &mut stage).await), "STEP_LIMIT");
    assert!(stage.results.is_empty(), "all were called");
    assert!(
        swallowed.load(std::sync::atomic::Ordering::Relaxed),
        "the request is repeated once it is summarized"
    );
    let summaries = notes(&stage).len();
    assert!((10..CALLS).contains(&summaries), "{summaries}");
}

#[tokio::test]
async fn what_is_said_meanwhile_joins_at_the_next_step() {
    let provider = Scripted::new([
        vec![calls(&[("shell", "{}")])],
        vec![text("ok"), done()],
        vec![text("blue it is"), done()],
    ]);
    let mut stage =
        Recorder { steering: [(1, "faster".to_owned()), (3, "and blue".to_owned())].into(), ..stage() };
    assert_eq!(perform(&agent(&provider), &mut stage).await, Ok(()));
    let asked = provider.asked();
    assert_eq!(last_user(&asked[1].messages), "faster");
    assert_eq!(last_user(&asked[2].messages), "and blue", "also while the last words are written");
    assert!(matches!(stage.acts.last(), Some(Act::Consume(..))));
}

#[tokio::test]
async fn an_answer_that_was_cut_says_where_and_what_to_do() {
    let cut = |calls| Ok(Piece::Done(Completion { stop: StopReason::Length, calls, ..completion() }));
    let call = ModelCall { id: "c".to_owned(), tool: "shell".to_owned(), input: "{\"c".to_owned() };
    let provider = Scripted::new([vec![cut(vec![call])], vec![text("half"), cut(Vec::new())]]);
    let model = Model { max_output: Some(7), ..model("fast", &provider) };
    let mut stage = stage();
    assert_eq!(perform(&ModelAgent { models: vec![model], ..agent(&provider) }, &mut stage).await, Ok(()));
    let told = "The answer was cut after 7 tokens, which is max_output of fast; ask it to go on, or allow more with max_output";
    assert_eq!(notes(&stage), [told, told]);
    let place = |wanted: fn(&Act) -> bool| stage.acts.iter().position(wanted);
    assert!(place(|act| matches!(act, Act::Note(_))) < place(|act| matches!(act, Act::Call(..))));
}

#[tokio::test]
async fn a_call_that_was_cut_is_not_made_and_the_model_is_told_why() {
    let call = |id: &str, input: &str| ModelCall {
        id: id.to_owned(),
        tool: "shell".to_owned(),
        input: input.to_owned(),
    };
    let cut = vec![call("a", "{}"), call("b", ""), call("c", "{\"command\":\"rm")];
    let cut = Ok(Piece::Done(Completion { stop: StopReason::Length, calls: cut, ..completion() }));
    let provider = Scripted::new([vec![cut], vec![calls(&[("shell", "")])], vec![text("x"), done()]]);
    assert_eq!(perform(&agent(&provider), &mut stage()).await, Ok(()));
    let asked = provider.asked();
    let results = |place: usize| match asked[place].messages.last() {
        Some(ModelMessage::Results(results)) => results.clone(),
        other => panic!("no results: {other:?}"),
    };
    let failed: Vec<bool> = results(1).iter().map(|result| result.failed).collect();
    assert_eq!(failed, [false, true, true]);
    assert!(results(1)[1].text.contains("your answer was cut"), "{}", results(1)[1].text);
    assert!(!results(2)[0].failed, "whoever takes no input is called without");
}

#[tokio::test]
async fn a_limit_ends_the_run_with_its_code() {
    let limited = |limits: Limits| {
        let provider = Scripted::new(vec![vec![calls(&[("shell", "{}")])]; 3]);
        let agent = ModelAgent { limits, ..agent(&provider) };
        async move { code(perform(&agent, &mut stage()).await) }
    };
    let base = Limits::default();
    assert_eq!(limited(Limits { steps: Some(2), ..base }).await, "STEP_LIMIT");
    assert_eq!(limited(Limits { tokens: Some(13), ..base }).await, "TOKEN_LIMIT");
    assert_eq!(limited(Limits { cost_micros: Some(13_000), ..base }).await, "COST_LIMIT");
    let provider = Scripted::new([]);
    let agent = ModelAgent { limits: Limits { day_micros: Some(5), ..base }, ..agent(&provider) };
    let mut stage = Recorder { spent: SpentSoFar { session_micros: 0, today_micros: 5 }, ..self::stage() };
    assert_eq!(code(agent.answer(&plain("x"), &mut stage).await), "DAY_SPEND_LIMIT");
}

/// A provider that says one token of each is not believed: texts, thoughts, inputs, and what is sent, count by their bytes.
#[tokio::test]
async fn what_a_provider_says_it_used_is_not_all_that_counts() {
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
        let provider = Scripted::new(vec![answer; 100]);
        let ended = perform(&ModelAgent { limits, ..agent(&provider) }, &mut stage()).await;
        assert_eq!(code(ended), "TOKEN_LIMIT");
        provider.asked().len()
    };
    let few = steps(vec![text(&long(2_000)), done("{}".to_owned())]).await;
    assert!(few <= 3, "{few} answers with long texts");
    let few = steps(vec![Ok(Piece::Reasoning(long(2_000))), done("{}".to_owned())]).await;
    assert!(few <= 3, "{few} answers with long thoughts");
    let few = steps(vec![input(long(2_000)), done("{}".to_owned())]).await;
    assert!(few <= 3, "{few} answers with long inputs");
    let few = steps(vec![done(format!("\"{}\"", long(2_000)))]).await;
    assert!(few <= 3, "{few} answers with inputs that come at the end");

    let provider = Scripted::new(vec![vec![text("."), done("{}".to_owned())]; 100]);
    let asked = ModelAgent { limits, ..agent(&provider) };
    let ended = asked.answer(&plain(&long(2_000)), &mut stage()).await;
    assert_eq!((code(ended).as_str(), provider.asked().len()), ("TOKEN_LIMIT", 3), "what is sent counts");
}

#[tokio::test(start_paused = true)]
async fn a_model_that_hangs_is_given_up_when_the_time_is_over() {
    let provider = Scripted::new([vec![text("I am")]]);
    let limits = Limits { time: Some(Duration::from_secs(5)), ..Limits::default() };
    let agent = ModelAgent { limits, ..agent(&provider) };
    let mut stage = stage();
    assert_eq!(code(perform(&agent, &mut stage).await), "TIME_LIMIT");
    assert_eq!(stage.said(), "I am");
}

#[tokio::test]
async fn a_stop_ends_an_answer_in_its_middle() {
    let provider = Scripted::new([vec![text("one "), text("two ")]]);
    let mut stage = Recorder { stopped_after: Some(2), ..stage() };
    assert_eq!(perform(&agent(&provider), &mut stage).await, Err(TurnError::Stopped));
    assert_eq!(stage.said(), "one two ");
}

#[tokio::test]
async fn an_answer_that_is_none_fails_with_a_reason() {
    let ends = |answer| {
        let provider = Scripted::new([answer]);
        async move { perform(&agent(&provider), &mut stage()).await }
    };
    assert_eq!(code(ends(vec![done()]).await), "EMPTY_ANSWER");
    assert_eq!(code(ends(vec![text("x"), stopped(StopReason::Filtered)]).await), "MODEL_REFUSED");
    assert_eq!(code(ends(vec![thought("x"), stopped(StopReason::Length)]).await), "ANSWER_TOO_LONG");
    assert_eq!(ends(vec![text("x"), stopped(StopReason::Length)]).await, Ok(()));
}

#[tokio::test]
async fn a_model_is_chosen_by_its_name_or_by_the_providers() {
    let (own, other) =
        (Scripted::new(vec![vec![text("x"), done()]; 2]), Scripted::new([vec![text("x"), done()]]));
    let agent = ModelAgent { known: vec![model("big", &other)], ..agent(&own) };
    for name in ["big", "fast-id", "unheard-of"] {
        let turn = Turn { model: Some(name.to_owned()), ..plain("x") };
        assert_eq!(agent.answer(&turn, &mut stage()).await, Ok(()));
    }
    assert_eq!(other.asked()[0].model, "big-id");
    let asked: Vec<String> = own.asked().into_iter().map(|request| request.model).collect();
    assert_eq!(asked, ["fast-id", "unheard-of"]);
}

#[tokio::test]
async fn images_are_shown_and_other_files_are_named() {
    let provider = Scripted::new([vec![calls(&[("read_file", "{}")])], vec![text("A cat."), done()]]);
    let file = |name: &str, mime: &str| Media {
        id: MediaId::parse(name).unwrap(),
        name: name.to_owned(),
        mime: mime.to_owned(),
        size: 3,
    };
    let mut turn = plain("what is this?");
    turn.input.media = vec![file("a.png", "image/png"), file("b.pdf", "application/pdf")];
    let seen = Picture::new("image/jpeg", b"jpg");
    let mut stage = Recorder { file: Some(b"png".to_vec()), pictures: [seen.clone()].into(), ..stage() };
    assert_eq!(agent(&provider).answer(&turn, &mut stage).await, Ok(()));
    let asked = provider.asked();
    let ModelMessage::User { text, pictures } = &asked[0].messages[0] else { panic!() };
    assert_eq!(text, "what is this?\n(A file came along: b.pdf, application/pdf, 3 bytes)");
    assert_eq!(pictures, &[Picture::new("image/png", b"png")]);
    let ModelMessage::Results(results) = asked[1].messages.last().unwrap() else { panic!() };
    assert_eq!(results[0].pictures, [seen]);
}

#[tokio::test]
async fn a_summary_on_demand_is_written_by_the_model() {
    let provider = Scripted::new([vec![text("All about x."), done()]]);
    let summary = agent(&provider).summarize(&long_history(4, 10), &AgentChoice::default()).await.unwrap();
    assert!(summary.ends_with("All about x."), "{summary}");
    let provider = Scripted::new([vec![Err(broken())]]);
    let failure =
        agent(&provider).summarize(&long_history(4, 10), &AgentChoice::default()).await.unwrap_err();
    assert_eq!(failure.code.as_str(), "MODEL_UNAVAILABLE");
}
