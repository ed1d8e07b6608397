//! The path policy applies to every tool that takes a path.

mod common;

use parlor_vocab::{Failure, FailureCode};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;

use common::{Fixture, names};
use parlor_tools::{OpenedPathCheck, PATH_BYTES, Policy, ToolContext};
use serde_json::{Value, json};

/// Each tool that takes a path, with an input for `path`.
fn inputs(path: &str) -> Vec<(&'static str, Value)> {
    vec![
        ("read_file", json!({"path": path})),
        ("write_file", json!({"path": path, "content": "new"})),
        ("edit_file", json!({"path": path, "old_text": "a", "new_text": "b"})),
        ("list_dir", json!({"path": path})),
        ("grep_files", json!({"pattern": "a", "path": path})),
        ("shell", json!({"command": "pwd", "cwd": path})),
    ]
}

#[tokio::test]
async fn all_tools_refuse_paths_outside_of_the_root() {
    let fixture = Fixture::new();
    fs::write(fixture.outside("secret"), "a").unwrap();
    fs::create_dir(fixture.inside("x")).unwrap();
    let root = fixture.context.folder.display().to_string();
    // Among them: a sibling whose name starts with the root's name, and a missing file.
    for path in [
        "/etc/passwd",
        "..",
        "../outside/secret",
        "x/../../outside/secret",
        "/",
        "../outside/missing",
        "~/secret",
        &format!("{root}x/secret"),
    ] {
        let mut context = fixture.context.clone();
        context.policy =
            Arc::new(Policy::new([&fixture.context.folder]).unwrap().with_home(fixture.outside("")));
        for (tool, input) in inputs(path) {
            let failure = fixture.toolbox.call(tool, &input.to_string(), &context).await.unwrap_err();
            assert_eq!(failure.code, FailureCode::PathRefused, "{tool} {path}");
            assert_eq!(
                failure.message,
                format!("`{path}` is outside of the allowed folder `{root}`"),
                "{tool}"
            );
        }
    }
    assert_eq!(names(&fixture.outside("")), ["secret"]);
    assert_eq!(fs::read_to_string(fixture.outside("secret")).unwrap(), "a");
}

#[tokio::test]
async fn links_that_lead_outside_are_refused() {
    let fixture = Fixture::new();
    fs::write(fixture.outside("secret"), "a").unwrap();
    symlink(fixture.outside(""), fixture.inside("absolute")).unwrap();
    symlink("../outside", fixture.inside("relative")).unwrap();
    symlink(fixture.outside("secret"), fixture.inside("file")).unwrap();
    symlink(fixture.outside("not yet"), fixture.inside("dangling")).unwrap();
    symlink("absolute", fixture.inside("chain")).unwrap();
    for path in [
        "absolute/secret",
        "relative/secret",
        "relative/missing/deep",
        "file",
        "dangling",
        "chain",
        "chain/x",
    ] {
        for (tool, input) in inputs(path) {
            let (code, message) = fixture.fail(tool, input).await;
            assert_eq!(code, FailureCode::PathRefused, "{tool} {path}");
            assert!(
                message.contains("leads through a symbolic link to the outside of the allowed folder"),
                "{message}"
            );
        }
    }
    assert_eq!(names(&fixture.outside("")), ["secret"]);
}

#[tokio::test]
async fn absolute_and_relative_links_inside_work() {
    let fixture = Fixture::new();
    fixture.file("real/a.txt", "text\n");
    symlink(fixture.inside("real"), fixture.inside("absolute")).unwrap();
    symlink("../real/a.txt", fixture.inside("real/again")).unwrap();
    symlink("../inside/real", fixture.inside("out and in")).unwrap();
    for path in ["absolute/a.txt", "absolute/again", "real/../real/a.txt", "out and in/a.txt"] {
        assert!(fixture.text("read_file", json!({"path": path})).await.contains("\ttext"), "{path}");
    }
    // A new file below a link, and the missing target of a dangling link.
    symlink("real/later", fixture.inside("dangling")).unwrap();
    fixture.text("write_file", json!({"path": "absolute/new/b", "content": "b"})).await;
    fixture.text("write_file", json!({"path": "dangling", "content": "c"})).await;
    assert_eq!(fixture.content("real/new/b"), "b");
    assert_eq!(fixture.content("real/later"), "c");
    assert!(
        fs::symlink_metadata(fixture.inside("dangling")).unwrap().is_symlink(),
        "the link is not replaced"
    );
}

#[tokio::test]
async fn a_policy_may_have_several_roots_and_a_home() {
    let fixture = Fixture::new();
    fixture.file("a", "in a\n");
    fs::write(fixture.outside("b"), "in b\n").unwrap();
    symlink(fixture.outside("b"), fixture.inside("across")).unwrap();
    let mut context = fixture.context.clone();
    let policy =
        Policy::new([fixture.inside(""), fixture.outside("")]).unwrap().with_home(fixture.outside(""));
    context.policy = Arc::new(policy);
    let outside = fixture.outside("b").display().to_string();
    for path in ["~/b", "across", "../outside/b", &outside] {
        let input = json!({"path": path}).to_string();
        let output = fixture.toolbox.call("read_file", &input, &context).await.unwrap();
        assert!(output.text.contains("in b"), "{path}");
    }
    let failure = fixture.toolbox.call("read_file", r#"{"path":"/etc/passwd"}"#, &context).await.unwrap_err();
    assert!(failure.message.contains("is outside of the allowed folders `"), "{}", failure.message);
    assert!(failure.message.contains("inside`, `"), "{}", failure.message);

    let (code, message) = fixture.fail("read_file", json!({"path": "~/b"})).await;
    assert_eq!(code, FailureCode::InvalidInput);
    assert!(message.starts_with("no home folder is known"), "{message}");
    fixture.file("~x", "~ is special only before a slash\n");
    fixture.text("read_file", json!({"path": "~x"})).await;
}

#[tokio::test]
async fn a_root_may_be_a_link_itself_and_the_whole_system_may_be_allowed() {
    let fixture = Fixture::new();
    fixture.file("a", "text\n");
    symlink(fixture.inside(""), fixture.outside("link")).unwrap();
    let context = ToolContext::new(fixture.outside("link")).unwrap();
    let output = fixture.toolbox.call("read_file", r#"{"path":"a"}"#, &context).await.unwrap();
    assert!(output.text.contains("text"));
    let mut context = fixture.context.clone();
    context.policy = Arc::new(Policy::new(["/"]).unwrap());
    let output = fixture.toolbox.call("read_file", r#"{"path":"/etc/passwd"}"#, &context).await.unwrap();
    assert!(output.text.contains("root"));
}

#[tokio::test]
async fn each_kind_of_invalid_path_has_its_own_failure() {
    let fixture = Fixture::new();
    fixture.file("file", "text\n");
    symlink("loop b", fixture.inside("loop a")).unwrap();
    symlink("loop a", fixture.inside("loop b")).unwrap();
    let long = "x/".repeat(PATH_BYTES / 2 + 1);
    let name = "y".repeat(300);
    for (path, code, words) in [
        ("", FailureCode::InvalidInput, "empty"),
        ("a\0b", FailureCode::InvalidInput, "NUL"),
        (&long, FailureCode::InvalidInput, "limit of 4095"),
        (&name, FailureCode::InvalidInput, "too long"),
        ("loop a", FailureCode::ToolError, "loop of symbolic links"),
        ("loop a/x", FailureCode::ToolError, "loop of symbolic links"),
        ("missing", FailureCode::NotFound, "`missing` does not exist"),
        ("file/below", FailureCode::NotFound, "a part of it is not a folder"),
    ] {
        let (got, message) = fixture.fail("read_file", json!({"path": path})).await;
        assert_eq!(got, code, "{message}");
        assert!(message.contains(words), "{message}");
    }
    for path in ["", "a\0b", &long, &name, "loop a", "file/below", "."] {
        let (got, message) = fixture.fail("write_file", json!({"path": path, "content": ""})).await;
        assert_ne!(got, FailureCode::PathRefused, "{message}");
    }
    // A path of exactly the limit is accepted.
    let most = format!("{}x", "./".repeat(PATH_BYTES / 2));
    assert_eq!(most.len(), PATH_BYTES);
    assert_eq!(fixture.fail("read_file", json!({"path": most})).await.0, FailureCode::NotFound);
}

#[test]
fn a_policy_needs_existing_absolute_folders() {
    let code = |roots: &[&str]| Policy::new(roots).unwrap_err().code;
    assert_eq!(code(&[]), FailureCode::InvalidInput);
    assert_eq!(code(&["relative"]), FailureCode::InvalidInput);
    assert_eq!(code(&["/no/such/folder"]), FailureCode::NotFound);
    assert_eq!(code(&["/etc/passwd"]), FailureCode::NotFound);
}

#[tokio::test]
async fn a_single_file_outside_can_be_allowed_for_reading() {
    let fixture = Fixture::new();
    let path = |name: &str| fixture.outside(name).display().to_string();
    for name in ["attached", "other"] {
        fs::write(fixture.outside(name), "a").unwrap();
    }
    symlink(fixture.outside("attached"), fixture.inside("link")).unwrap();
    fixture.context.policy.allow_reading(&fixture.outside("attached")).unwrap();
    for allowed in [path("attached").as_str(), "link", "../outside/attached"] {
        assert!(fixture.text("read_file", json!({"path": allowed})).await.contains("\ta\n"), "{allowed}");
    }
    for (tool, input) in inputs(&path("attached")).into_iter().filter(|(tool, _)| !is_reader(tool)) {
        assert_eq!(fixture.fail(tool, input).await.0, FailureCode::PathRefused, "{tool}");
    }
    for refused in [path("other"), path(""), path("missing"), path("attached/below")] {
        for (tool, input) in inputs(&refused) {
            assert_eq!(fixture.fail(tool, input).await.0, FailureCode::PathRefused, "{tool} {refused}");
        }
    }
    fs::remove_file(fixture.outside("attached")).unwrap();
    symlink(fixture.outside("other"), fixture.outside("attached")).unwrap();
    let (code, _) = fixture.fail("read_file", json!({"path": path("attached")})).await;
    assert_eq!(code, FailureCode::PathRefused, "a link that replaces the file is not followed");
    assert_eq!(fs::read_to_string(fixture.outside("other")).unwrap(), "a");
}

/// Whether a tool only reads the file that its path names.
fn is_reader(tool: &str) -> bool {
    ["read_file", "list_dir", "grep_files"].contains(&tool)
}

#[tokio::test]
async fn under_the_policy_no_tool_changes_what_other_programs_obey() {
    let mut fixture = Fixture::new();
    for file in [".git/config", ".git/HEAD", "sub/.git/hooks/pre-commit", "named/config", "named/HEAD"] {
        fixture.file(file, "a");
    }
    for folder in ["named/objects", "named/refs"] {
        fs::create_dir(fixture.inside(folder)).unwrap();
    }
    fixture.file(".parlor/policy.toml", "a");
    symlink(".git/hooks", fixture.inside("innocent")).unwrap();
    symlink("named", fixture.inside("link")).unwrap();
    let context = fixture.context.clone();
    let policy = Policy::new([fixture.inside("")]).unwrap().without_obeyed_changes();
    fixture.context.policy = Arc::new(policy);
    for path in [
        ".git/config",
        ".git/config.worktree",
        ".git/commondir",
        ".git/hooks/post-checkout",
        ".git/modules/x/config",
        "./.git/../.git/config",
        "innocent/post-checkout",
        "sub/.git/hooks/pre-commit",
        "new/.git",
        "new/.git/config",
        "named/config",
        "link/hooks/x",
        ".agents/skills/x/SKILL.md",
        "sub/.codex/config.toml",
        ".parlor/policy.toml",
    ] {
        for input in
            [json!({"path": path, "content": "new"}), json!({"path": path, "old_text": "a", "new_text": "b"})]
        {
            let tool = if input["content"].is_string() { "write_file" } else { "edit_file" };
            if tool == "edit_file" && !fixture.inside(path).exists() {
                continue;
            }
            let (code, message) = fixture.fail(tool, input).await;
            assert_eq!(code, FailureCode::PathRefused, "{path}");
            assert!(message.contains("cannot change under the policy"), "{message}");
        }
    }
    assert!(!fixture.inside("new").exists() && !fixture.inside(".git/modules").exists());
    assert_eq!(fixture.content(".git/config") + &fixture.content("named/config"), "aa");
    // Reading, and what git does not obey, stays possible.
    assert!(fixture.text("read_file", json!({"path": ".git/config"})).await.contains('a'));
    for path in [".git/info/exclude", "config", "hooks/x"] {
        fixture.text("write_file", json!({"path": path, "content": "new"})).await;
    }
    fixture.context = context;
    fixture.text("write_file", json!({"path": ".git/config", "content": "new"})).await;
}

/// Refuses everything below a folder `secrets`.
#[derive(Debug)]
struct NoSecretFolder;

impl OpenedPathCheck for NoSecretFolder {
    fn check(&self, path: &Path) -> Result<(), Failure> {
        match path.iter().any(|part| part == "secrets") {
            true => Err(Failure {
                code: FailureCode::PolicyDenied,
                message: "no secrets".to_owned(),
                retryable: false,
            }),
            false => Ok(()),
        }
    }
}

#[tokio::test]
async fn every_file_tool_checks_the_path_that_it_has_opened() {
    let mut fixture = Fixture::new();
    fixture.file("secrets/key", "a");
    fixture.file("ordinary/key", "a");
    symlink("secrets", fixture.inside("link")).unwrap();
    fixture.context.opened_path_check = Some(Arc::new(NoSecretFolder));
    let tools = inputs("").len() - 1;
    for (file, folder) in [("link/key", "link"), ("ordinary/key", "ordinary")] {
        for (tool, input) in inputs(file).into_iter().chain(inputs(folder)) {
            let is_listed = ["list_dir", "grep_files"].contains(&tool);
            if tool == "shell" || is_listed != (input["path"] == folder) {
                continue;
            }
            let outcome = fixture.call(tool, input).await;
            match folder {
                "link" => assert_eq!(outcome.unwrap_err().code, FailureCode::PolicyDenied, "{tool}"),
                _ if tool == "edit_file" => assert!(outcome.is_err(), "write_file replaced the text"),
                _ => assert!(outcome.is_ok(), "{tool}"),
            }
        }
    }
    assert_eq!((tools, fixture.content("secrets/key").as_str()), (5, "a"));
}
