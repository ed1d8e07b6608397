//! An owner that is stopped (SIGSTOP): its clients in other processes are told so, and other sessions go on.

use reqwest::StatusCode;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::client::Client;
use crate::home::Home;
use crate::server::TOKEN;
use crate::supr::{Socket, serve};
use crate::synaps::Synaps;

#[tokio::test]
async fn clients_of_a_stopped_owner_are_told_that_it_does_not_reply() {
    let home = Home::new();
    let mut owner = Synaps::start(&home, &[]).await;
    let server = serve(&home);
    let mut joined = Socket::connect(server.http, &format!("session_id={}&stream=1", owner.session)).await;
    assert!(joined.send("message.send", json!({"content": "/wait 600"})).await);
    owner.sees_text(".").await;
    joined.frames.sees_text(".").await;

    let pid = Pid::from_raw(owner.process.pid().cast_signed()).unwrap();
    kill_process(pid, Signal::STOP).unwrap();
    let url = format!("http://{}/api/sessions/{}", server.http, owner.session);
    let rename = reqwest::Client::new().patch(url).bearer_auth(TOKEN).body(r#"{"title":"x"}"#);
    let rename = tokio::spawn(async move {
        let response = rename.send().await.unwrap();
        (response.status(), response.text().await.unwrap())
    });
    assert!(joined.send("run.stop", json!({})).await);
    assert!(joined.send("ping", json!({})).await);
    let mut other = Socket::connect(server.http, "session_id=other&stream=1&after=").await;
    assert!(other.send("message.send", json!({"content": "/say here"})).await);
    other.frames.sees_text("here").await;
    other.frames.sees_end().await;

    let silent = format!("process {}, version", pid.as_raw_nonzero());
    let is_silent = |text: &str| text.contains(&silent) && text.contains("does not reply");
    let error = joined.frames.until("error", |frame| frame["type"] == "error").await;
    assert_eq!(error["payload"]["code"], "stop_failed", "{error}");
    assert!(is_silent(&error.to_string()), "{error}");
    joined.frames.until("pong", |frame| frame["type"] == "pong").await;
    let (status, text) = rename.await.unwrap();
    assert_eq!(status, StatusCode::GATEWAY_TIMEOUT, "{text}");
    assert!(is_silent(&text), "{text}");

    // The owner carries out what it got: the run ends.
    kill_process(pid, Signal::CONT).unwrap();
    joined.frames.sees_end().await;
}
