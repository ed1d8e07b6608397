//! Turns of a script agent.

mod common;
#[path = "common/run_turn.rs"]
mod run;

use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Duration;

use common::{Action, RecordingContext};
use parlor_model::{Agent, MAX_QUOTE_CHARS, MAX_STEP_BYTES, ScriptAgent, TurnError};
use parlor_vocab::{Failure, Usage};
use proptest::prelude::*;
use run::{run_and_stop_everywhere, run_prompt};
use serde_json::json;

const PAGE: &str = include_str!("../../../docs/agents.md");
const EXAMPLE: &str = include_str!("../../../docs/examples/demo.toml");

fn script(text: &str) -> ScriptAgent {
    ScriptAgent::parse(text, Path::new("test.toml"), "Test").expect("a valid script")
}

/// Runs the example with `prompt`, and stops it at every action.
fn example(prompt: &str) -> (RecordingContext, Result<(), TurnError>) {
    run_and_stop_everywhere(&script(EXAMPLE), prompt)
}

fn answer(text: &str, prompt: &str) -> String {
    let mut context = RecordingContext::default();
    assert_eq!(run_prompt(&script(text), prompt, &mut context), Ok(()));
    context.text()
}

fn text(text: &str) -> Action {
    Action::Text(text.to_owned())
}

fn failed(code: &str, message: &str) -> Failure {
    Failure { code: code.into(), message: message.to_owned(), retryable: false }
}

#[test]
fn the_page_shows_the_example_and_the_file_loads() {
    assert!(PAGE.contains(&format!("```toml\n{EXAMPLE}```\n")), "docs/agents.md must show the example");
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/examples/demo.toml");
    let agent = ScriptAgent::load(&path, "Demo").unwrap();
    assert_eq!(agent.name(), "Demo");
}

#[test]
fn the_example_deploys() {
    let (context, end) = example("deploy web");
    assert_eq!(end, Ok(()));
    let scout = |name: &str| name.to_owned();
    let expected = [
        Action::Reasoning("Checking web. ".to_owned()),
        text("Deploying "),
        Action::Sleep(Duration::from_millis(200)),
        text("web"),
        text(".\n"),
        Action::ToolCall("shell".to_owned(), json!({"command": "echo \"web costs $5\""})),
        Action::Delegate { name: scout("scout"), agent: scout("scout"), task: "Look at web".to_owned() },
        Action::ToolCall("read_file".to_owned(), json!({"path": "web.log"})),
        text("web looks fine."),
        text("Done."),
    ];
    assert_eq!(context.actions, expected);
    assert_eq!(context.returned, [Ok("web looks fine.".to_owned())]);
}

#[test]
fn the_example_fails_and_has_an_answer_to_everything_else() {
    let (context, end) = example("Please BREAK it");
    assert_eq!(context.actions, [text("I will try.")]);
    assert_eq!(end, Err(TurnError::Failed(failed("NOT_FOUND", "cannot do: BREAK"))));

    let (context, end) = example("hello");
    assert_eq!((context.text().as_str(), end), ("No script for “hello”.", Ok(())));
}

#[test]
fn every_kind_of_step_runs() {
    let agent = script(
        r#"
        [[on]]
        match = "^deploy (.*)$"
        steps = [
          { think = "checking $1" },
          { say = "Deploying " }, { wait_ms = 200 }, { say = "$1" },   # each say is one delta
          { tool = "shell", args = { command = "echo $1" } },
          { subagent = "scout", task = "look at $1", steps = [ { say = "fine" } ] },
          { fail = "no such host", code = "NOT_FOUND" },               # ends the run
        ]
        [otherwise]
        steps = [ { say = "No script for that." } ]
        "#,
    );
    let (context, end) = run_and_stop_everywhere(&agent, "deploy a b");
    assert_eq!(end, Err(TurnError::Failed(failed("NOT_FOUND", "no such host"))));
    assert_eq!(context.actions.len(), 7);
    assert_eq!(context.actions[4], Action::ToolCall("shell".to_owned(), json!({"command": "echo a b"})));
}

#[test]
fn usage_is_reported_with_the_chosen_model() {
    let agent = script("otherwise.steps = [ { usage = { input = 812, output = 64, cache_read = 3 } } ]");
    let (context, end) = run_and_stop_everywhere(&agent, "x");
    assert_eq!(end, Ok(()));
    let usage = Usage { input_tokens: 812, output_tokens: 64, cache_read_tokens: 3, ..Usage::default() };
    assert_eq!(context.actions, [Action::Usage(usage, Some("m1".to_owned()))]);
}

#[test]
fn the_first_pattern_that_matches_wins() {
    let text = r#"
        on = [
          { match = "b", steps = [ { say = "first" } ] },
          { match = "^ab$", steps = [ { say = "second" } ] },
        ]
        "#;
    assert_eq!(answer(text, "ab"), "first");
}

#[test]
fn a_prompt_without_a_match_gets_an_explanation() {
    let text = "[[on]]\nmatch = 'x'\nsteps = []";
    assert_eq!(answer(text, "x"), "", "no steps mean no answer");
    assert_eq!(answer(text, "hi"), "No [[on]] of this script matches “hi”, and it has no [otherwise].");
    assert_eq!(answer("", "hi"), answer(text, "hi"));
    assert!(answer("", &"y".repeat(10_000)).chars().count() < MAX_QUOTE_CHARS + 100);
    let (_, end) = run_and_stop_everywhere(&script(""), "hi");
    assert_eq!(end, Ok(()));
}

#[test]
fn captures_are_inserted_into_every_text() {
    let agent = script(
        r#"
        [[on]]
        match = "^(a)(x)?(.*)"
        steps = [
          { think = "$1$2" }, { say = "$1$2$3" },
          { tool = "$1", args = { list = [ "$3", { deep = "$0" } ], number = 1, truth = true } },
          { tool = "bare" },
          { subagent = "$1-agent", task = "do $3", steps = [
            { say = "$3" },
            { subagent = "inner", task = "", steps = [ { fail = "$3", code = "$1" } ] },
            { say = "$$1" },
          ] },
          { fail = "$0", code = "C_$1" },
        ]
        "#,
    );
    let (context, end) = run_and_stop_everywhere(&agent, "a\"b");
    let delegate = |name: &str, task: &str| Action::Delegate {
        name: name.to_owned(),
        agent: name.to_owned(),
        task: task.to_owned(),
    };
    let expected = [
        Action::Reasoning("a".to_owned()),
        text("a\"b"),
        Action::ToolCall(
            "a".to_owned(),
            json!({"list": ["\"b", {"deep": "a\"b"}], "number": 1, "truth": true}),
        ),
        Action::ToolCall("bare".to_owned(), json!({})),
        delegate("a-agent", "do \"b"),
        text("\"b"),
        delegate("inner", ""),
        text("$1"),
    ];
    assert_eq!(context.actions, expected);
    assert_eq!(context.returned, [Err(failed("a", "\"b")), Ok("$1".to_owned())]);
    assert_eq!(end, Err(TurnError::Failed(failed("C_a", "a\"b"))));
}

#[test]
fn a_failed_tool_does_not_end_the_script() {
    let mut context =
        RecordingContext { results: [Err(failed("EXIT", "no"))].into(), ..RecordingContext::default() };
    let agent = script(
        "otherwise.steps = [ { tool = 'shell' }, { say = 'on' }, { fail = 'end' }, { say = 'never' } ]",
    );
    let end = run_prompt(&agent, "", &mut context);
    assert_eq!(context.actions, [Action::ToolCall("shell".to_owned(), json!({})), text("on")]);
    assert_eq!(end, Err(TurnError::Failed(failed("FAILED", "end"))), "FAILED is the default code");
}

#[test]
fn a_step_that_is_too_large_fails_the_run() {
    let half = "x".repeat(MAX_STEP_BYTES / 2);
    assert_eq!(
        answer("otherwise.steps = [ { say = '$0$0' }, { say = '$0$0' } ]", &half).len(),
        2 * MAX_STEP_BYTES
    );
    for step in ["say = '$0$0.'", "tool = 't', args = { a = ['$0', { b = '$0' }], c = '.' }"] {
        let mut context = RecordingContext::default();
        let end = run_prompt(&script(&format!("otherwise.steps = [ {{ {step} }} ]")), &half, &mut context);
        let Err(TurnError::Failed(failure)) = end else { panic!("{step}: {end:?}") };
        assert_eq!(failure.code.as_str(), "SCRIPT_STEP_TOO_LARGE");
        assert_eq!(context.actions, []);
    }
}

/// Compiled once, because that takes longer than a thousand answers.
static ANY: LazyLock<ScriptAgent> = LazyLock::new(|| {
    script(
        r#"
        [[on]]
        match = "(.)(\\w+)?$"
        steps = [ { say = "$0|$1|$2|$$" }, { tool = "t", args = { a = "$2" } } ]
        [otherwise]
        steps = [ { say = "<$0>" } ]
        "#,
    )
});

proptest! {
    #[test]
    fn any_prompt_is_answered(prompt in any::<String>()) {
        let mut context = RecordingContext::default();
        prop_assert_eq!(run_prompt(&*ANY, &prompt, &mut context), Ok(()));
        let text = context.text();
        prop_assert!(text == format!("<{prompt}>") || text.ends_with("|$"), "{:?}", text);
    }
}
