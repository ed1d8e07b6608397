//! How scripts are performed.

mod common;
#[path = "common/perform.rs"]
mod performing;

use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Duration;

use common::{Act, Recorder};
use parlor_model::{Agent, MAX_QUOTE_CHARS, MAX_STEP_BYTES, ScriptAgent, TurnError};
use parlor_vocab::{Failure, Usage};
use performing::{perform, perform_and_stop_everywhere};
use proptest::prelude::*;
use serde_json::json;

const PAGE: &str = include_str!("../../../docs/agents.md");
const EXAMPLE: &str = include_str!("../../../docs/examples/demo.toml");

fn script(text: &str) -> ScriptAgent {
    ScriptAgent::parse(text, Path::new("test.toml"), "Test").expect("a script without flaws")
}

/// What the example does with `prompt`, wherever it is stopped.
fn example(prompt: &str) -> (Recorder, Result<(), TurnError>) {
    perform_and_stop_everywhere(&script(EXAMPLE), prompt)
}

fn said(text: &str, prompt: &str) -> String {
    let mut stage = Recorder::default();
    assert_eq!(perform(&script(text), prompt, &mut stage), Ok(()));
    stage.said()
}

fn say(text: &str) -> Act {
    Act::Say(text.to_owned())
}

fn failed(code: &str, message: &str) -> Failure {
    Failure { code: code.into(), message: message.to_owned(), retryable: false }
}

#[test]
fn the_page_shows_the_example_and_the_file_loads() {
    assert!(PAGE.contains(&format!("```toml\n{EXAMPLE}```\n")), "docs/agents.md shows another example");
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/examples/demo.toml");
    let agent = ScriptAgent::load(&path, "Demo").unwrap();
    assert_eq!(agent.name(), "Demo");
}

#[test]
fn the_example_deploys() {
    let (stage, end) = example("deploy web");
    assert_eq!(end, Ok(()));
    let scout = |name: &str| name.to_owned();
    let expected = [
        Act::Think("Checking web. ".to_owned()),
        say("Deploying "),
        Act::Pause(Duration::from_millis(200)),
        say("web"),
        say(".\n"),
        Act::Call("shell".to_owned(), json!({"command": "echo \"web costs $5\""})),
        Act::Delegate { name: scout("scout"), agent: scout("scout"), task: "Look at web".to_owned() },
        Act::Call("read_file".to_owned(), json!({"path": "web.log"})),
        say("web looks fine."),
        say("Done."),
    ];
    assert_eq!(stage.acts, expected);
    assert_eq!(stage.returned, [Ok("web looks fine.".to_owned())]);
}

#[test]
fn the_example_fails_and_has_an_answer_to_everything_else() {
    let (stage, end) = example("Please BREAK it");
    assert_eq!(stage.acts, [say("I will try.")]);
    assert_eq!(end, Err(TurnError::Failed(failed("NOT_FOUND", "cannot do: BREAK"))));

    let (stage, end) = example("hello");
    assert_eq!((stage.said().as_str(), end), ("No script for “hello”.", Ok(())));
}

#[test]
fn the_script_of_the_design_is_a_script() {
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
    let (stage, end) = perform_and_stop_everywhere(&agent, "deploy a b");
    assert_eq!(end, Err(TurnError::Failed(failed("NOT_FOUND", "no such host"))));
    assert_eq!(stage.acts.len(), 7);
    assert_eq!(stage.acts[4], Act::Call("shell".to_owned(), json!({"command": "echo a b"})));
}

#[test]
fn usage_is_reported_with_the_chosen_model() {
    let agent = script("otherwise.steps = [ { usage = { input = 812, output = 64, cache_read = 3 } } ]");
    let (stage, end) = perform_and_stop_everywhere(&agent, "x");
    assert_eq!(end, Ok(()));
    let usage = Usage { input_tokens: 812, output_tokens: 64, cache_read_tokens: 3, ..Usage::default() };
    assert_eq!(stage.acts, [Act::Consume(usage, Some("m1".to_owned()))]);
}

#[test]
fn the_first_pattern_that_matches_wins() {
    let text = r#"
        on = [
          { match = "b", steps = [ { say = "first" } ] },
          { match = "^ab$", steps = [ { say = "second" } ] },
        ]
        "#;
    assert_eq!(said(text, "ab"), "first");
}

#[test]
fn without_any_answer_it_says_so() {
    let text = "[[on]]\nmatch = 'x'\nsteps = []";
    assert_eq!(said(text, "x"), "", "no steps are no answer, and that is as the script wants it");
    assert_eq!(said(text, "hi"), "No [[on]] of this script matches “hi”, and it has no [otherwise].");
    assert_eq!(said("", "hi"), said(text, "hi"));
    assert!(said("", &"y".repeat(10_000)).chars().count() < MAX_QUOTE_CHARS + 100);
    let (_, end) = perform_and_stop_everywhere(&script(""), "hi");
    assert_eq!(end, Ok(()));
}

#[test]
fn captures_go_into_every_text_of_every_kind_of_step() {
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
    let (stage, end) = perform_and_stop_everywhere(&agent, "a\"b");
    let delegate = |name: &str, task: &str| Act::Delegate {
        name: name.to_owned(),
        agent: name.to_owned(),
        task: task.to_owned(),
    };
    let expected = [
        Act::Think("a".to_owned()),
        say("a\"b"),
        Act::Call("a".to_owned(), json!({"list": ["\"b", {"deep": "a\"b"}], "number": 1, "truth": true})),
        Act::Call("bare".to_owned(), json!({})),
        delegate("a-agent", "do \"b"),
        say("\"b"),
        delegate("inner", ""),
        say("$1"),
    ];
    assert_eq!(stage.acts, expected);
    assert_eq!(stage.returned, [Err(failed("a", "\"b")), Ok("$1".to_owned())]);
    assert_eq!(end, Err(TurnError::Failed(failed("C_a", "a\"b"))));
}

#[test]
fn a_failed_tool_does_not_end_the_script() {
    let mut stage = Recorder { results: [Err(failed("EXIT", "no"))].into(), ..Recorder::default() };
    let agent = script(
        "otherwise.steps = [ { tool = 'shell' }, { say = 'on' }, { fail = 'end' }, { say = 'never' } ]",
    );
    let end = perform(&agent, "", &mut stage);
    assert_eq!(stage.acts, [Act::Call("shell".to_owned(), json!({})), say("on")]);
    assert_eq!(end, Err(TurnError::Failed(failed("FAILED", "end"))), "a failure without a code has one");
}

#[test]
fn a_step_that_grows_too_large_fails_the_run() {
    let half = "x".repeat(MAX_STEP_BYTES / 2);
    assert_eq!(
        said("otherwise.steps = [ { say = '$0$0' }, { say = '$0$0' } ]", &half).len(),
        2 * MAX_STEP_BYTES
    );
    for step in ["say = '$0$0.'", "tool = 't', args = { a = ['$0', { b = '$0' }], c = '.' }"] {
        let mut stage = Recorder::default();
        let end = perform(&script(&format!("otherwise.steps = [ {{ {step} }} ]")), &half, &mut stage);
        let Err(TurnError::Failed(failure)) = end else { panic!("{step}: {end:?}") };
        assert_eq!(failure.code.as_str(), "SCRIPT_STEP_TOO_LARGE");
        assert_eq!(stage.acts, []);
    }
}

/// Compiled once: that takes longer than a thousand answers.
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
        let mut stage = Recorder::default();
        prop_assert_eq!(perform(&*ANY, &prompt, &mut stage), Ok(()));
        let said = stage.said();
        prop_assert!(said == format!("<{prompt}>") || said.ends_with("|$"), "{:?}", said);
    }
}
