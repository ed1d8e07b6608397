//! Which settings a child uses, and that a model that was asked for answers or the turn fails.

use std::path::Path;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::process::Command;

use crate::child::{Child, Home, PARLOR, within_timeout};

/// A script agent that answers every prompt with `ack`.
const SCRIPT: &str = "[otherwise]\nsteps = [ { say = \"ack\" } ]\n";

/// `parlor stdio synaps` of a user whose home folder is the working folder, with nothing else in the environment.
fn child_of_user(home: &Home, args: &[&str]) -> Command {
    let mut command = Command::new(PARLOR);
    command.args(["stdio", "synaps"]).args(args).current_dir(home.folder()).kill_on_drop(true);
    command.env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin").env("HOME", home.folder());
    command
}

fn write(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("the folder can be created");
    std::fs::write(path, text).expect("the file can be written");
}

fn write_settings(folder: &Path, agent: &str) {
    let settings =
        format!("default_agent = \"{agent}\"\n[agents.{agent}]\nkind = \"script\"\nfile = \"script.toml\"\n");
    write(&folder.join("parlor.toml"), &settings);
    write(&folder.join("script.toml"), SCRIPT);
}

#[tokio::test]
async fn the_settings_of_the_user_count_when_the_folder_of_synaps_exists() {
    let home = Home::new();
    std::fs::create_dir(home.folder().join(".synaps-cli")).expect("the folder can be created");
    write_settings(&home.folder().join(".parlor"), "mine");
    let mut child = Child::start(child_of_user(&home, &[])).await;
    assert_eq!(child.model, "mine");
    assert_eq!(child.run_turn("p", "hello").await, "ack");
    // The sessions stay where a service that may write only to that folder can keep them.
    assert!(home.folder().join(".synaps-cli/parlor/parlor.db").exists());
    assert!(!home.folder().join(".parlor/parlor.db").exists());
}

#[tokio::test]
async fn settings_in_the_folder_of_synaps_count_if_the_user_has_no_others() {
    let home = Home::new();
    write_settings(&home.folder().join(".synaps-cli/parlor"), "old");
    assert_eq!(Child::start(child_of_user(&home, &[])).await.model, "old");
    write_settings(&home.folder().join(".parlor"), "mine");
    assert_eq!(Child::start(child_of_user(&home, &[])).await.model, "mine");
}

#[tokio::test]
async fn file_tools_read_neither_of_the_two_folders() {
    let home = Home::new();
    std::fs::create_dir(home.folder().join(".synaps-cli")).expect("the folder can be created");
    write(&home.folder().join(".parlor/parlor.toml"), "# settings of the user\n");
    let mut child = Child::start(child_of_user(&home, &[])).await;
    for path in [".parlor/parlor.toml", ".synaps-cli/parlor/parlor.db"] {
        let answer = child.run_turn("p", &format!("/read {path}")).await;
        assert!(answer.contains("parlor's own state folder"), "{path}: {answer}");
    }
}

/// The frames of a turn that must fail, and the text of its error.
async fn fail_turn(child: &mut Child, id: &str) -> String {
    child.prompt(id, "/say hi").await;
    let frames = child.until_response(id).await;
    let types: Vec<&Value> = frames.iter().map(|frame| &frame["type"]).collect();
    assert_eq!(types, ["error", "agent_end", "response"], "nothing may answer: {frames:?}");
    assert_eq!(frames[2]["ok"], false, "{frames:?}");
    frames[2]["error"].as_str().expect("a text").to_owned()
}

#[tokio::test]
async fn a_model_that_nobody_can_provide_fails_the_turn() {
    let home = Home::new();
    let mut child = Child::start(child_of_user(&home, &["--model", "claude-x"])).await;
    assert_eq!(child.model, "claude-x", "any name is accepted at the start");
    let error = fail_turn(&mut child, "p").await;
    assert!(error.contains("\"claude-x\"") && error.contains("parlor login"), "{error}");
    let set = child.call(json!({"type": "set_model", "id": "m", "model": "gpt-y"})).await;
    assert_eq!(set["model"], "gpt-y", "any name is accepted: {set}");
    assert!(fail_turn(&mut child, "q").await.contains("\"gpt-y\""));
    child.call(json!({"type": "set_model", "id": "n", "model": "local"})).await;
    assert_eq!(child.run_turn("r", "/say hi").await, "hi");
}

/// A provider that refuses every request. Returns its address and the bodies that it gets.
async fn refusing_provider() -> (String, tokio::sync::mpsc::Receiver<Value>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = format!("http://{}/v1", listener.local_addr().expect("an address"));
    let (to_test, bodies) = tokio::sync::mpsc::channel(16);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let (mut request, mut piece) = (Vec::new(), [0; 4096]);
            loop {
                let count = stream.read(&mut piece).await.unwrap_or(0);
                request.extend_from_slice(&piece[..count]);
                let text = String::from_utf8_lossy(&request);
                let body = text.split_once("\r\n\r\n").and_then(|(_, body)| serde_json::from_str(body).ok());
                if let Some(body) = body {
                    let _ = to_test.send(body).await;
                }
                if count == 0 || text.ends_with('}') {
                    break;
                }
            }
            let text = "{\"error\":{\"message\":\"refused by the test\"}}";
            let length = text.len();
            let answer = format!(
                "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{text}"
            );
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    (address, bodies)
}

#[tokio::test]
async fn a_model_that_a_provider_has_is_used_whatever_the_default_agent_is() {
    let (address, mut bodies) = refusing_provider().await;
    let home = Home::new();
    let model = |name: &str, id: &str| {
        format!("[models.{name}]\nprovider = \"openai\"\nmodel = \"{id}\"\nbase_url = \"{address}\"\n")
    };
    let settings = home.folder().join(".parlor/parlor.toml");
    // No agent has a model: those of the settings can be chosen all the same.
    write(&settings, &model("fast", "fast-1"));
    let mut child = Child::start(child_of_user(&home, &["--model", "fast"])).await;
    let error = fail_turn(&mut child, "p").await;
    assert!(error.contains("refused by the test"), "{error}");
    assert_eq!(within_timeout("a request", bodies.recv()).await.expect("a body")["model"], "fast-1");

    // An agent with a model answers with any name that its provider may know.
    let agent = "[agents.main]\nkind = \"model\"\nmodel = \"fast\"\n";
    write(&settings, &format!("default_agent = \"local\"\n{}{agent}", model("fast", "fast-1")));
    let mut child = Child::start(child_of_user(&home, &[])).await;
    assert_eq!(child.run_turn("0", "/say hi").await, "hi");
    child.call(json!({"type": "set_model", "id": "m", "model": "new-model"})).await;
    let error = fail_turn(&mut child, "p").await;
    assert!(error.contains("refused by the test"), "{error}");
    assert_eq!(within_timeout("a request", bodies.recv()).await.expect("a body")["model"], "new-model");
}
