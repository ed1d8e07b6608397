//! The models and agents that a client may choose follow the stored keys, also when a key is added or removed while
//! the server runs.

use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::client::Client;
use crate::http_api::get;
use crate::server::{PARLOR, Server};

/// Runs `parlor` on the server's state folder, with `input` on stdin.
fn run(server: &Server, args: &[&str], input: &str) {
    let mut command = Command::new(PARLOR);
    command.args(args).env("PARLOR_HOME", &server.home).stdin(Stdio::piped()).stdout(Stdio::null());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success(), "{args:?}");
}

/// Whether a list has an entry whose `key` is `openrouter`.
fn has_openrouter(list: &Value, key: &str) -> bool {
    list.as_array().unwrap().iter().any(|entry| entry[key] == "openrouter")
}

#[tokio::test]
async fn a_key_that_is_added_later_makes_its_model_and_agent_available() {
    let server = Server::start();
    let is_listed = async || {
        let choices = get(&server, "/api/choices").await;
        assert_eq!(choices["default_agent"], "local");
        let mut client = Client::connect(server.http, "").await;
        let agent_list = client.until("agent.list").await["payload"].clone();
        assert_eq!(agent_list["default"], "local");
        [
            has_openrouter(&choices["models"], "name"),
            has_openrouter(&choices["agents"], "id"),
            has_openrouter(&agent_list["agents"], "id"),
            has_openrouter(&get(&server, "/api/models").await["models"], "model_name"),
            has_openrouter(&get(&server, "/api/config").await["agents"]["list"], "id"),
        ]
    };
    assert_eq!(is_listed().await, [false; 5]);
    run(&server, &["login", "openrouter", "--key"], "a-s3cret-key\n");
    assert_eq!(is_listed().await, [true; 5]);
    run(&server, &["logout", "openrouter"], "");
    assert_eq!(is_listed().await, [false; 5]);
    let file = get(&server, "/api/choices").await["settings_file"].as_str().unwrap().to_owned();
    let folder = server.home.file_name().unwrap().to_str().unwrap();
    assert!(file.ends_with(&format!("/{folder}/parlor.toml")), "{file}");
}
