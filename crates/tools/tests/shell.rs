//! Foreground commands, through the `shell` tool.

mod common;

use std::fs;
use std::sync::Arc;

use common::{Fixture, TEST_TIMEOUT, is_running, number, wait_for_end};
use parlor_process::Sandbox;
use parlor_testkit::folder_outside_tmp;
use parlor_tools::{COMMAND_BYTES, PROGRESS_BYTES, SHELL_OUTPUT_BYTES, ShellTool, Toolbox, progress};
use parlor_vocab::{FailureCode, PolicyMode};
use serde_json::json;

#[tokio::test]
async fn both_outputs_come_in_the_order_in_which_they_were_written() {
    let fixture = Fixture::new();
    let command = "for n in 1 2 3 4 5 6 7 8 9; do echo o$n; echo e$n >&2; done; exit 3";
    let text = fixture.text("shell", json!({"command": command})).await;
    let expected: String = (1..10).map(|n| format!("o{n}\ne{n}\n")).collect();
    assert_eq!(text, format!("{expected}[exit code 3]"));
}

#[tokio::test]
async fn the_result_always_says_how_the_command_ended() {
    let fixture = Fixture::new();
    assert_eq!(fixture.text("shell", json!({"command": "true"})).await, "[no output]\n[exit code 0]");
    assert_eq!(
        fixture.text("shell", json!({"command": "kill -9 $$"})).await,
        "[no output]\n[killed by signal 9]"
    );
    let text = fixture.text("shell", json!({"command": "no-such-program"})).await;
    assert!(text.contains("not found") && text.ends_with("[exit code 127]"), "{text}");
    assert_eq!(
        fixture.text("shell", json!({"command": "cat"})).await,
        "[no output]\n[exit code 0]",
        "stdin is empty"
    );
}

#[tokio::test]
async fn the_environment_comes_from_the_context_and_the_folder_from_the_policy() {
    let fixture = Fixture::new();
    fs::create_dir(fixture.inside("sub")).unwrap();
    let text = fixture.text("shell", json!({"command": "env", "env": {"EXTRA": "one two"}})).await;
    let mut names: Vec<&str> =
        text.lines().filter_map(|line| line.split_once('=')).map(|(name, _)| name).collect();
    names.retain(|name| !["PWD", "SHLVL", "_", "OLDPWD"].contains(name));
    names.sort_unstable();
    assert_eq!(names, ["EXTRA", "PATH"], "the shell adds some variables, the server adds none");
    let text = fixture.text("shell", json!({"command": "pwd; pwd -P", "cwd": "sub"})).await;
    let sub = fixture.inside("sub").display().to_string();
    assert_eq!(text, format!("{sub}\n{sub}\n[exit code 0]"));
    for (cwd, code) in [("missing", FailureCode::NotFound), ("..", FailureCode::PathRefused)] {
        assert_eq!(fixture.fail("shell", json!({"command": "pwd", "cwd": cwd})).await.0, code);
    }
    fixture.file("file", "");
    assert_eq!(
        fixture.fail("shell", json!({"command": "pwd", "cwd": "file"})).await.0,
        FailureCode::NotFound
    );
    for env in [json!({"": "x"}), json!({"a=b": "x"}), json!({"a": "\0"})] {
        let input = json!({"command": "true", "env": env});
        assert_eq!(fixture.fail("shell", input).await.0, FailureCode::InvalidInput);
    }
}

#[tokio::test]
async fn the_shell_program_can_be_changed() {
    let fixture = Fixture::new();
    let toolbox = Toolbox::new().with(ShellTool::new("/bin/bash"));
    for tty in [false, true] {
        let input = json!({"command": "echo ${BASH_VERSION:+bash}", "tty": tty}).to_string();
        assert_eq!(
            toolbox.call("shell", &input, &fixture.context).await.unwrap().text,
            "bash\n[exit code 0]"
        );
    }
    let toolbox = Toolbox::new().with(ShellTool::new("/no/such/shell"));
    let failure = toolbox.call("shell", r#"{"command":"x","tty":true}"#, &fixture.context).await.unwrap_err();
    assert_eq!(failure.code, FailureCode::ToolError);
    assert!(failure.message.starts_with("cannot run `/no/such/shell`"), "{}", failure.message);
}

#[tokio::test]
async fn tty_runs_the_command_on_a_terminal() {
    let fixture = Fixture::new();
    let command = "test -t 0 && test -t 1 && echo terminal";
    assert_eq!(
        fixture.text("shell", json!({"command": command, "tty": true})).await,
        "terminal\n[exit code 0]"
    );
    assert_eq!(fixture.text("shell", json!({"command": command})).await, "[no output]\n[exit code 1]");
}

#[tokio::test]
async fn long_output_keeps_its_head_and_tail_and_counts_the_rest() {
    let fixture = Fixture::new();
    let text = fixture.text("shell", json!({"command": "seq 1 100000"})).await;
    let all: String = (1..=100_000).map(|n| format!("{n}\n")).collect();
    let (head, rest) = text.split_once("\n[… ").unwrap();
    let (cut, tail) = rest.split_once(" bytes cut here …]\n").unwrap();
    let tail = tail.strip_suffix("[exit code 0]").unwrap();
    assert_eq!(head.len() + tail.len(), SHELL_OUTPUT_BYTES);
    assert_eq!(head.len() + cut.parse::<usize>().unwrap() + tail.len(), all.len());
    assert!(all.starts_with(head) && all.ends_with(tail));
}

#[tokio::test]
async fn a_timeout_ends_the_command_and_its_children() {
    let fixture = Fixture::new();
    let command = "sleep 600 & echo child=$!; echo self=$$; wait";
    let (code, message) = fixture.fail("shell", json!({"command": command, "timeout_ms": 300})).await;
    assert_eq!(code, FailureCode::Timeout);
    assert!(
        message.starts_with("the command was ended after 300 ms, with all it had started; until then:\n")
    );
    assert!(!is_running(number(&message, "child")) && !is_running(number(&message, "self")), "{message}");
}

#[tokio::test]
async fn a_cancelled_call_kills_a_process_group_that_ignores_sigterm() {
    for tty in [false, true] {
        let fixture = Fixture::new();
        let (writer, mut reader) = progress();
        let mut context = fixture.context.clone();
        context.progress = writer;
        let cancel = context.cancel.clone();
        let command = "trap '' TERM HUP; (trap '' TERM HUP; while :; do sleep 1; done) & echo child=$!; echo self=$$; \
                       while :; do sleep 1; done";
        let toolbox = fixture.toolbox.clone();
        let input = json!({"command": command, "tty": tty}).to_string();
        let call = tokio::spawn(async move { toolbox.call("shell", &input, &context).await });
        let mut output = String::new();
        while !(output.contains("self=") && output.ends_with('\n')) {
            let next = tokio::time::timeout(TEST_TIMEOUT, reader.next_text()).await.expect("output in time");
            output.push_str(&next.expect("output before the end"));
        }
        assert!(is_running(number(&output, "child")) && is_running(number(&output, "self")));
        cancel.cancel();
        let failure = call.await.unwrap().unwrap_err();
        assert_eq!(failure.code, FailureCode::Cancelled);
        assert!(failure.message.contains("child="), "the output is kept: {}", failure.message);
        assert!(!is_running(number(&output, "child")) && !is_running(number(&output, "self")));
    }
}

#[tokio::test]
async fn a_dropped_call_ends_its_command() {
    let fixture = Fixture::new();
    let (writer, mut reader) = progress();
    let mut context = fixture.context.clone();
    context.progress = writer;
    let input = json!({"command": "echo self=$$; exec sleep 600"}).to_string();
    let mut output = String::new();
    tokio::select! {
        outcome = fixture.toolbox.call("shell", &input, &context) => panic!("the command ended early: {outcome:?}"),
        () = async {
            while !output.ends_with('\n') {
                output.push_str(&reader.next_text().await.expect("output before the end"));
            }
        } => {}
    }
    wait_for_end(number(&output, "self")).await;
}

#[tokio::test]
async fn live_output_equals_the_output_of_the_result() {
    let fixture = Fixture::new();
    let (writer, mut reader) = progress();
    let mut context = fixture.context.clone();
    context.progress = writer;
    let toolbox = fixture.toolbox.clone();
    let input = json!({"command": "for n in 1 2 3; do printf 'n%s ä€😀\\n' $n; done"}).to_string();
    let call = tokio::spawn(async move { toolbox.call("shell", &input, &context).await });
    let mut output = String::new();
    while let Some(text) = reader.next_text().await {
        output.push_str(&text);
    }
    assert_eq!(format!("{output}[exit code 0]"), call.await.unwrap().unwrap().text);
}

#[tokio::test]
async fn a_reader_that_does_not_read_blocks_the_command_but_not_its_timeout() {
    let fixture = Fixture::new();
    let (writer, mut reader) = progress();
    let mut context = fixture.context.clone();
    context.progress = writer;
    let command = "head -c 10000000 /dev/zero; echo done > flag";
    let input = json!({"command": command, "timeout_ms": 300}).to_string();
    let failure = fixture.toolbox.call("shell", &input, &context).await.unwrap_err();
    assert_eq!(failure.code, FailureCode::Timeout);
    drop(context);
    assert!(!fixture.inside("flag").exists(), "the command was blocked");
    // The text that was pending while the command ran, and the output that was drained at its end.
    assert!(reader.next_text().await.unwrap().len() >= PROGRESS_BYTES);
}

#[tokio::test]
async fn invalid_and_too_long_commands_are_refused() {
    let fixture = Fixture::new();
    assert_eq!(fixture.fail("shell", json!({"command": "a\0b"})).await.0, FailureCode::InvalidInput);
    let longest = format!("true #{}", "x".repeat(COMMAND_BYTES - 6));
    assert_eq!(longest.len(), COMMAND_BYTES);
    assert_eq!(fixture.text("shell", json!({"command": longest})).await, "[no output]\n[exit code 0]");
    let (code, message) = fixture.fail("shell", json!({"command": format!("{longest}x")})).await;
    assert_eq!(code, FailureCode::TooLarge);
    assert!(message.ends_with("write it to a file first"), "{message}");
}

#[tokio::test]
async fn invalid_utf8_in_output_becomes_replacement_characters() {
    let fixture = Fixture::new();
    let text = fixture.text("shell", json!({"command": "printf 'a\\377b'"})).await;
    assert_eq!(text, "a\u{fffd}b\n[exit code 0]");
}

/// Without a sandbox both writes succeed; see the other tests.
#[tokio::test]
async fn commands_run_in_the_sandbox_of_the_context() {
    let mut fixture = Fixture::new();
    let home = folder_outside_tmp(env!("CARGO_TARGET_TMPDIR"));
    let sandbox = Sandbox::new(PolicyMode::Workspace, fixture.inside(""), Some(home.path()));
    fixture.context.sandbox = Some(Arc::new(sandbox));
    let outside = home.path().join("file");
    let command = format!("echo in > file; cat file; pwd; echo out > {} || exit 4", outside.display());
    let folder = fixture.inside("").canonicalize().unwrap().display().to_string();
    for tty in [false, true] {
        let text = fixture.text("shell", json!({"command": command, "tty": tty})).await;
        assert!(text.starts_with(&format!("in\n{folder}\n")) && text.ends_with("[exit code 4]"), "{text}");
        assert!(!outside.exists());
    }
    let text = fixture.text("shell", json!({"command": command, "background": true})).await;
    let id = text.split('`').nth(1).unwrap();
    let wait = json!({"operation": "read", "id": id, "wait_ms": 60000});
    let mut text = fixture.text("processes", wait.clone()).await;
    while text.contains("running") {
        text = fixture.text("processes", wait.clone()).await;
    }
    assert!(text.contains("exit code 4") && !outside.exists(), "{text}");
    let unusable = Sandbox::new(PolicyMode::Workspace, "/no/such/project", None);
    fixture.context.sandbox = Some(Arc::new(unusable));
    let (code, message) = fixture.fail("shell", json!({"command": "touch started"})).await;
    assert!(code == FailureCode::Unsupported && message.contains("/no/such/project"), "{message}");
    assert!(!fixture.inside("started").exists());
}
