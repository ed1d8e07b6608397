//! The environment, flags and configuration files of a child, and which variables reach a tool.

use std::path::Path;

use serde_json::json;
use tokio::process::Command;

use crate::child::{Child, Home, PARLOR};

/// `parlor` with only `PATH` in its environment.
fn parlor_without_environment(home: &Home, args: &[&str]) -> Command {
    let mut command = Command::new(PARLOR);
    command.args(args).current_dir(home.folder()).env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin");
    command.kill_on_drop(true);
    command
}

/// The same, through a link called `synaps`.
fn synaps_link(home: &Home, args: &[&str]) -> Command {
    let link = home.folder().join("synaps");
    if !link.exists() {
        std::os::unix::fs::symlink(PARLOR, &link).expect("the link can be created");
    }
    let mut command = Command::new(link);
    command.args(args).current_dir(home.folder()).env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin");
    command.kill_on_drop(true);
    command
}

/// Runs a turn and a shutdown, and returns the session id.
async fn run_one_turn(command: Command) -> String {
    let mut child = Child::start(command).await;
    assert_eq!(child.run_turn("p", "/say hi").await, "hi");
    child.send(json!({"type": "shutdown"})).await;
    assert_eq!(child.wait_for_exit().await.1.code(), Some(0));
    child.session
}

fn has_state(folder: &Path) -> bool {
    folder.join("parlor.db").exists()
}

#[tokio::test]
async fn without_a_home_the_state_is_in_the_synaps_base_folder() {
    let home = Home::new();
    let base = home.folder().join("base");
    let mut command = parlor_without_environment(&home, &["stdio", "synaps"]);
    command.env("SYNAPS_BASE_DIR", &base);
    let session = run_one_turn(command).await;
    assert!(has_state(&base.join("parlor")));
    let mut command = parlor_without_environment(&home, &["stdio", "synaps", "--continue", &session]);
    command.env("SYNAPS_BASE_DIR", &base);
    assert_eq!(run_one_turn(command).await, session);
}

#[tokio::test]
async fn without_any_variable_the_state_is_in_the_working_folder() {
    let home = Home::new();
    let session = run_one_turn(parlor_without_environment(&home, &["stdio", "synaps"])).await;
    assert!(has_state(&home.folder().join(".synaps-cli/parlor")));
    assert_eq!(run_one_turn(synaps_link(&home, &["rpc", "--continue", &session])).await, session);
}

#[tokio::test]
async fn the_name_flags_and_configuration_of_synaps_are_accepted() {
    let home = Home::new();
    let base = home.folder().join("base");
    std::fs::create_dir_all(base.join("work")).expect("the folder can be created");
    std::fs::write(base.join("config"), "model = general\n").expect("the file can be written");
    std::fs::write(base.join("work/config"), "model = special\n").expect("the file can be written");
    for (args, model) in [
        (&["rpc"][..], "general"),
        (&["--profile", "work", "rpc"], "special"),
        (&["rpc", "--system", "- be brief", "--model", "mine", "--profile", "work"], "mine"),
    ] {
        let mut command = synaps_link(&home, args);
        command.env("SYNAPS_BASE_DIR", &base);
        assert_eq!(Child::start(command).await.model, model, "{args:?}");
    }
    for args in [&["--version"][..], &["rpc", "--help"], &["tools_list", "--json"]] {
        let output = synaps_link(&home, args).output().await.expect("the program starts");
        assert!(output.status.success(), "{args:?}");
        assert!(!output.stdout.is_empty(), "{args:?}");
    }
    let output = synaps_link(&home, &["rpc", "--bogus"]).output().await.expect("the program starts");
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(2), &b""[..]));
}

#[tokio::test]
async fn secrets_in_the_environment_do_not_reach_a_tool() {
    let home = Home::new();
    let mut command = home.command(&[]);
    command
        .env("SLACK_BOT_TOKEN", "xoxb-1")
        .env("SOME_API_KEY", "sk-1")
        .env("LANGUAGE", "fr")
        .env("COLOUR", "blue");
    let mut child = Child::start(command).await;
    let printed = child.run_turn("p", "!env").await;
    assert!(
        printed.contains("LANGUAGE=fr") && !printed.contains("COLOUR"),
        "only variables on the list: {printed}"
    );
    assert!(
        !printed.contains("SLACK_BOT_TOKEN") && !printed.contains("xoxb-1") && !printed.contains("sk-1"),
        "{printed}"
    );
}

#[tokio::test]
async fn a_normal_run_writes_nothing_to_stderr() {
    let home = Home::new();
    let output = home.run_to_end(&[]).await;
    assert!(output.status.success(), "the end of stdin is not a failure");
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
}
