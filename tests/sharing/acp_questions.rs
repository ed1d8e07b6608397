//! An editor is asked whether a command that the sandbox made fail may run once more without it.

use parlor_testkit::folder_outside_tmp;
use serde_json::{Value, json};

use crate::acp::Acp;
use crate::client::Client;
use crate::home::Home;

/// A folder that the sandbox of a session does not let a command write. Not in `/tmp`, which is private in a sandbox.
fn outside() -> tempfile::TempDir {
    folder_outside_tmp(env!("CARGO_TARGET_TMPDIR"))
}

/// An editor whose local agent is under the policy.
async fn confined_editor(home: &Home) -> Acp {
    home.configure("parlor.toml", "[policy]\nenforce_all = true\n");
    Acp::start(home).await
}

/// Prompts for a command that writes outside of the project, and returns the question of the agent.
async fn asked(editor: &mut Acp, outside: &tempfile::TempDir) -> Value {
    editor.send(&format!("!echo made >> {}/made", outside.path().display())).await;
    let frames = &mut editor.process.frames;
    frames.find("question", |frame| frame["method"] == "session/request_permission").await
}

async fn answer(editor: &mut Acp, question: &Value, outcome: Value) {
    let result = json!({"outcome": outcome});
    editor.process.write(&json!({"jsonrpc": "2.0", "id": question["id"], "result": result})).await;
    editor.sees_end().await;
}

#[tokio::test]
async fn an_allowed_command_runs_once_more_without_the_sandbox() {
    let (home, outside) = (Home::new(), outside());
    let mut editor = confined_editor(&home).await;
    let question = asked(&mut editor, &outside).await;
    let call = &question["params"]["toolCall"];
    assert!(call["title"].to_string().contains("once more, without the sandbox"), "{question}");
    assert!(call["content"].to_string().contains("it failed in the sandbox of the mode workspace"), "{call}");
    let options = question["params"]["options"].as_array().unwrap();
    let ids: Vec<&Value> = options.iter().map(|option| &option["optionId"]).collect();
    assert_eq!(ids, ["once", "deny"], "no rule remembers it");
    assert!(!outside.path().join("made").exists());
    answer(&mut editor, &question, json!({"outcome": "selected", "optionId": "once"})).await;
    assert_eq!(std::fs::read_to_string(outside.path().join("made")).unwrap(), "made\n");
}

#[tokio::test]
async fn a_cancelled_question_and_one_that_is_denied_change_nothing() {
    for outcome in [json!({"outcome": "cancelled"}), json!({"outcome": "selected", "optionId": "deny"})] {
        let (home, outside) = (Home::new(), outside());
        let mut editor = confined_editor(&home).await;
        let question = asked(&mut editor, &outside).await;
        answer(&mut editor, &question, outcome).await;
        assert!(!outside.path().join("made").exists());
        let events = home.json(&["replay", &editor.session, "--json"]);
        let settled = events.iter().find(|event| event["type"] == "question.settled").unwrap();
        assert_eq!(settled["answer"], "deny", "{settled}");
    }
}
