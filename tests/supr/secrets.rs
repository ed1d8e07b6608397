//! The server redacts its own tokens and cookies from what agents print, as it does with the keys of providers.

use std::os::unix::fs::OpenOptionsExt;

use serde_json::json;

use crate::client::Client;
use crate::server::{Server, TOKEN, command};

/// The value of the cookie that the server sets for a browser that has sent the token.
async fn cookie(server: &Server, token: &str) -> String {
    let claim = format!("http://{}/api/supr/claim", server.http);
    let body = json!({ "token": token }).to_string();
    let response = reqwest::Client::new().post(claim).body(body).send().await.unwrap();
    let cookie = response.headers().get("set-cookie").expect("a cookie").to_str().unwrap();
    cookie.split_once('=').unwrap().1.split(';').next().unwrap().to_owned()
}

/// All frames of a run that prints `text`, as one string.
async fn frames_of_printing(server: &Server, client: &mut Client, text: &str) -> String {
    let file = server.home.join("printed.txt");
    std::fs::write(&file, text).unwrap();
    client.send_text(&format!("!cat {}", file.display())).await;
    let mut frames = String::new();
    loop {
        let frame = client.next().await.unwrap();
        frames.push_str(&frame.to_string());
        if frame["event_type"] == "run.completed" {
            return frames;
        }
    }
}

#[tokio::test]
async fn old_and_new_tokens_and_cookies_are_redacted() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = std::fs::OpenOptions::new();
    let stored =
        options.write(true).create_new(true).mode(0o600).open(folder.path().join("supr.json")).unwrap();
    serde_json::to_writer(stored, &json!({ "token": TOKEN })).unwrap();
    let mut command = command(folder.path());
    command.env_remove("SUPRCLAW_CHANNELS_SUPR_TOKEN").current_dir(folder.path());
    let server = Server::spawn(command, folder.path()).unwrap();
    let mut client = Client::connect(server.http, "session_id=s&stream=1").await;
    let old_cookie = cookie(&server, TOKEN).await;
    // Another process creates a new token, and the server gets no request before the run.
    let new = server.prints(&["token", "--rotate"]).trim().to_owned();
    let frames =
        frames_of_printing(&server, &mut client, &format!("one {TOKEN} two {new} three {old_cookie} four\n"))
            .await;
    for secret in [TOKEN, &new, &old_cookie] {
        assert!(!frames.contains(secret), "{frames}");
    }
    assert!(frames.contains("one [secret] two [secret] three [secret] four"), "{frames}");
    let new_cookie = cookie(&server, &new).await;
    let frames = frames_of_printing(&server, &mut client, &format!("five {new_cookie} six\n")).await;
    assert!(frames.contains("five [secret] six") && !frames.contains(&new_cookie), "{frames}");
}
