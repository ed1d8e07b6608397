//! Where tools may go: one policy, whichever tool asks.

mod common;

use parlor_vocab::FailureCode;
use std::fs;
use std::os::unix::fs::symlink;
use std::sync::Arc;

use common::{Desk, names};
use parlor_tools::{PATH_BYTES, Policy, ToolContext};
use serde_json::{Value, json};

/// Each tool that takes a path, with an input for it.
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
async fn the_outside_is_refused_by_all_tools_with_the_name_of_the_root() {
    let desk = Desk::new();
    fs::write(desk.outside("secret"), "a").unwrap();
    fs::create_dir(desk.inside("x")).unwrap();
    let root = desk.context.folder.display().to_string();
    // A sibling whose name starts with the root's, a way up and out, and one to a missing file.
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
        let mut context = desk.context.clone();
        context.policy = Arc::new(Policy::new([&desk.context.folder]).unwrap().with_home(desk.outside("")));
        for (tool, input) in inputs(path) {
            let failure = desk.toolbox.call(tool, &input.to_string(), &context).await.unwrap_err();
            assert_eq!(failure.code, FailureCode::PathRefused, "{tool} {path}");
            assert_eq!(
                failure.message,
                format!("`{path}` is outside of the allowed folder `{root}`"),
                "{tool}"
            );
        }
    }
    assert_eq!(names(&desk.outside("")), ["secret"]);
    assert_eq!(fs::read_to_string(desk.outside("secret")).unwrap(), "a");
}

#[tokio::test]
async fn links_that_lead_out_are_refused_and_say_so() {
    let desk = Desk::new();
    fs::write(desk.outside("secret"), "a").unwrap();
    symlink(desk.outside(""), desk.inside("absolute")).unwrap();
    symlink("../outside", desk.inside("relative")).unwrap();
    symlink(desk.outside("secret"), desk.inside("file")).unwrap();
    symlink(desk.outside("not yet"), desk.inside("dangling")).unwrap();
    symlink("absolute", desk.inside("chain")).unwrap();
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
            let (code, message) = desk.fail(tool, input).await;
            assert_eq!(code, FailureCode::PathRefused, "{tool} {path}");
            assert!(
                message.contains("leads through a symbolic link to the outside of the allowed folder"),
                "{message}"
            );
        }
    }
    assert_eq!(names(&desk.outside("")), ["secret"]);
}

#[tokio::test]
async fn links_that_stay_inside_work_absolute_or_not() {
    let desk = Desk::new();
    desk.file("real/a.txt", "text\n");
    symlink(desk.inside("real"), desk.inside("absolute")).unwrap();
    symlink("../real/a.txt", desk.inside("real/again")).unwrap();
    symlink("../inside/real", desk.inside("out and in")).unwrap();
    for path in ["absolute/a.txt", "absolute/again", "real/../real/a.txt", "out and in/a.txt"] {
        assert!(desk.text("read_file", json!({"path": path})).await.contains("\ttext"), "{path}");
    }
    // A new file below a link, and the target of a link that leads nowhere yet.
    symlink("real/later", desk.inside("dangling")).unwrap();
    desk.text("write_file", json!({"path": "absolute/new/b", "content": "b"})).await;
    desk.text("write_file", json!({"path": "dangling", "content": "c"})).await;
    assert_eq!(desk.content("real/new/b"), "b");
    assert_eq!(desk.content("real/later"), "c");
    assert!(fs::symlink_metadata(desk.inside("dangling")).unwrap().is_symlink(), "the link stays one");
}

#[tokio::test]
async fn home_and_several_roots() {
    let desk = Desk::new();
    desk.file("a", "in a\n");
    fs::write(desk.outside("b"), "in b\n").unwrap();
    symlink(desk.outside("b"), desk.inside("across")).unwrap();
    let mut context = desk.context.clone();
    let policy = Policy::new([desk.inside(""), desk.outside("")]).unwrap().with_home(desk.outside(""));
    context.policy = Arc::new(policy);
    let outside = desk.outside("b").display().to_string();
    for path in ["~/b", "across", "../outside/b", &outside] {
        let input = json!({"path": path}).to_string();
        let output = desk.toolbox.call("read_file", &input, &context).await.unwrap();
        assert!(output.text.contains("in b"), "{path}");
    }
    let failure = desk.toolbox.call("read_file", r#"{"path":"/etc/passwd"}"#, &context).await.unwrap_err();
    assert!(failure.message.contains("is outside of the allowed folders `"), "{}", failure.message);
    assert!(failure.message.contains("inside`, `"), "{}", failure.message);

    let (code, message) = desk.fail("read_file", json!({"path": "~/b"})).await;
    assert_eq!(code, FailureCode::InvalidInput);
    assert!(message.starts_with("no home folder is known"), "{message}");
    desk.file("~x", "a name like any other\n");
    desk.text("read_file", json!({"path": "~x"})).await;
}

#[tokio::test]
async fn a_root_may_be_a_link_itself_and_the_whole_system_may_be_allowed() {
    let desk = Desk::new();
    desk.file("a", "text\n");
    symlink(desk.inside(""), desk.outside("link")).unwrap();
    let context = ToolContext::new(desk.outside("link")).unwrap();
    let output = desk.toolbox.call("read_file", r#"{"path":"a"}"#, &context).await.unwrap();
    assert!(output.text.contains("text"));
    let mut context = desk.context.clone();
    context.policy = Arc::new(Policy::new(["/"]).unwrap());
    let output = desk.toolbox.call("read_file", r#"{"path":"/etc/passwd"}"#, &context).await.unwrap();
    assert!(output.text.contains("root"));
}

#[tokio::test]
async fn paths_that_are_none_are_told_apart() {
    let desk = Desk::new();
    desk.file("file", "text\n");
    symlink("loop b", desk.inside("loop a")).unwrap();
    symlink("loop a", desk.inside("loop b")).unwrap();
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
        let (got, message) = desk.fail("read_file", json!({"path": path})).await;
        assert_eq!(got, code, "{message}");
        assert!(message.contains(words), "{message}");
    }
    for path in ["", "a\0b", &long, &name, "loop a", "file/below", "."] {
        let (got, message) = desk.fail("write_file", json!({"path": path, "content": ""})).await;
        assert_ne!(got, FailureCode::PathRefused, "{message}");
    }
    // Exactly at the limit it is looked for.
    let most = format!("{}x", "./".repeat(PATH_BYTES / 2));
    assert_eq!(most.len(), PATH_BYTES);
    assert_eq!(desk.fail("read_file", json!({"path": most})).await.0, FailureCode::NotFound);
}

#[test]
fn a_policy_needs_folders_that_are_there() {
    let code = |roots: &[&str]| Policy::new(roots).unwrap_err().code;
    assert_eq!(code(&[]), FailureCode::InvalidInput);
    assert_eq!(code(&["relative"]), FailureCode::InvalidInput);
    assert_eq!(code(&["/no/such/folder"]), FailureCode::NotFound);
    assert_eq!(code(&["/etc/passwd"]), FailureCode::NotFound);
}
