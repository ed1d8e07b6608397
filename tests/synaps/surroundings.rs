//! What a child is started with, and what of it reaches a tool.

use std::path::Path;

use serde_json::json;
use tokio::process::Command;

use crate::child::{Child, Home, PARLOR};

/// The program with nothing in its environment but a path.
fn bare(home: &Home, args: &[&str]) -> Command {
    let mut command = Command::new(PARLOR);
    command.args(args).current_dir(home.folder()).env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin");
    command.kill_on_drop(true);
    command
}

/// The same, called by the name of the other program.
fn by_name(home: &Home, args: &[&str]) -> Command {
    let link = home.folder().join("synaps");
    if !link.exists() {
        std::os::unix::fs::symlink(PARLOR, &link).expect("a link can be made");
    }
    let mut command = Command::new(link);
    command.args(args).current_dir(home.folder()).env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin");
    command.kill_on_drop(true);
    command
}

async fn works(command: Command) -> String {
    let mut child = Child::start(command).await;
    assert_eq!(child.say("p", "/say hi").await, "hi");
    child.send(json!({"type": "shutdown"})).await;
    assert_eq!(child.end().await.1.code(), Some(0));
    child.session
}

fn has_state(folder: &Path) -> bool {
    folder.join("parlor.db").exists()
}

#[tokio::test]
async fn without_a_home_the_other_programs_folder_has_the_state() {
    let home = Home::new();
    let base = home.folder().join("base");
    let mut command = bare(&home, &["stdio", "synaps"]);
    command.env("SYNAPS_BASE_DIR", &base);
    let session = works(command).await;
    assert!(has_state(&base.join("parlor")));
    let mut command = bare(&home, &["stdio", "synaps", "--continue", &session]);
    command.env("SYNAPS_BASE_DIR", &base);
    assert_eq!(works(command).await, session);
}

#[tokio::test]
async fn without_anything_the_working_folder_has_the_state() {
    let home = Home::new();
    let session = works(bare(&home, &["stdio", "synaps"])).await;
    assert!(has_state(&home.folder().join(".synaps-cli/parlor")));
    assert_eq!(works(by_name(&home, &["rpc", "--continue", &session])).await, session);
}

#[tokio::test]
async fn the_other_programs_name_flags_and_configuration_are_understood() {
    let home = Home::new();
    let base = home.folder().join("base");
    std::fs::create_dir_all(base.join("work")).expect("folders can be made");
    std::fs::write(base.join("config"), "model = general\n").expect("files can be written");
    std::fs::write(base.join("work/config"), "model = special\n").expect("files can be written");
    for (args, model) in [
        (&["rpc"][..], "general"),
        (&["--profile", "work", "rpc"], "special"),
        (&["rpc", "--system", "- be brief", "--model", "mine", "--profile", "work"], "mine"),
    ] {
        let mut command = by_name(&home, args);
        command.env("SYNAPS_BASE_DIR", &base);
        assert_eq!(Child::start(command).await.model, model, "{args:?}");
    }
    for args in [&["--version"][..], &["rpc", "--help"], &["tools_list", "--json"]] {
        let output = by_name(&home, args).output().await.expect("the program starts");
        assert!(output.status.success(), "{args:?}");
        assert!(!output.stdout.is_empty(), "{args:?}");
    }
    let output = by_name(&home, &["rpc", "--bogus"]).output().await.expect("the program starts");
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(2), &b""[..]));
}

#[tokio::test]
async fn what_a_parent_hands_down_does_not_reach_a_tool() {
    let home = Home::new();
    let mut command = home.command(&[]);
    command
        .env("SLACK_BOT_TOKEN", "xoxb-1")
        .env("SOME_API_KEY", "sk-1")
        .env("LANGUAGE", "fr")
        .env("COLOUR", "blue");
    let mut child = Child::start(command).await;
    let said = child.say("p", "!env").await;
    assert!(said.contains("LANGUAGE=fr") && !said.contains("COLOUR"), "only what is on the list: {said}");
    assert!(
        !said.contains("SLACK_BOT_TOKEN") && !said.contains("xoxb-1") && !said.contains("sk-1"),
        "{said}"
    );
}

#[tokio::test]
async fn stderr_is_silent() {
    let home = Home::new();
    let output = home.refused(&[]).await;
    assert!(output.status.success(), "an end of input is no failure");
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
}
