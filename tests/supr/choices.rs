//! What can be chosen is what can be asked now, whatever was known when the server began.

use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::client::Client;
use crate::house::get;
use crate::server::{PARLOR, Server};

/// Runs `parlor` on the state of a server, with something to read.
fn run(server: &Server, args: &[&str], input: &str) {
    let mut command = Command::new(PARLOR);
    command.args(args).env("PARLOR_HOME", &server.home).stdin(Stdio::piped()).stdout(Stdio::null());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success(), "{args:?}");
}

/// Whether a list has one whose `member` is `openrouter`.
fn has(list: &Value, member: &str) -> bool {
    list.as_array().unwrap().iter().any(|line| line[member] == "openrouter")
}

#[tokio::test]
async fn a_key_that_comes_later_opens_its_model_and_its_agent() {
    let server = Server::start();
    let offered = async || {
        let choices = get(&server, "/api/choices").await;
        assert_eq!(choices["default_agent"], "local");
        let mut client = Client::connect(server.http, "").await;
        let told = client.until("agent.list").await["payload"].clone();
        assert_eq!(told["default"], "local");
        [
            has(&choices["models"], "name"),
            has(&choices["agents"], "id"),
            has(&told["agents"], "id"),
            has(&get(&server, "/api/models").await["models"], "model_name"),
            has(&get(&server, "/api/config").await["agents"]["list"], "id"),
        ]
    };
    assert_eq!(offered().await, [false; 5]);
    run(&server, &["login", "openrouter", "--key"], "a-s3cret-key\n");
    assert_eq!(offered().await, [true; 5]);
    run(&server, &["logout", "openrouter"], "");
    assert_eq!(offered().await, [false; 5]);
    let file = get(&server, "/api/choices").await["settings_file"].as_str().unwrap().to_owned();
    let folder = server.home.file_name().unwrap().to_str().unwrap();
    assert!(file.ends_with(&format!("/{folder}/parlor.toml")), "{file}");
}
