//! Property tests: what must hold for any rules and any call; and examples of the order of rules.

use std::path::Path;

use parlor_tools::{ToolAccess, ToolEffect};
use parlor_vocab::{PolicyMode, PolicyRule, RuleAction};
use proptest::prelude::*;

use super::{PolicySettings, ProjectPolicy, Rule, RuleSource, RunPolicy, ToolRequest};

const HOME: &str = "/home/me";
const PROJECT: &str = "/home/me/project";

fn command(text: &str) -> ToolRequest {
    let access = ToolAccess::new(ToolEffect::Confined, text);
    ToolRequest::new("shell", &ToolAccess { command: Some(text.to_owned()), ..access }, Vec::new())
}

fn file(tool: &str, effect: ToolEffect, paths: &[&str]) -> ToolRequest {
    ToolRequest::new(tool, &ToolAccess::new(effect, ""), paths.iter().map(Into::into).collect())
}

fn rule(action: RuleAction, key: &str, value: &str) -> PolicyRule {
    let (mut rule, value) = (PolicyRule::new(action), Some(value.to_owned()));
    match key {
        "tool" => rule.tool = value,
        "path" => rule.path = value,
        "command" => rule.command = value,
        _ => rule.host = value,
    }
    rule
}

fn checked(rule: PolicyRule, source: RuleSource) -> Rule {
    Rule::new(rule, source, Some(Path::new(HOME))).unwrap()
}

fn policy(rules: Vec<PolicyRule>, mode: PolicyMode) -> RunPolicy {
    let rules = rules.into_iter().map(|rule| checked(rule, RuleSource::Settings)).collect();
    let settings = PolicySettings { rules, mode, ..PolicySettings::default() };
    RunPolicy::new(&settings, ProjectPolicy::default(), None, Path::new(PROJECT))
}

fn action(rules: Vec<PolicyRule>, call: &ToolRequest) -> RuleAction {
    policy(rules, PolicyMode::Workspace).verdict(call).action
}

use RuleAction::{Allow, Ask, Deny};

#[test]
fn the_most_specific_rule_wins_in_any_order() {
    let rules = || {
        vec![
            rule(Ask, "tool", "shell"),
            rule(Allow, "command", "git *"),
            rule(Ask, "command", "git push *"),
            rule(Deny, "command", "git push --force *"),
            rule(Allow, "command", "git push origin main"),
        ]
    };
    let cases = [
        ("ls", Ask),
        ("git status", Allow),
        ("git push", Ask),
        ("git push origin dev", Ask),
        ("git push --force", Deny),
        ("git push origin main", Allow),
        ("git push origin main x", Ask),
        ("git status; git push", Ask),
        ("git status && sudo git push --force", Deny),
        ("git status $(x)", Ask),
    ];
    for (text, expected) in cases {
        assert_eq!(action(rules(), &command(text)), expected, "{text}");
        assert_eq!(action(rules().into_iter().rev().collect(), &command(text)), expected, "{text}");
    }
}

#[test]
fn paths_match_by_folders_and_links_cannot_widen_them() {
    let rules = || {
        vec![
            rule(Deny, "path", "secrets"),
            rule(Allow, "path", "secrets/public"),
            rule(Deny, "path", "~/.aws"),
            rule(Ask, "tool", "write_file"),
        ]
    };
    let read = |paths: &[&str]| action(rules(), &file("read_file", ToolEffect::Reads, paths));
    assert_eq!(read(&["/home/me/project/a"]), Allow);
    assert_eq!(read(&["/home/me/project/secrets"]), Deny);
    assert_eq!(read(&["/home/me/project/secrets/key"]), Deny);
    assert_eq!(read(&["/home/me/project/secretsx"]), Allow);
    assert_eq!(read(&["/home/me/project/secrets/public/a"]), Allow);
    assert_eq!(read(&["/home/me/.aws/credentials"]), Deny);
    // A link that leads into the folder, and one that leads out of the allowed part.
    assert_eq!(read(&["/home/me/project/link", "/home/me/project/secrets/key"]), Deny);
    assert_eq!(read(&["/home/me/project/secrets/public/x", "/home/me/project/secrets/key"]), Deny);
    assert_eq!(action(rules(), &file("write_file", ToolEffect::Changes, &["/home/me/project/a"])), Ask);
    let search = ToolRequest { is_recursive: true, ..file("grep_files", ToolEffect::Reads, &[PROJECT]) };
    assert_eq!(action(rules(), &search), Deny);
}

#[test]
fn rules_that_ask_and_deny_also_match_where_their_links_lead() {
    let rules = vec![
        rule(Deny, "path", "secrets"),
        rule(Ask, "path", "~/notes"),
        rule(Allow, "path", "secrets/public"),
    ];
    let real = |path: &Path| match path.strip_prefix(HOME) {
        Ok(below) => Path::new("/data").join(below),
        Err(_) => path.to_owned(),
    };
    let policy = policy(rules, PolicyMode::Workspace).with_resolved_paths(real);
    let read = |path: &str| policy.verdict(&file("read_file", ToolEffect::Reads, &[path])).action;
    for folder in [HOME, "/data"] {
        assert_eq!(read(&format!("{folder}/project/secrets/key")), Deny, "{folder}");
        assert_eq!(read(&format!("{folder}/notes/a")), Ask, "{folder}");
        assert_eq!(read(&format!("{folder}/project/a")), Allow, "{folder}");
    }
    assert_eq!(read("/home/me/project/secrets/public/a"), Allow);
    assert_eq!(read("/data/project/secrets/public/a"), Deny, "an allowed path is what it is written as");
    let denied: Vec<_> = policy.denied_paths().collect();
    assert_eq!(denied, [Path::new("/home/me/project/secrets"), Path::new("/data/project/secrets")]);
}

#[test]
fn an_answer_about_a_file_is_not_about_a_folder_that_takes_its_place() {
    let mut policy = policy(vec![rule(Ask, "tool", "write_file")], PolicyMode::Workspace);
    let call = |path: &str| file("write_file", ToolEffect::Changes, &[path]);
    let remembered = policy.remembered_rule(&call("/home/me/project/a")).unwrap();
    policy.rules.push(checked(remembered, RuleSource::Remembered));
    assert_eq!(policy.verdict(&call("/home/me/project/a")).action, Allow);
    assert_eq!(policy.verdict(&call("/home/me/project/a/b")).action, Ask);
}

#[test]
fn equal_rules_are_decided_by_the_strictest_and_an_answer_beats_a_question() {
    let both = vec![rule(Allow, "command", "x"), rule(Ask, "command", "x")];
    assert_eq!(action(both.clone(), &command("x")), Ask);
    let mut with_answer = policy(both, PolicyMode::Workspace);
    with_answer.rules.push(checked(rule(Allow, "command", "x"), RuleSource::Remembered));
    assert_eq!(with_answer.verdict(&command("x")).action, Allow);
    with_answer.rules.push(checked(rule(Deny, "command", "x"), RuleSource::Settings));
    assert_eq!(with_answer.verdict(&command("x")).action, Deny);
}

#[test]
fn modes_decide_without_rules() {
    let change = file("write_file", ToolEffect::Changes, &["/home/me/project/a"]);
    let other = file("mcp_tool", ToolEffect::Unknown, &[]);
    let of = |mode, call: &ToolRequest| policy(Vec::new(), mode).verdict(call).action;
    assert_eq!(of(PolicyMode::ReadOnly, &change), Deny);
    let widened = policy(vec![rule(Allow, "tool", "write_file")], PolicyMode::ReadOnly);
    assert_eq!(widened.verdict(&change).action, Deny);
    assert_eq!(of(PolicyMode::ReadOnly, &other), Ask);
    assert_eq!(of(PolicyMode::ReadOnly, &command("ls")), Allow);
    assert_eq!([of(PolicyMode::Workspace, &change), of(PolicyMode::Full, &other)], [Allow, Allow]);
}

#[test]
fn a_project_narrows_and_an_answer_of_the_user_ends_its_questions() {
    let project = ProjectPolicy {
        remembered: Vec::new(),
        rules: vec![
            checked(rule(Allow, "command", "rm *"), RuleSource::Project),
            checked(rule(Ask, "command", "make *"), RuleSource::Project),
        ],
        mode: Some(PolicyMode::ReadOnly),
    };
    let denied = checked(rule(Deny, "command", "rm *"), RuleSource::Settings);
    let settings = PolicySettings { rules: vec![denied], ..PolicySettings::default() };
    let mut of_run = RunPolicy::new(&settings, project, Some(PolicyMode::Full), Path::new(PROJECT));
    assert_eq!(of_run.mode, PolicyMode::ReadOnly);
    assert_eq!(of_run.verdict(&command("rm x")).action, Deny);
    assert_eq!(of_run.verdict(&command("make all")).action, Ask);
    let rule = of_run.remembered_rule(&command("make all")).unwrap();
    of_run.rules.push(checked(rule, RuleSource::Remembered));
    assert_eq!(of_run.verdict(&command("make all")).action, Allow);
    assert_eq!(of_run.verdict(&command("make other")).action, Ask);
}

#[test]
fn only_a_call_that_a_rule_can_name_is_remembered() {
    let policy = policy(Vec::new(), PolicyMode::Workspace);
    let of = |call: &ToolRequest| policy.remembered_rule(call);
    assert_eq!(of(&command("git push origin")).unwrap().command.as_deref(), Some("git push origin"));
    for other in ["git push; x", "echo 'a b'", "a $B", "echo '*'", "echo 'x;y'"] {
        assert_eq!(of(&command(other)), None, "{other}");
    }
    let change = file("edit_file", ToolEffect::Changes, &["/home/me/project/src/a.rs"]);
    assert_eq!(of(&change).unwrap().path.as_deref(), Some("src/a.rs"));
    let tool = of(&file("mcp_tool", ToolEffect::Unknown, &[])).unwrap();
    assert_eq!((tool.tool.as_deref(), tool.path, tool.command), (Some("mcp_tool"), None, None));
}

#[test]
fn rules_that_can_match_nothing_are_refused() {
    for (key, value) in [
        ("command", ""),
        ("command", "cargo * x"),
        ("command", "a;b"),
        ("path", "../x"),
        ("path", "a/*"),
        ("host", "https://x"),
        ("host", "a..b"),
        ("host", "x:80"),
        ("tool", "a\nb"),
    ] {
        let result = Rule::new(rule(Deny, key, value), RuleSource::Settings, Some(Path::new(HOME)));
        assert!(result.is_err(), "{key} {value:?}");
    }
    assert!(Rule::new(PolicyRule::new(Deny), RuleSource::Settings, None).is_err());
    let two = PolicyRule { path: Some("a".into()), ..rule(Deny, "command", "x") };
    assert!(Rule::new(two, RuleSource::Settings, None).is_err());
    let long = rule(Deny, "tool", &"x".repeat(super::MAX_RULE_BYTES + 1));
    assert!(Rule::new(long, RuleSource::Settings, None).is_err());
}

#[test]
fn hosts_match_by_their_whole_name() {
    let exact = checked(rule(Allow, "host", "Crates.Example"), RuleSource::Settings);
    assert!(exact.matches_host("crates.example.") && !exact.matches_host("x.crates.example"));
    let below = checked(rule(Allow, "host", "*.crates.example"), RuleSource::Settings);
    assert!(below.matches_host("a.b.crates.example"));
    assert!(!below.matches_host("crates.example") && !below.matches_host("evilcrates.example"));
}

#[test]
fn a_host_needs_a_rule_that_allows_it() {
    let rules = vec![rule(Allow, "host", "*.example"), rule(Deny, "host", "bad.example")];
    let mut policy = policy(rules, PolicyMode::Workspace);
    let action = |policy: &RunPolicy, host: &str| policy.host_verdict(host).action;
    assert_eq!(action(&policy, "good.example"), Allow);
    assert_eq!((action(&policy, "bad.example"), action(&policy, "elsewhere.test")), (Deny, Deny));
    policy.project_rules.push(checked(rule(Ask, "host", "good.example"), RuleSource::Project));
    assert_eq!(action(&policy, "good.example"), Ask);
    policy.project_rules.push(checked(rule(Allow, "host", "elsewhere.test"), RuleSource::Project));
    assert_eq!(action(&policy, "elsewhere.test"), Deny, "a project allows nothing");
    // The answer "always" to a question of the project.
    policy.rules.push(checked(rule(Allow, "host", "good.example"), RuleSource::Remembered));
    assert_eq!(action(&policy, "good.example"), Allow);
}

fn any_action() -> impl Strategy<Value = RuleAction> {
    prop_oneof![Just(Allow), Just(Ask), Just(Deny)]
}

fn any_rule() -> impl Strategy<Value = PolicyRule> {
    let word = "(git|push|rm|cargo|x)";
    let command = prop::collection::vec(word, 1..4).prop_map(|words| words.join(" "));
    let target = prop_oneof![
        (command.clone(), any::<bool>())
            .prop_map(|(command, more)| { ("command", if more { format!("{command} *") } else { command }) }),
        "(src|src/a|secrets|~/x|/etc)".prop_map(|path| ("path", path)),
        "(shell|read_file|\\*)".prop_map(|tool| ("tool", tool)),
    ];
    (any_action(), target).prop_map(|(action, (key, value))| rule(action, key, &value))
}

fn any_call() -> impl Strategy<Value = ToolRequest> {
    let text = prop::collection::vec("(git|push|rm|cargo|x|;|\\||\\$\\(x\\)|'a b'|A=b|>)", 1..6);
    prop_oneof![
        text.prop_map(|words| command(&words.join(" "))),
        "[ -~\\n]{0,20}".prop_map(|text| command(&text)),
        "(src|src/a/b|secrets/x|z)"
            .prop_map(|path| { file("read_file", ToolEffect::Reads, &[&format!("{PROJECT}/{path}")]) }),
    ]
}

proptest! {
    #[test]
    fn the_order_of_rules_does_not_matter(
        rules in prop::collection::vec(any_rule(), 0..8), call in any_call(), turn in 0..8_usize,
    ) {
        let mut turned = rules.clone();
        turned.rotate_left(turn.min(rules.len()));
        prop_assert_eq!(action(rules, &call), action(turned, &call));
    }

    #[test]
    fn a_project_never_makes_a_policy_wider(
        rules in prop::collection::vec(any_rule(), 0..6),
        of_project in prop::collection::vec(any_rule(), 0..6),
        call in any_call(),
    ) {
        let rules: Vec<Rule> = rules.into_iter().map(|rule| checked(rule, RuleSource::Settings)).collect();
        let of_project = of_project.into_iter().map(|rule| checked(rule, RuleSource::Project)).collect();
        let settings = PolicySettings { rules, ..PolicySettings::default() };
        let without = RunPolicy::new(&settings, ProjectPolicy::default(), None, Path::new(PROJECT));
        let narrower = ProjectPolicy { rules: of_project, ..ProjectPolicy::default() };
        let with = RunPolicy::new(&settings, narrower, None, Path::new(PROJECT));
        prop_assert!(with.verdict(&call).action >= without.verdict(&call).action);
    }

    #[test]
    fn no_rule_for_a_command_allows_a_text_that_is_not_one_simple_command(
        rules in prop::collection::vec(any_rule(), 0..6),
        before in "[a-z ]{1,8}", chain in "(;|\\||&|&&|\n|`|\\$\\(|>|<|\\\\)", after in "[a-z ]{0,8}",
    ) {
        let call = command(&format!("{before}{chain}{after}"));
        let mut rules = rules;
        rules.retain(|rule| rule.command.is_some() && rule.action == Allow);
        rules.push(rule(Allow, "command", "*"));
        rules.push(rule(Ask, "tool", "shell"));
        prop_assert_eq!(action(rules, &call), Ask);
    }

    #[test]
    fn an_answer_that_is_remembered_ends_the_question(
        rules in prop::collection::vec(any_rule(), 0..6), call in any_call(),
    ) {
        let mut policy = policy(rules, PolicyMode::Workspace);
        if policy.verdict(&call).action == Ask && let Some(rule) = policy.remembered_rule(&call) {
            policy.rules.push(checked(rule, RuleSource::Remembered));
            prop_assert_eq!(policy.verdict(&call).action, Allow);
        }
    }
}
