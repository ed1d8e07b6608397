//! The errors of invalid scripts name the file, the location and the problem.

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
fn error(text: &str) -> String {
    parse(text).expect_err("an invalid script").to_string()
}

/// The error of one step, which is the second of the second `[[on]]`.
#[track_caller]
fn step_error(step: &str) -> String {
    let text = format!(
        "[[on]]\nmatch = 'a'\nsteps = []\n[[on]]\nmatch = '^b (.)'\nsteps = [ {{ say = 'x' }}, {{ {step} }} ]"
    );
    let message = error(&text);
    let location = "dir/demo.toml: [[on]] number 2 (match = \"^b (.)\"), step 2: ";
    message.strip_prefix(location).unwrap_or_else(|| panic!("another location: {message}")).to_owned()
}

#[test]
fn a_step_has_known_members_of_the_right_type() {
    assert_eq!(
        step_error("sya = 'x'"),
        "unknown field `sya`, expected one of `think`, `say`, `wait_ms`, `usage`, `tool`, `args`, \
         `subagent`, `task`, `steps`, `fail`, `code`"
    );
    assert_eq!(step_error("say = 1"), "invalid type: integer `1`, expected a string");
    assert_eq!(step_error("wait_ms = -1"), "invalid value: integer `-1`, expected u64");
    assert_eq!(step_error("tool = 't', args = 'x'"), "invalid type: string \"x\", expected a map");
}

#[test]
fn a_step_has_one_kind() {
    assert_eq!(step_error("say = 'x', think = 'y'"), "`think` and `say` are two steps");
    assert_eq!(
        step_error("subagent = 'x', task = '', steps = [], fail = ''"),
        "`subagent` and `fail` are two steps"
    );
    assert_eq!(step_error(""), "a step is one of think, say, wait_ms, usage, tool, subagent and fail");
    assert_eq!(
        step_error("args = {}"),
        "a step is one of think, say, wait_ms, usage, tool, subagent and fail"
    );
}

#[test]
fn a_step_has_all_and_only_its_own_members() {
    assert_eq!(step_error("say = 'x', args = {}"), "`args` does not belong to `say`");
    assert_eq!(step_error("tool = 'x', task = ''"), "`task` does not belong to `tool`");
    assert_eq!(step_error("fail = 'x', steps = []"), "`steps` does not belong to `fail`");
    assert_eq!(step_error("wait_ms = 1, code = 'x'"), "`code` does not belong to `wait_ms`");
    assert_eq!(step_error("subagent = 'x', steps = []"), "`subagent` needs `task`");
    assert_eq!(step_error("subagent = 'x', task = ''"), "`subagent` needs `steps`");
}

#[test]
fn unknown_captures_are_errors_everywhere() {
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
        assert_eq!(step_error(step), "`$2` does not exist: the highest here is `$1`", "{step}");
    }
    assert_eq!(
        error("otherwise.steps = [ { say = '$1' } ]"),
        "dir/demo.toml: [otherwise], step 1: `$1` does not exist: the highest here is `$0`"
    );
    assert!(
        step_error("tool = 't', args = { a = [ nan ] }").starts_with("nan and inf cannot be given to a tool")
    );
}

#[test]
fn an_error_within_a_subagent_has_its_path() {
    let text =
        "otherwise.steps = [ { subagent = 's', task = '', steps = [ { say = '' }, { say = '$7' } ] } ]";
    let error = parse(text).unwrap_err();
    assert_eq!(error.location, ScriptLocation::Otherwise { step: vec![1, 2] });
    assert!(error.to_string().starts_with("dir/demo.toml: [otherwise], step 1, its step 2: `$7`"), "{error}");
}

#[test]
fn patterns_are_checked_and_limited() {
    assert_eq!(
        error("[[on]]\nmatch = 'a('\nsteps = []"),
        "dir/demo.toml: [[on]] number 1 (match = \"a(\"): the pattern cannot be used: unclosed group"
    );
    let message = error("[[on]]\nmatch = '\\w{50}'\nsteps = []");
    assert!(message.ends_with(": the pattern needs more than 1048576 bytes"), "{message}");
    let message = error(&format!("[[on]]\nmatch = '({}'\nsteps = []", "x".repeat(10_000)));
    assert!(message.len() < 300, "{message}");
}

#[test]
fn tables_have_all_and_only_known_members() {
    let on = "dir/demo.toml: [[on]] number 1";
    assert_eq!(
        error("[[on]]\nmatch = 'a'\nstep = []"),
        format!("{on} (match = \"a\"): unknown field `step`, expected `match` or `steps`")
    );
    assert_eq!(error("[[on]]\nsteps = []"), format!("{on}: missing field `match`"));
    assert_eq!(error("[[on]]\nmatch = 'a'"), format!("{on} (match = \"a\"): missing field `steps`"));
    assert_eq!(
        error("[[on]]\nmatch = 1\nsteps = []"),
        format!("{on}: invalid type: integer `1`, expected a string")
    );
    assert_eq!(
        error("[otherwise]\nsteps = []\nmatch = 'a'"),
        "dir/demo.toml: [otherwise]: unknown field `match`, expected `steps`"
    );
}

#[test]
fn invalid_toml_is_reported_with_its_line() {
    assert_eq!(
        error("[otherwise]\nsteps = []\n[of]"),
        "dir/demo.toml: line 3: unknown field `of`, expected `on` or `otherwise`"
    );
    let message = error("\n\n[[on]\n");
    assert!(message.starts_with("dir/demo.toml: line 3: "), "{message}");
    assert!(!message.contains('\n'), "{message}");
}

#[test]
fn an_unreadable_file_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let load = |name: &str| ScriptAgent::load(&folder.path().join(name), "Demo").unwrap_err();
    let error = load("none.toml");
    assert!(matches!(error.fault, ScriptFault::Unreadable(_)));
    assert!(error.to_string().contains("none.toml: cannot be read: "), "{error}");

    std::fs::write(folder.path().join("latin.toml"), b"# \xe4.").unwrap();
    assert!(load("latin.toml").to_string().contains("latin.toml: cannot be read: invalid utf-8"));

    std::fs::write(folder.path().join("large.toml"), "#".repeat(MAX_SCRIPT_BYTES + 1)).unwrap();
    assert!(load("large.toml").to_string().ends_with("large.toml: a script has at most 1048576 bytes"));
    std::fs::write(folder.path().join("full.toml"), "#".repeat(MAX_SCRIPT_BYTES)).unwrap();
    assert!(ScriptAgent::load(&folder.path().join("full.toml"), "Demo").is_ok());
}

#[test]
fn the_size_of_a_text_is_limited() {
    assert!(parse(&"#".repeat(MAX_SCRIPT_BYTES)).is_ok());
    assert!(matches!(parse(&"#".repeat(MAX_SCRIPT_BYTES + 1)).unwrap_err().fault, ScriptFault::TooLarge));
}

#[test]
fn patterns_and_steps_are_limited() {
    let patterns = |count| "[[on]]\nmatch = ''\nsteps = []\n".repeat(count);
    assert!(parse(&patterns(MAX_SCRIPT_PATTERNS)).is_ok());
    assert!(matches!(
        parse(&patterns(MAX_SCRIPT_PATTERNS + 1)).unwrap_err().fault,
        ScriptFault::TooManyPatterns
    ));

    // One step in an [[on]], one subagent, and its steps.
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
    assert_eq!(step_error(&format!("wait_ms = {}", longest + 1)), "`wait_ms` is at most 600000");
}

#[test]
fn the_depth_of_subagents_is_limited() {
    let nested = |depth| {
        let step = (0..depth).fold("{ say = '' }".to_owned(), |inner, _| {
            format!("{{ subagent = '', task = '', steps = [ {inner} ] }}")
        });
        format!("otherwise.steps = [ {step} ]")
    };
    assert!(parse(&nested(MAX_SCRIPT_DEPTH)).is_ok());
    let error = parse(&nested(MAX_SCRIPT_DEPTH + 1)).unwrap_err();
    assert!(error.to_string().ends_with("subagents are at most 4 deep"), "{error}");
    // The deepest nesting that fits into a file is refused without a stack overflow.
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
    let names: Vec<&str> = names.filter(|name| !["DOT_INTERVAL", "MAX_QUOTE_CHARS"].contains(name)).collect();
    assert_eq!(names.len(), 9, "this test finds no constants any more: {names:?}");
    for name in names {
        assert!(page.contains(&format!("| `{name}` |")), "docs/agents.md does not mention {name}");
    }
    let example = include_str!("../../../docs/examples/demo.toml").replace("$0\", code", "$1\", code");
    let shown = error(&example).replace("dir/", "");
    assert!(page.contains(&shown), "docs/agents.md must show this message: {shown}");
}

/// Random combinations of parts of scripts.
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
    fn any_text_parses_or_fails_with_an_error(text in prop_oneof![any::<String>(), nearly_a_script()]) {
        if let Err(error) = parse(&text) {
            prop_assert!(error.to_string().starts_with("dir/demo.toml: "));
        }
    }
}
