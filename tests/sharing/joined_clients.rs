//! Clients that have joined a session of another process: what they keep when its owner leaves, and what they leave behind.

use serde_json::{Value, json};

use crate::client::Client;
use crate::home::Home;
use crate::loaf::Loaf;
use crate::log::{checked_events, runs};
use crate::server::TOKEN;
use crate::supr::{Socket, serve};
use crate::synaps::Synaps;

/// The texts and the ends of the runs of a session.
fn endings(home: &Home, session: &str) -> Vec<(String, String)> {
    runs(&checked_events(home, session)).into_iter().map(|(text, ending, _)| (text, ending)).collect()
}

fn ending(text: &str, ending: &str) -> (String, String) {
    (text.to_owned(), ending.to_owned())
}

#[tokio::test]
async fn a_front_end_goes_on_when_the_owner_of_its_session_leaves() {
    let home = Home::new();
    let mut owner = Synaps::start(&home, &[]).await;
    owner.send("/say begun").await;
    owner.sees_end().await;
    let mut joined = Loaf::join(&home, &owner.session).await;
    owner.send("/wait 600").await;
    joined.sees_text(".").await;
    owner.process.close_stdin();
    joined.sees_end().await;
    assert!(owner.process.wait().await.success());
    joined.send("/say on").await;
    joined.sees_text("on").await;
    joined.sees_end().await;
    let expected =
        [ending("/say begun", "completed"), ending("/wait 600", "stopped"), ending("/say on", "completed")];
    assert_eq!(endings(&home, &owner.session), expected);
}

#[tokio::test]
async fn a_client_that_leaves_ends_its_run_at_the_owner() {
    let home = Home::new();
    let mut owner = Synaps::start(&home, &[]).await;
    let mut joined = Synaps::start(&home, &["--continue", &owner.session]).await;
    joined.send("/wait 600").await;
    owner.sees_text(".").await;
    joined.process.close_stdin();
    owner.sees_end().await;
    assert!(joined.process.wait().await.success());
    assert_eq!(endings(&home, &owner.session), [ending("/wait 600", "stopped")]);
}

#[tokio::test]
async fn a_prompt_that_waits_for_another_clients_run_is_taken_back() {
    let home = Home::new();
    let mut owner = Synaps::start(&home, &[]).await;
    let mut joined = Synaps::start(&home, &["--continue", &owner.session]).await;
    owner.send("/wait 600").await;
    joined.sees_text(".").await;
    let prompt = joined.command(json!({"type": "prompt", "message": "/say never"})).await;
    joined.stop().await;
    let response = joined.process.frames.find("response", |frame| frame["id"] == prompt.as_str()).await;
    assert_eq!(response["cancelled"], true, "{response}");
    owner.stop().await;
    owner.sees_end().await;
    assert_eq!(endings(&home, &owner.session), [ending("/wait 600", "stopped")]);
}

#[tokio::test]
async fn a_front_end_that_closes_its_session_leaves_the_run_of_another_client_alone() {
    let home = Home::new();
    let mut owner = Synaps::start(&home, &[]).await;
    owner.send("/say begun").await;
    owner.sees_end().await;
    let mut joined = Loaf::join(&home, &owner.session).await;
    owner.send("!until [ -e go ]; do sleep 0.05; done; echo file-is-there").await;
    joined.sees_message("!until [ -e go ]; do sleep 0.05; done; echo file-is-there").await;
    joined.close_session().await;
    std::fs::write(home.folder().join("go"), "").unwrap();
    owner.sees_text("file-is-there").await;
    owner.sees_end().await;
}

#[tokio::test]
async fn the_list_of_sessions_counts_what_waits_in_another_process() {
    let home = Home::new();
    let mut owner = Synaps::start(&home, &[]).await;
    owner.send("/wait 600").await;
    owner.sees_text(".").await;
    let server = serve(&home);
    let listed = async || {
        let request = reqwest::Client::new().get(format!("http://{}/api/sessions", server.http));
        let body = request.bearer_auth(TOKEN).send().await.unwrap().text().await.unwrap();
        let session = &serde_json::from_str::<Value>(&body).unwrap()[0];
        ["id", "running", "queued", "here"].map(|member| session[member].clone())
    };
    let mut socket = Socket::connect(server.http, &format!("session_id={}&stream=1", owner.session)).await;
    assert_eq!(listed().await, [json!(owner.session), json!(true), json!(0), json!(true)]);
    socket.send("message.send", json!({"content": "/say later"})).await;
    socket.frames.until("run.queued", |frame| frame.to_string().contains("run.queued")).await;
    assert_eq!(listed().await, [json!(owner.session), json!(true), json!(1), json!(true)]);
    owner.stop().await;
    // The end of the owner's run, then that of the other.
    socket.frames.sees_end().await;
    socket.frames.sees_end().await;
    assert_eq!(listed().await, [json!(owner.session), json!(false), json!(0), json!(true)]);
}
