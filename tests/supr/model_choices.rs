//! The models and agents that a client may choose follow the stored keys, also when a key is added or removed while
//! the server runs. An agent that is offered as a model can be chosen as one.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};

use serde_json::{Value, json};

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

/// A model server that answers every request with a short text and sends the `model` of each to the test.
fn start_provider() -> (String, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let (send, models) = sync_channel(8);
    std::thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            let mut reader = BufReader::new(connection);
            let (mut length, mut line) = (0, String::new());
            while reader.read_line(&mut line).unwrap_or(0) > 2 {
                if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                }
                line.clear();
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).unwrap();
            let body: Value = serde_json::from_slice(&body).unwrap_or_default();
            let answer = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hello.\"},\"finish_reason\":\"stop\"}]}\n\n\
                          data: [DONE]\n\n";
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n";
            let answer = format!("{head}content-length: {}\r\n\r\n{answer}", answer.len());
            reader.get_mut().write_all(answer.as_bytes()).unwrap();
            // The test has ended if nobody receives it.
            let _ = send.send(body["model"].as_str().unwrap_or_default().to_owned());
        }
    });
    (url, models)
}

#[tokio::test]
async fn an_agent_that_is_offered_as_a_model_answers_with_its_own_model() {
    let (url, models) = start_provider();
    let folder = tempfile::tempdir().unwrap();
    let settings = format!(
        "default_agent = \"local\"\n[agents.main]\nkind = \"model\"\nmodel = \"a\"\n\
         [models.a]\nprovider = \"openai\"\nmodel = \"provider-a\"\nbase_url = \"{url}\"\n"
    );
    std::fs::write(folder.path().join("parlor.toml"), settings).unwrap();
    let server = Server::on(folder.path());
    let offered = get(&server, "/api/models").await["models"].as_array().unwrap().clone();
    let main = offered.iter().find(|model| model["model_name"] == "main").unwrap();
    let mut client = Client::connect(server.http, "session_id=s").await;
    for member in ["model_name", "model"] {
        let payload = json!({"content": "hello", "model": main[member]});
        client.send(&json!({"type": "message.send", "payload": payload})).await;
        let completed = client.until("message.completed").await;
        assert_eq!(completed["data"]["text"], "Hello.", "{member}");
        assert_eq!(completed["data"]["model_used"], "provider-a", "{member}");
        assert_eq!(completed["data"]["resolved_agent_id"], "main", "{member}");
        client.until("run.completed").await;
        assert_eq!(models.recv_timeout(parlor_testkit::STEP_TIMEOUT).unwrap(), "provider-a", "{member}");
    }
}
