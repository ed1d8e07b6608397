//! What is wrong with a script is said with its file, its place and in words.

use std::path::Path;

use parlor_model::{
    MAX_SCRIPT_BYTES, MAX_SCRIPT_DEPTH, MAX_SCRIPT_PATTERNS, MAX_SCRIPT_STEPS, MAX_WAIT, ScriptAgent,
    ScriptError, ScriptFault, ScriptLocation,
};
use proptest::prelude::*;

fn parse(text: &str) -> Result<ScriptAgent, ScriptError> {
    ScriptAgent::parse(text, Path::new("dir/demo.toml"), "Demo")
}

#[track_caller]
fn wrong(text: &str) -> String {
    parse(text).expect_err("something is wrong with it").to_string()
}

/// What is wrong with one step, which is the second of the second `[[on]]`.
#[track_caller]
fn wrong_step(step: &str) -> String {
    let text = format!(
        "[[on]]\nmatch = 'a'\nsteps = []\n[[on]]\nmatch = '^b (.)'\nsteps = [ {{ say = 'x' }}, {{ {step} }} ]"
    );
    let message = wrong(&text);
    let place = "dir/demo.toml: [[on]] number 2 (match = \"^b (.)\"), step 2: ";
    message.strip_prefix(place).unwrap_or_else(|| panic!("another place: {message}")).to_owned()
}

#[test]
fn a_step_has_known_members_of_the_right_type() {
    assert_eq!(
        wrong_step("sya = 'x'"),
        "unknown field `sya`, expected one of `think`, `say`, `wait_ms`, `usage`, `tool`, `args`, \
         `subagent`, `task`, `steps`, `fail`, `code`"
    );
    assert_eq!(wrong_step("say = 1"), "invalid type: integer `1`, expected a string");
    assert_eq!(wrong_step("wait_ms = -1"), "invalid value: integer `-1`, expected u64");
    assert_eq!(wrong_step("tool = 't', args = 'x'"), "invalid type: string \"x\", expected a map");
}

#[test]
fn a_step_is_of_one_kind() {
    assert_eq!(wrong_step("say = 'x', think = 'y'"), "`think` and `say` are two steps");
    assert_eq!(
        wrong_step("subagent = 'x', task = '', steps = [], fail = ''"),
        "`subagent` and `fail` are two steps"
    );
    assert_eq!(wrong_step(""), "a step is one of think, say, wait_ms, usage, tool, subagent and fail");
    assert_eq!(
        wrong_step("args = {}"),
        "a step is one of think, say, wait_ms, usage, tool, subagent and fail"
    );
}

#[test]
fn a_step_has_its_own_members_and_all_of_them() {
    assert_eq!(wrong_step("say = 'x', args = {}"), "`args` does not belong to `say`");
    assert_eq!(wrong_step("tool = 'x', task = ''"), "`task` does not belong to `tool`");
    assert_eq!(wrong_step("fail = 'x', steps = []"), "`steps` does not belong to `fail`");
    assert_eq!(wrong_step("wait_ms = 1, code = 'x'"), "`code` does not belong to `wait_ms`");
    assert_eq!(wrong_step("subagent = 'x', steps = []"), "`subagent` needs `task`");
    assert_eq!(wrong_step("subagent = 'x', task = ''"), "`subagent` needs `steps`");
}

#[test]
fn a_capture_exists_wherever_it_is_used() {
    for step in [
        "think = '$2'",
        "say = 'a $2'",
        "tool = '$2'",
        "tool = 't', args = { a = [ { b = '$2' } ] }",
        "subagent = '$2', task = '', steps = []",
        "subagent = 's', task = '$2', steps = []",
        "fail = '$2'",
        "fail = '', code = '$2'",
    ] {
        assert_eq!(wrong_step(step), "`$2` does not exist: the highest here is `$1`", "{step}");
    }
    assert_eq!(
        wrong("otherwise.steps = [ { say = '$1' } ]"),
        "dir/demo.toml: [otherwise], step 1: `$1` does not exist: the highest here is `$0`"
    );
    assert!(
        wrong_step("tool = 't', args = { a = [ nan ] }").starts_with("nan and inf cannot be given to a tool")
    );
}

#[test]
fn a_step_within_a_subagent_is_found() {
    let text =
        "otherwise.steps = [ { subagent = 's', task = '', steps = [ { say = '' }, { say = '$7' } ] } ]";
    let error = parse(text).unwrap_err();
    assert_eq!(error.place, ScriptLocation::Otherwise { step: vec![1, 2] });
    assert!(error.to_string().starts_with("dir/demo.toml: [otherwise], step 1, its step 2: `$7`"), "{error}");
}

#[test]
fn a_pattern_is_a_regular_expression_of_bounded_size() {
    assert_eq!(
        wrong("[[on]]\nmatch = 'a('\nsteps = []"),
        "dir/demo.toml: [[on]] number 1 (match = \"a(\"): the pattern cannot be used: unclosed group"
    );
    let message = wrong("[[on]]\nmatch = '\\w{50}'\nsteps = []");
    assert!(message.ends_with(": the pattern needs more than 1048576 bytes"), "{message}");
    let message = wrong(&format!("[[on]]\nmatch = '({}'\nsteps = []", "x".repeat(10_000)));
    assert!(message.len() < 300, "{message}");
}

#[test]
fn parts_have_known_members_and_all_of_them() {
    let on = "dir/demo.toml: [[on]] number 1";
    assert_eq!(
        wrong("[[on]]\nmatch = 'a'\nstep = []"),
        format!("{on} (match = \"a\"): unknown field `step`, expected `match` or `steps`")
    );
    assert_eq!(wrong("[[on]]\nsteps = []"), format!("{on}: missing field `match`"));
    assert_eq!(wrong("[[on]]\nmatch = 'a'"), format!("{on} (match = \"a\"): missing field `steps`"));
    assert_eq!(
        wrong("[[on]]\nmatch = 1\nsteps = []"),
        format!("{on}: invalid type: integer `1`, expected a string")
    );
    assert_eq!(
        wrong("[otherwise]\nsteps = []\nmatch = 'a'"),
        "dir/demo.toml: [otherwise]: unknown field `match`, expected `steps`"
    );
}

#[test]
fn what_is_no_script_at_all_is_told_with_its_line() {
    assert_eq!(
        wrong("[otherwise]\nsteps = []\n[of]"),
        "dir/demo.toml: line 3: unknown field `of`, expected `on` or `otherwise`"
    );
    let message = wrong("\n\n[[on]\n");
    assert!(message.starts_with("dir/demo.toml: line 3: "), "{message}");
    assert!(!message.contains('\n'), "{message}");
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let load = |name: &str| ScriptAgent::load(&folder.path().join(name), "Demo").unwrap_err();
    let error = load("none.toml");
    assert!(matches!(error.flaw, ScriptFault::Unreadable(_)));
    assert!(error.to_string().contains("none.toml: cannot be read: "), "{error}");

    std::fs::write(folder.path().join("latin.toml"), b"# \xe4.").unwrap();
    assert!(load("latin.toml").to_string().contains("latin.toml: cannot be read: invalid utf-8"));

    std::fs::write(folder.path().join("large.toml"), "#".repeat(MAX_SCRIPT_BYTES + 1)).unwrap();
    assert!(load("large.toml").to_string().ends_with("large.toml: a script has at most 1048576 bytes"));
    std::fs::write(folder.path().join("full.toml"), "#".repeat(MAX_SCRIPT_BYTES)).unwrap();
    assert!(ScriptAgent::load(&folder.path().join("full.toml"), "Demo").is_ok());
}

#[test]
fn a_text_is_bounded_like_a_file() {
    assert!(parse(&"#".repeat(MAX_SCRIPT_BYTES)).is_ok());
    assert!(matches!(parse(&"#".repeat(MAX_SCRIPT_BYTES + 1)).unwrap_err().flaw, ScriptFault::TooLarge));
}

#[test]
fn patterns_and_steps_are_counted() {
    let patterns = |count| "[[on]]\nmatch = ''\nsteps = []\n".repeat(count);
    assert!(parse(&patterns(MAX_SCRIPT_PATTERNS)).is_ok());
    assert!(matches!(
        parse(&patterns(MAX_SCRIPT_PATTERNS + 1)).unwrap_err().flaw,
        ScriptFault::TooManyPatterns
    ));

    // One step in an [[on]], one around the others, and the others.
    let steps = |inner| {
        let inner = "{ say = '' },".repeat(inner);
        format!(
            "[[on]]\nmatch = ''\nsteps = [ {{ say = '' }} ]\n\
             [otherwise]\nsteps = [ {{ subagent = '', task = '', steps = [ {inner} ] }} ]"
        )
    };
    assert!(parse(&steps(MAX_SCRIPT_STEPS - 2)).is_ok());
    let error = parse(&steps(MAX_SCRIPT_STEPS - 1)).unwrap_err();
    assert!(error.to_string().ends_with("a script has at most 10000 steps"), "{error}");
}

#[test]
fn a_wait_has_a_maximum() {
    let longest = MAX_WAIT.as_millis();
    assert!(parse(&format!("otherwise.steps = [ {{ wait_ms = {longest} }} ]")).is_ok());
    assert_eq!(wrong_step(&format!("wait_ms = {}", longest + 1)), "`wait_ms` is at most 600000");
}

#[test]
fn subagents_have_a_depth() {
    let nested = |depth| {
        let step = (0..depth).fold("{ say = '' }".to_owned(), |inner, _| {
            format!("{{ subagent = '', task = '', steps = [ {inner} ] }}")
        });
        format!("otherwise.steps = [ {step} ]")
    };
    assert!(parse(&nested(MAX_SCRIPT_DEPTH)).is_ok());
    let error = parse(&nested(MAX_SCRIPT_DEPTH + 1)).unwrap_err();
    assert!(error.to_string().ends_with("subagents are at most 4 deep"), "{error}");
    // As deep as a file has room for: refused before it is a danger to the stack.
    let depth = MAX_SCRIPT_BYTES / 4;
    assert!(parse(&format!("a = {}{}", "[".repeat(depth), "]".repeat(depth))).is_err());
    assert!(parse(&format!("otherwise.steps = [ {{ tool = '', args = {}", "{a=".repeat(depth))).is_err());
    assert!(parse(&format!("otherwise{} = 1", ".a".repeat(depth))).is_err());
}

#[test]
fn the_page_names_every_limit() {
    let page = include_str!("../../../docs/agents.md");
    let source = include_str!("../src/lib.rs");
    let names = source.lines().filter_map(|line| line.strip_prefix("pub const ")?.split(':').next());
    let names: Vec<&str> = names.filter(|name| !["TICK", "MAX_QUOTE_CHARS"].contains(name)).collect();
    assert_eq!(names.len(), 9, "the constants are not found any more: {names:?}");
    for name in names {
        assert!(page.contains(&format!("| `{name}` |")), "docs/agents.md does not mention {name}");
    }
    let example = include_str!("../../../docs/examples/demo.toml").replace("$0\", code", "$1\", code");
    let shown = wrong(&example).replace("dir/", "");
    assert!(page.contains(&shown), "docs/agents.md shows another message than {shown}");
}

/// Texts that are nearly scripts.
fn nearly_a_script() -> impl Strategy<Value = String> {
    let words =
        ["[[on]]\n", "match = ", "steps = ", "[ ", "] ", "{ ", "} ", "'$1' ", "'(' ", ", ", "say = ", "\n"];
    let more =
        ["tool = ", "args = ", "[otherwise]\n", "subagent = ", "task = ", "wait_ms = ", "1 ", "\u{e4}"];
    let words = prop::sample::select([&words[..], &more[..]].concat());
    prop::collection::vec(words, 0..40).prop_map(|words| words.concat())
}

proptest! {
    #[test]
    fn no_text_is_worse_than_an_error(text in prop_oneof![any::<String>(), nearly_a_script()]) {
        if let Err(error) = parse(&text) {
            prop_assert!(error.to_string().starts_with("dir/demo.toml: "));
        }
    }
}
