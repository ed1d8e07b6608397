//! Commands in the foreground.

mod common;

use parlor_vocab::FailureCode;
use std::fs;

use common::{Desk, PATIENCE, ended, is_running, number};
use parlor_tools::{COMMAND_BYTES, PROGRESS_BYTES, SHELL_OUTPUT_BYTES, ShellTool, Toolbox, progress};
use serde_json::json;

#[tokio::test]
async fn both_outputs_come_in_the_order_in_which_they_were_written() {
    let desk = Desk::new();
    let command = "for n in 1 2 3 4 5 6 7 8 9; do echo o$n; echo e$n >&2; done; exit 3";
    let text = desk.text("shell", json!({"command": command})).await;
    let expected: String = (1..10).map(|n| format!("o{n}\ne{n}\n")).collect();
    assert_eq!(text, format!("{expected}[exit code 3]"));
}

#[tokio::test]
async fn the_end_is_always_told() {
    let desk = Desk::new();
    assert_eq!(desk.text("shell", json!({"command": "true"})).await, "[no output]\n[exit code 0]");
    assert_eq!(
        desk.text("shell", json!({"command": "kill -9 $$"})).await,
        "[no output]\n[killed by signal 9]"
    );
    let text = desk.text("shell", json!({"command": "no-such-program"})).await;
    assert!(text.contains("not found") && text.ends_with("[exit code 127]"), "{text}");
    assert_eq!(
        desk.text("shell", json!({"command": "cat"})).await,
        "[no output]\n[exit code 0]",
        "stdin is empty"
    );
}

#[tokio::test]
async fn the_environment_is_the_callers_and_the_folder_is_the_policys() {
    let desk = Desk::new();
    fs::create_dir(desk.inside("sub")).unwrap();
    let text = desk.text("shell", json!({"command": "env", "env": {"EXTRA": "one two"}})).await;
    let mut names: Vec<&str> =
        text.lines().filter_map(|line| line.split_once('=')).map(|(name, _)| name).collect();
    names.retain(|name| !["PWD", "SHLVL", "_", "OLDPWD"].contains(name));
    names.sort_unstable();
    assert_eq!(names, ["EXTRA", "PATH"], "the shell adds a few of its own, the server none");
    let text = desk.text("shell", json!({"command": "pwd; pwd -P", "cwd": "sub"})).await;
    let sub = desk.inside("sub").display().to_string();
    assert_eq!(text, format!("{sub}\n{sub}\n[exit code 0]"));
    for (cwd, code) in [("missing", FailureCode::NotFound), ("..", FailureCode::PathRefused)] {
        assert_eq!(desk.fail("shell", json!({"command": "pwd", "cwd": cwd})).await.0, code);
    }
    desk.file("file", "");
    assert_eq!(desk.fail("shell", json!({"command": "pwd", "cwd": "file"})).await.0, FailureCode::NotFound);
    for env in [json!({"": "x"}), json!({"a=b": "x"}), json!({"a": "\0"})] {
        let input = json!({"command": "true", "env": env});
        assert_eq!(desk.fail("shell", input).await.0, FailureCode::InvalidInput);
    }
}

#[tokio::test]
async fn the_shell_can_be_another() {
    let desk = Desk::new();
    let toolbox = Toolbox::new().with(ShellTool::new("/bin/bash"));
    for tty in [false, true] {
        let input = json!({"command": "echo ${BASH_VERSION:+bash}", "tty": tty}).to_string();
        assert_eq!(toolbox.call("shell", &input, &desk.context).await.unwrap().text, "bash\n[exit code 0]");
    }
    let toolbox = Toolbox::new().with(ShellTool::new("/no/such/shell"));
    let failure = toolbox.call("shell", r#"{"command":"x","tty":true}"#, &desk.context).await.unwrap_err();
    assert_eq!(failure.code, FailureCode::ToolError);
    assert!(failure.message.starts_with("cannot run `/no/such/shell`"), "{}", failure.message);
}

#[tokio::test]
async fn a_terminal_on_request() {
    let desk = Desk::new();
    let command = "test -t 0 && test -t 1 && echo terminal";
    assert_eq!(desk.text("shell", json!({"command": command, "tty": true})).await, "terminal\n[exit code 0]");
    assert_eq!(desk.text("shell", json!({"command": command})).await, "[no output]\n[exit code 1]");
}

#[tokio::test]
async fn much_output_keeps_its_head_and_its_tail_and_counts_the_rest() {
    let desk = Desk::new();
    let text = desk.text("shell", json!({"command": "seq 1 100000"})).await;
    let all: String = (1..=100_000).map(|n| format!("{n}\n")).collect();
    let (head, rest) = text.split_once("\n[… ").unwrap();
    let (cut, tail) = rest.split_once(" bytes cut here …]\n").unwrap();
    let tail = tail.strip_suffix("[exit code 0]").unwrap();
    assert_eq!(head.len() + tail.len(), SHELL_OUTPUT_BYTES);
    assert_eq!(head.len() + cut.parse::<usize>().unwrap() + tail.len(), all.len());
    assert!(all.starts_with(head) && all.ends_with(tail));
}

#[tokio::test]
async fn a_command_that_takes_too_long_is_ended_with_its_children() {
    let desk = Desk::new();
    let command = "sleep 600 & echo child=$!; echo self=$$; wait";
    let (code, message) = desk.fail("shell", json!({"command": command, "timeout_ms": 300})).await;
    assert_eq!(code, FailureCode::Timeout);
    assert!(
        message.starts_with("the command was ended after 300 ms, with all it had started; until then:\n")
    );
    assert!(!is_running(number(&message, "child")) && !is_running(number(&message, "self")), "{message}");
}

#[tokio::test]
async fn a_cancelled_call_returns_when_the_whole_group_is_gone_even_if_it_ignores_the_request() {
    for tty in [false, true] {
        let desk = Desk::new();
        let (writer, mut reader) = progress();
        let mut context = desk.context.clone();
        context.progress = writer;
        let cancel = context.cancel.clone();
        let command = "trap '' TERM HUP; (trap '' TERM HUP; while :; do sleep 1; done) & echo child=$!; echo self=$$; \
                       while :; do sleep 1; done";
        let toolbox = desk.toolbox.clone();
        let input = json!({"command": command, "tty": tty}).to_string();
        let call = tokio::spawn(async move { toolbox.call("shell", &input, &context).await });
        let mut seen = String::new();
        while !(seen.contains("self=") && seen.ends_with('\n')) {
            let next = tokio::time::timeout(PATIENCE, reader.next()).await.expect("output in time");
            seen.push_str(&next.expect("output before the end"));
        }
        assert!(is_running(number(&seen, "child")) && is_running(number(&seen, "self")));
        cancel.cancel();
        let failure = call.await.unwrap().unwrap_err();
        assert_eq!(failure.code, FailureCode::Cancelled);
        assert!(failure.message.contains("child="), "what it had said is not lost: {}", failure.message);
        assert!(!is_running(number(&seen, "child")) && !is_running(number(&seen, "self")));
    }
}

#[tokio::test]
async fn a_call_that_is_dropped_ends_its_command() {
    let desk = Desk::new();
    let (writer, mut reader) = progress();
    let mut context = desk.context.clone();
    context.progress = writer;
    let input = json!({"command": "echo self=$$; exec sleep 600"}).to_string();
    let mut seen = String::new();
    tokio::select! {
        outcome = desk.toolbox.call("shell", &input, &context) => panic!("it does not end: {outcome:?}"),
        () = async {
            while !seen.ends_with('\n') {
                seen.push_str(&reader.next().await.expect("output before the end"));
            }
        } => {}
    }
    ended(number(&seen, "self")).await;
}

#[tokio::test]
async fn live_output_put_together_is_the_output() {
    let desk = Desk::new();
    let (writer, mut reader) = progress();
    let mut context = desk.context.clone();
    context.progress = writer;
    let toolbox = desk.toolbox.clone();
    let input = json!({"command": "for n in 1 2 3; do printf 'n%s ä€😀\\n' $n; done"}).to_string();
    let call = tokio::spawn(async move { toolbox.call("shell", &input, &context).await });
    let mut seen = String::new();
    while let Some(text) = reader.next().await {
        seen.push_str(&text);
    }
    assert_eq!(format!("{seen}[exit code 0]"), call.await.unwrap().unwrap().text);
}

#[tokio::test]
async fn a_watcher_that_does_not_take_anything_holds_the_command_up_but_not_its_timeout() {
    let desk = Desk::new();
    let (writer, mut reader) = progress();
    let mut context = desk.context.clone();
    context.progress = writer;
    let command = "head -c 10000000 /dev/zero; echo done > flag";
    let input = json!({"command": command, "timeout_ms": 300}).to_string();
    let failure = desk.toolbox.call("shell", &input, &context).await.unwrap_err();
    assert_eq!(failure.code, FailureCode::Timeout);
    drop(context);
    assert!(!desk.inside("flag").exists(), "it could not go on");
    // What waited while the command ran, and what was read out at its end, up to the limit of live output.
    assert!(reader.next().await.unwrap().len() >= PROGRESS_BYTES);
}

#[tokio::test]
async fn what_cannot_be_a_command_is_refused() {
    let desk = Desk::new();
    assert_eq!(desk.fail("shell", json!({"command": "a\0b"})).await.0, FailureCode::InvalidInput);
    let longest = format!("true #{}", "x".repeat(COMMAND_BYTES - 6));
    assert_eq!(longest.len(), COMMAND_BYTES);
    assert_eq!(desk.text("shell", json!({"command": longest})).await, "[no output]\n[exit code 0]");
    let (code, message) = desk.fail("shell", json!({"command": format!("{longest}x")})).await;
    assert_eq!(code, FailureCode::TooLarge);
    assert!(message.ends_with("write it to a file first"), "{message}");
}

#[tokio::test]
async fn output_that_is_no_text_is_shown_as_well_as_it_can_be() {
    let desk = Desk::new();
    let text = desk.text("shell", json!({"command": "printf 'a\\377b'"})).await;
    assert_eq!(text, "a\u{fffd}b\n[exit code 0]");
}
